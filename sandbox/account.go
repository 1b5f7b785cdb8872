package sandbox

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Account is a team: what it has, nobody else sees.
type Account struct {
	ID      string       `json:"id"`              // see CheckAccount; for ever, also once it is removed
	Label   string       `json:"label,omitempty"` // for people
	State   AccountState `json:"state"`
	Quota   Quota        `json:"quota"`
	Created time.Time    `json:"created"`
	Expires time.Time    `json:"expires,omitzero"` // of a temporary one that nobody claims
	Used    *Quota       `json:"used,omitempty"`   // now; in the answer about one account alone
}

// AccountState is where an account stands in its life.
type AccountState string

const (
	AccountActive    AccountState = "active"
	AccountTemporary AccountState = "temporary" // removed with all it has, unless it is claimed
	AccountRemoving  AccountState = "removing"  // its keys open nothing; what it has is being removed
)

// Quota bounds what an account uses at once. A field that is 0 is no bound.
type Quota struct {
	Sandboxes     int64 `json:"sandboxes"`      // that run or start
	CPUMilli      int64 `json:"cpu_milli"`      // thousandths of a core, of those
	MemoryBytes   int64 `json:"memory_bytes"`   // of those
	DiskBytes     int64 `json:"disk_bytes"`     // that may be written, of all that have a disk
	SnapshotBytes int64 `json:"snapshot_bytes"` // that snapshots hold
	ForkAtOnce    int64 `json:"fork_at_once"`   // children of one fork
}

// Check reports an error of kind Invalid for a field that is negative.
func (q Quota) Check() error {
	for _, v := range []int64{q.Sandboxes, q.CPUMilli, q.MemoryBytes, q.DiskBytes, q.SnapshotBytes, q.ForkAtOnce} {
		if v < 0 {
			return &Error{Op: "check quota", Kind: Invalid, Err: fmt.Errorf("it holds %d", v), Hint: "a bound is 1 or more; 0 means none"}
		}
	}
	return nil
}

// QuotaUpdate changes some fields of a quota. Nil ones stay as they are.
type QuotaUpdate struct {
	Sandboxes     *int64 `json:"sandboxes,omitempty"`
	CPUMilli      *int64 `json:"cpu_milli,omitempty"`
	MemoryBytes   *int64 `json:"memory_bytes,omitempty"`
	DiskBytes     *int64 `json:"disk_bytes,omitempty"`
	SnapshotBytes *int64 `json:"snapshot_bytes,omitempty"`
	ForkAtOnce    *int64 `json:"fork_at_once,omitempty"`
}

// Apply returns q with the update's fields.
func (u QuotaUpdate) Apply(q Quota) Quota {
	for _, f := range []struct {
		from *int64
		to   *int64
	}{
		{u.Sandboxes, &q.Sandboxes}, {u.CPUMilli, &q.CPUMilli}, {u.MemoryBytes, &q.MemoryBytes},
		{u.DiskBytes, &q.DiskBytes}, {u.SnapshotBytes, &q.SnapshotBytes}, {u.ForkAtOnce, &q.ForkAtOnce},
	} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	return q
}

// AccountRequest asks for an account.
type AccountRequest struct {
	ID    string      `json:"id"`
	Label string      `json:"label,omitempty"` // at most MaxLabel bytes
	Quota QuotaUpdate `json:"quota,omitzero"`  // what is left out is as the server's configuration has it
}

// MaxLabel bounds the label of an account or a key, in bytes.
const MaxLabel = 128

// Check reports an error of kind Invalid for the first thing that is wrong.
func (r *AccountRequest) Check() error {
	if err := CheckAccount(r.ID); err != nil {
		return err
	}
	if err := CheckLabel(r.Label); err != nil {
		return err
	}
	return r.Quota.Apply(Quota{}).Check()
}

// CheckLabel reports an error of kind Invalid unless s can be a label.
func CheckLabel(s string) error {
	if len(s) > MaxLabel || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return &Error{Op: "check label", Kind: Invalid, Err: errors.New("the label is too long, or is not plain text"),
			Hint: fmt.Sprintf("a label has at most %d bytes, on one line", MaxLabel)}
	}
	return nil
}

// Key is what a client shows to be let in. The secret itself is told once, when
// the key is made, and kept nowhere.
type Key struct {
	ID       string    `json:"id"`
	Account  string    `json:"account"`
	Label    string    `json:"label,omitempty"`
	Ending   string    `json:"ending,omitempty"` // the last four digits of the secret, to tell keys apart
	Scopes   []Scope   `json:"scopes"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero"`   // zero: never
	LastUsed time.Time `json:"last_used,omitzero"` // to the minute or so; zero: never
}

// KeyRequest asks for a key.
type KeyRequest struct {
	Label          string  `json:"label,omitempty"`
	Scopes         []Scope `json:"scopes,omitempty"`          // none means admin
	ExpiresSeconds int64   `json:"expires_seconds,omitempty"` // from now; 0: never
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (r *KeyRequest) Check() error {
	if err := CheckLabel(r.Label); err != nil {
		return err
	}
	for i, s := range r.Scopes {
		if !(Caller{Account: MainAccount, Scopes: []Scope{ScopeAdmin}}).May(s) || i >= len(Scopes()) {
			return &Error{Op: "check scopes", Kind: Invalid, Err: fmt.Errorf("%.40q is not a scope, or there are too many", s),
				Hint: fmt.Sprintf("the scopes are %q, each with those before it", Scopes())}
		}
	}
	if r.ExpiresSeconds < 0 || r.ExpiresSeconds > MaxTimer {
		return &Error{Op: "check expiry", Kind: Invalid, Err: fmt.Errorf("it is %d seconds", r.ExpiresSeconds),
			Hint: fmt.Sprintf("it takes 1 to %d seconds; 0 means never", int64(MaxTimer))}
	}
	return nil
}

// KeyUpdate changes what may change of a key.
type KeyUpdate struct {
	Label string `json:"label"` // "" takes it away
}

// NewKey is a key that was just made, with its secret.
type NewKey struct {
	Key
	Secret string `json:"secret"` // "berth_" and 40 hex digits
}

// KeyPrefix begins every key.
const KeyPrefix = "berth_"

var keySecret = regexp.MustCompile(`^[0-9a-f]{40}$`)

// ParseKey returns the 40 hex digits of a key, or an error of kind Unauthorized.
// The error does not repeat what was given.
func ParseKey(s string) (digits string, err error) {
	digits, ok := strings.CutPrefix(s, KeyPrefix)
	if !ok || !keySecret.MatchString(digits) {
		return "", &Error{Kind: Unauthorized, Err: errors.New("this is not a key"), Hint: "a key is berth_ and 40 hex digits"}
	}
	return digits, nil
}

// TemporaryAccount is an account that was made without sign-up.
type TemporaryAccount struct {
	Account  Account `json:"account"`
	Key      NewKey  `json:"key"`
	ClaimURL string  `json:"claim_url"` // a person opens it to keep the account
}

// Challenge is the work that a client does for a temporary account: to find a
// Solution for which the SHA-256 of Challenge, a colon and the Solution begins
// with Bits zero bits.
type Challenge struct {
	Challenge string    `json:"challenge"`
	Bits      int       `json:"bits"` // 0: none is needed
	Expires   time.Time `json:"expires"`
}

// TemporaryRequest asks for a temporary account. Both fields are left out where
// no work is asked for.
type TemporaryRequest struct {
	Challenge string `json:"challenge,omitempty"`
	Solution  string `json:"solution,omitempty"` // at most 64 bytes
}
