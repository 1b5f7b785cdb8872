package sandbox

import "time"

// Change is one entry of the journal: a transition of a sandbox, or a change of
// what is kept of it.
type Change struct {
	Cursor  string     `json:"cursor"` // its place; later ones sort after it
	Time    time.Time  `json:"time"`
	Type    ChangeType `json:"type"`
	Sandbox ID         `json:"sandbox"`
	Account string     `json:"account"`          // whose it is
	Name    string     `json:"name,omitempty"`   // the sandbox's
	Parent  ID         `json:"parent,omitempty"` // the sandbox that it was copied from
	From    State      `json:"from,omitempty"`   // the state before; "" for the first
	State   State      `json:"state,omitempty"`  // the state since
	Reason  string     `json:"reason,omitempty"`
	Port    int        `json:"port,omitempty"` // that was opened or closed
}

// ChangeType is what happened: the state that was entered, or one of those below.
type ChangeType string

const (
	ChangeUpdated ChangeType = "updated" // metadata, tags or policy
	ChangeResized ChangeType = "resized" // limits

	ChangePortOpened ChangeType = "port.opened" // something listens there now
	ChangePortClosed ChangeType = "port.closed"
	ChangePolicy     ChangeType = "policy" // what it may reach
)

// ChangeTypes lists every type.
func ChangeTypes() []ChangeType {
	all := []ChangeType{ChangeUpdated, ChangeResized, ChangePortOpened, ChangePortClosed, ChangePolicy}
	for _, s := range States() {
		all = append(all, ChangeType(s))
	}
	return all
}

// ChangeQuery selects changes, oldest first.
type ChangeQuery struct {
	After   string       // cursor; "" means from the oldest that is kept
	Sandbox string       // id; "" means any
	Types   []ChangeType // any of these; none means all
	Limit   int          // 1 to 1000; 0 means 100
}

// ChangePage is one page of the journal.
type ChangePage struct {
	Events []Change `json:"events"`
	Next   string   `json:"next"`             // cursor to go on with, now or later; never ""
	Missed bool     `json:"missed,omitempty"` // some between the cursor and these are kept no more
}

// Webhook is an address that changes are sent to.
type Webhook struct {
	ID        string       `json:"id"`
	URL       string       `json:"url"`
	Events    []ChangeType `json:"events,omitempty"` // none means all
	Account   string       `json:"account"`          // whose changes are sent
	Created   time.Time    `json:"created"`
	Cursor    string       `json:"cursor"`               // of the last one that was delivered or given up
	Failures  int          `json:"failures,omitempty"`   // in a row
	LastError string       `json:"last_error,omitempty"` // of the last attempt that failed
	Dropped   int64        `json:"dropped,omitempty"`    // given up after the last attempt, or kept no more
}

// WebhookRequest asks for a webhook. Without a secret one is made, and told once.
type WebhookRequest struct {
	URL    string       `json:"url"`
	Events []ChangeType `json:"events,omitempty"`
	Secret string       `json:"secret,omitempty"` // 16 to 256 bytes
}

// NewWebhook is a webhook that was just made, with its secret.
type NewWebhook struct {
	Webhook
	Secret string `json:"secret"`
}

// ChangeStream is a stream of changes, which goes on with those to come. Close
// ends it and may be called at any time, twice too.
type ChangeStream interface {
	Recv() (Change, error)
	Close() error
}
