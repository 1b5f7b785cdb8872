// Package record is the contract of the store that holds what Berth must not
// forget: small values under ordered keys, changed in atomic transactions with
// compare-and-set.
//
// It is shaped so that an embedded store and a replicated one (etcd) can both
// be its body. record/recordtest holds every body to what is said here.
package record

import "context"

// Bounds that every body keeps to.
const (
	MaxKey   = 512     // bytes of a key; at least 1
	MaxValue = 1 << 20 // bytes of a value
	MaxOps   = 128     // conditions and operations of one transaction, each
	MaxPage  = 1000    // entries of one List
)

// Entry is one key with its value.
type Entry struct {
	Key      string
	Value    []byte
	Revision int64 // of the transaction that last wrote it; 1 or more
}

// Store keeps entries. All methods may be called at once from many goroutines.
// Errors are *sandbox.Error: NotFound, Conflict (a condition did not hold),
// Invalid (a bound above), Exhausted (no space), Unavailable (closed, or out of
// reach), Internal (damage).
type Store interface {
	// Get returns the entry of key, or NotFound.
	Get(ctx context.Context, key string) (Entry, error)

	// List returns up to limit entries whose keys start with prefix and sort
	// after the key "after" (bytewise; "" means from the first), in key order,
	// all from one moment. limit 0 means MaxPage; more is Invalid.
	List(ctx context.Context, prefix, after string, limit int) ([]Entry, error)

	// Commit applies all of t's operations, or none, if all of its conditions
	// hold. It returns the revision of the change: larger than every earlier
	// one, also over restarts. When it returns nil the change survives the loss
	// of power. A context that ends while the outcome is unknown gives
	// Unavailable; then the caller must read to learn what happened.
	Commit(ctx context.Context, t Txn) (revision int64, err error)

	// Close releases the store; later calls are Unavailable.
	Close() error
}

// Txn is one atomic change.
type Txn struct {
	If   []Cond
	Then []Op
}

// Cond holds while Key's entry is of Revision; 0 means that Key has none.
type Cond struct {
	Key      string
	Revision int64
}

// Op sets Key to Value, or removes Key when Delete is set. Removing a key that
// is not there is no error. A transaction that names a key twice is Invalid.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
}
