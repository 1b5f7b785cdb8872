package sandbox

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

// WatchRequest says what to watch.
type WatchRequest struct {
	Path      string   // a file or a folder, absolute; it must be there
	Recursive bool     // folders beneath it too, those made later included
	Include   []string // patterns as of FindQuery.Glob; events of other paths are left out; none means all
	Exclude   []string // patterns; folders that match are not even looked into
	Cursor    string   // go on behind this event of an earlier stream of the same request
	Window    time.Duration
}

// Bounds on a WatchRequest.
const (
	MaxWatchPatterns   = 64
	MaxWatchWindow     = 10 * time.Second
	DefaultWatchWindow = 50 * time.Millisecond // also what a Window of 0 means
	MinWatchWindow     = time.Millisecond
)

var watchCursor = regexp.MustCompile(`^[a-z0-9]{16}-[0-9]{1,18}$`)

// CheckWatchCursor reports an error of kind Invalid unless s has a cursor's form.
func CheckWatchCursor(s string) error {
	if !watchCursor.MatchString(s) {
		return &Error{Op: "check cursor", Kind: Invalid, Err: fmt.Errorf("%.60q is not a cursor", s),
			Hint: "give the cursor of an event, or leave it out to begin now"}
	}
	return nil
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (r *WatchRequest) Check() error {
	if err := CheckPath(r.Path); err != nil {
		return err
	}
	if n := len(r.Include) + len(r.Exclude); n > MaxWatchPatterns {
		return Errorf("check patterns", Invalid, "%d patterns, at most %d are taken", n, MaxWatchPatterns)
	}
	for _, list := range [][]string{r.Include, r.Exclude} {
		for _, p := range list {
			if err := CheckGlob(p); err != nil {
				return err
			}
		}
	}
	if r.Window != 0 && (r.Window < MinWatchWindow || r.Window > MaxWatchWindow) {
		return Errorf("check window", Invalid, "the window of %v is out of range, %v to %v are taken", r.Window, MinWatchWindow, MaxWatchWindow)
	}
	if r.Cursor != "" {
		return CheckWatchCursor(r.Cursor)
	}
	return nil
}

// WatchType is what happened to a watched path.
type WatchType string

const (
	WatchReady    WatchType = "ready"    // first: from here on nothing is missed
	WatchCreate   WatchType = "create"   // it is there now, made or moved in; a folder's contents follow
	WatchModify   WatchType = "modify"   // its bytes changed
	WatchRemove   WatchType = "remove"   // it is gone, removed or moved out, with all that it held
	WatchRename   WatchType = "rename"   // From is Path now, with all that it holds
	WatchAttrib   WatchType = "attrib"   // its mode, owner, times or attributes changed
	WatchOverflow WatchType = "overflow" // events are missing: list what you need again
)

// WatchTypes lists every type.
func WatchTypes() []WatchType {
	return []WatchType{WatchReady, WatchCreate, WatchModify, WatchRemove, WatchRename, WatchAttrib, WatchOverflow}
}

// WatchEvent is one change. Changes of one path within the window are told once.
type WatchEvent struct {
	Type   WatchType `json:"type"`
	Path   string    `json:"path,omitempty"`   // of all but ready and overflow
	From   string    `json:"from,omitempty"`   // of a rename
	Entry  FileType  `json:"entry,omitempty"`  // what it is, when that is known
	Cursor string    `json:"cursor"`           // goes on behind this event
	Time   time.Time `json:"time,omitzero"`    // when it was seen, by the sandbox's clock
	Reason string    `json:"reason,omitempty"` // of an overflow
}

// Watch is a stream of changes. It ends only with an error. Close may be called
// at any time, twice too.
type Watch interface {
	Recv() (WatchEvent, error)
	Close() error
}

type rawWatchEvent struct {
	plainWatchEvent
	PathB64 []byte `json:"path_b64,omitempty"`
	FromB64 []byte `json:"from_b64,omitempty"`
}

type plainWatchEvent WatchEvent

// MarshalJSON adds path_b64 and from_b64 when those are not UTF-8.
func (e WatchEvent) MarshalJSON() ([]byte, error) {
	return json.Marshal(rawWatchEvent{plainWatchEvent(e), Raw(e.Path), Raw(e.From)})
}

// UnmarshalJSON undoes MarshalJSON.
func (e *WatchEvent) UnmarshalJSON(b []byte) error {
	var r rawWatchEvent
	if err := json.Unmarshal(b, &r); err != nil {
		return err
	}
	*e = WatchEvent(r.plainWatchEvent)
	e.Path, e.From = Exact(e.Path, r.PathB64), Exact(e.From, r.FromB64)
	return nil
}
