// Package bolt keeps records in one file on this machine.
//
// The file is a bbolt database: a copy-on-write B+tree whose commit is two
// fsyncs, so that the file is whole after a crash at any moment. One process
// has it open at a time.
package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	bbolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// lockWait is how long Open tries for a file that another process has open:
// enough for one that is just ending to let go.
const lockWait = 250 * time.Millisecond

// entries is the one bucket. Its sequence is the store's revision; a value is
// the 8 bytes (big-endian) of the revision that wrote it, then the caller's.
var entries = []byte("entries")

const revisionBytes = 8

// Store is a record.Store in one file.
type Store struct {
	db *bbolt.DB

	// writer holds one token: waiting for it ends with the caller's context,
	// which waiting for bbolt's own lock would not. Whoever has it writes all
	// that waits.
	writer  chan struct{}
	mu      sync.Mutex
	waiting []*commit // the oldest first

	closing  sync.Once
	closed   chan struct{}
	closeErr error
}

var _ record.Store = (*Store)(nil)

// Open opens the store in the file at path, which it makes (mode 0600) when
// absent; the directory must exist. Errors: Conflict when another process has
// it open, Internal when it is damaged, NotFound without the directory.
func Open(path string) (*Store, error) {
	const op = "open records"
	db, err := openChecked(path)
	switch {
	case err == nil:
	case errors.Is(err, berrors.ErrTimeout):
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Conflict, Err: fmt.Errorf("%s is in use", path),
			Hint: "another berth serves this data directory: stop it, or choose another with --data"}
	default:
		return nil, &sandbox.Error{Op: op, Kind: kindOf(err), Err: fmt.Errorf("%s: %w", path, bare(err)), Hint: hintOf(err)}
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return nil, &sandbox.Error{Op: op, Kind: kindOf(err), Err: errors.Join(err, db.Close())}
	}
	s := &Store{db: db, writer: make(chan struct{}, 1), closed: make(chan struct{})}
	s.writer <- struct{}{}
	return s, nil
}

// errDamaged marks a file that is not, or no longer, a whole store.
var errDamaged = errors.New("the file is damaged")

// openChecked opens the database and reads every entry once. A truncated file
// would otherwise end the process by a fault in its memory map, at some later
// time; here it becomes an error.
func openChecked(path string) (db *bbolt.DB, err error) {
	var file *os.File
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			// The map stays, unused; the file must go, for its lock.
			db, err = nil, errors.Join(fmt.Errorf("%w: %v", errDamaged, r), file.Close())
		}
	}()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:      lockWait,
		FreelistType: bbolt.FreelistMapType,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			f, err := os.OpenFile(name, flag, mode)
			file = f
			return f, err
		},
	})
	if err != nil {
		var fromSystem syscall.Errno
		if !errors.As(err, &fromSystem) && !errors.Is(err, berrors.ErrTimeout) {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
		return nil, err
	}
	if err := prepare(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// prepare makes the bucket in a new file and checks every entry of an old one.
func prepare(db *bbolt.DB) error {
	fresh := false
	err := db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(entries)
		if b == nil {
			fresh = true
			return nil
		}
		newest := int64(b.Sequence())
		return b.ForEach(func(k, v []byte) error {
			e, err := decode(k, v)
			if err == nil && e.Revision > newest {
				err = fmt.Errorf("%w: entry %q is newer than the store", errDamaged, k)
			}
			return err
		})
	})
	if err != nil || !fresh {
		return err
	}
	return db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(entries)
		return err
	})
}

// Get implements record.Store.
func (s *Store) Get(ctx context.Context, key string) (record.Entry, error) {
	const op = "get record"
	if err := checkKey(op, key); err != nil {
		return record.Entry{}, err
	}
	var e record.Entry
	err := s.view(ctx, func(b *bbolt.Bucket) (err error) {
		v := b.Get([]byte(key))
		if v == nil {
			return sandbox.Errorf("", sandbox.NotFound, "no record %q", key)
		}
		e, err = decode([]byte(key), v)
		return err
	})
	return e, wrap(op, err)
}

// List implements record.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]record.Entry, error) {
	const op = "list records"
	if limit < 0 || limit > record.MaxPage {
		return nil, sandbox.Errorf(op, sandbox.Invalid, "limit %d is not 0 to %d", limit, record.MaxPage)
	}
	if limit == 0 {
		limit = record.MaxPage
	}
	var found []record.Entry
	err := s.view(ctx, func(b *bbolt.Bucket) (err error) {
		found, err = page(ctx, b.Cursor(), prefix, after, limit)
		return err
	})
	return found, wrap(op, err)
}

// view runs f in a read transaction.
func (s *Store) view(ctx context.Context, f func(*bbolt.Bucket) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.db.View(func(tx *bbolt.Tx) error { return f(tx.Bucket(entries)) })
}

// decode copies an entry out of the map, whose bytes end with the transaction.
func decode(k, v []byte) (record.Entry, error) {
	if len(v) < revisionBytes {
		return record.Entry{}, fmt.Errorf("%w: entry %q is cut short", errDamaged, k)
	}
	return record.Entry{
		Key:      string(k),
		Value:    append([]byte{}, v[revisionBytes:]...),
		Revision: int64(binary.BigEndian.Uint64(v)),
	}, nil
}

// Close implements record.Store. It waits for transactions under way; a second
// Close does nothing and returns the same.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		s.closeErr = wrap("close records", s.db.Close())
	})
	return s.closeErr
}

// wrap puts op before err and gives it a kind. A context's end keeps its own.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &sandbox.Error{Op: op, Kind: kindOf(err), Err: bare(err), Hint: hintOf(err)}
}

// kindOf classes what bbolt and the system report.
func kindOf(err error) sandbox.Kind {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, berrors.ErrMaxSizeReached):
		return sandbox.Exhausted
	case errors.Is(err, berrors.ErrDatabaseNotOpen):
		return sandbox.Unavailable
	case errors.Is(err, os.ErrNotExist):
		return sandbox.NotFound
	}
	return sandbox.KindOf(err)
}

func hintOf(err error) string {
	switch {
	case kindOf(err) == sandbox.Exhausted:
		return "free space on the disk that holds the data directory"
	case errors.Is(err, errDamaged):
		return "the file is not a whole record store: restore it from a backup, or move it away to start empty"
	case errors.Is(err, os.ErrNotExist):
		return "make the data directory first"
	}
	return ""
}

// bare names the condition in the caller's words where bbolt's would mislead.
func bare(err error) error {
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return errClosed
	}
	return err
}

// errClosed still is bbolt's error for errors.Is.
var errClosed = fmt.Errorf("the store is closed (%w)", berrors.ErrDatabaseNotOpen)

// syncDir makes a new file's name survive the loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
