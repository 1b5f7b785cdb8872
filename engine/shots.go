package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// The keys of snapshots.
const (
	shotPrefix     = "snapshot/"      // + account/id: the record as JSON
	shotNamePrefix = "snapshot-name/" // + account/name: the id
)

// maxShots is how many snapshots an account may have.
const maxShots = 10_000

// errNoArchive says that a server keeps nothing.
var errNoArchive = errors.New("this server keeps no snapshots or backups")

// shot is a snapshot with what the engine keeps beside what the owner sees.
type shot struct {
	sandbox.Snapshot
	Manifest blob.Digest       `json:"manifest,omitempty"`
	About    driver.About      `json:"about"`
	Base     base              `json:"base"`
	Env      map[string]string `json:"env,omitempty"`

	// Build says that a template's build took it: the next start removes one without a
	// name that no template names.
	Build bool `json:"build,omitempty"`

	// Volumes are those that the sandbox had, and what is made from it has.
	Volumes []sandbox.VolumeMount `json:"volumes,omitempty"`
}

func shotKey(account string, id sandbox.ID) string { return shotPrefix + account + "/" + string(id) }
func shotNameKey(account, name string) string      { return shotNamePrefix + account + "/" + name }

func (s *shot) key() string { return shotKey(s.Account, s.ID) }

// shotOf returns a snapshot of the caller's account by id or name.
func (e *Engine) shotOf(ctx context.Context, given string) (*shot, error) {
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return nil, err
	}
	return e.shotIn(ctx, c.Account, given)
}

// shotIn returns a snapshot of an account by id or name.
func (e *Engine) shotIn(ctx context.Context, account, given string) (*shot, error) {
	if id, err := sandbox.ParseID(given); err == nil {
		return e.loadShot(ctx, account, id)
	}
	if err := sandbox.CheckRef(given); err != nil {
		return nil, err
	}
	entry, err := e.records.Get(ctx, shotNameKey(account, given))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, noShot()
	}
	if err != nil {
		return nil, err
	}
	return e.loadShot(ctx, account, sandbox.ID(entry.Value))
}

func (e *Engine) loadShot(ctx context.Context, account string, id sandbox.ID) (*shot, error) {
	entry, err := e.records.Get(ctx, shotKey(account, id))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, noShot()
	}
	if err != nil {
		return nil, err
	}
	return decodeShot(entry)
}

func decodeShot(entry record.Entry) (*shot, error) {
	s := &shot{}
	if err := json.Unmarshal(entry.Value, s); err != nil {
		return nil, sandbox.Errorf("decode record "+entry.Key, sandbox.Internal, "%w", err)
	}
	return s, nil
}

func noShot() error {
	return &sandbox.Error{Kind: sandbox.NotFound, Err: errors.New("no such snapshot"), Hint: "berth snapshot ls lists them"}
}

// shotsOf returns the snapshots of an account, or of all if it is "".
func (e *Engine) shotsOf(ctx context.Context, account string) (all []*shot, err error) {
	prefix := shotPrefix
	if account != "" {
		prefix = shotKey(account, "")
	}
	err = e.eachEntry(ctx, prefix, func(entry record.Entry) error {
		s, err := decodeShot(entry)
		if err == nil {
			all = append(all, s)
		}
		return err
	})
	return all, err
}

// Snapshots lists the snapshots of the account, the newest first.
func (e *Engine) Snapshots(ctx context.Context, q sandbox.SnapshotQuery) ([]sandbox.Snapshot, error) {
	const op = "list snapshots"
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return nil, fail(op, "", err)
	}
	all, err := e.shotsOf(ctx, c.Account)
	if err != nil {
		return nil, fail(op, "", err)
	}
	list := []sandbox.Snapshot{}
	for _, s := range all {
		if q.Sandbox == "" || q.Sandbox == string(s.Sandbox) {
			list = append(list, s.Snapshot)
		}
	}
	slices.SortFunc(list, func(a, b sandbox.Snapshot) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// GetSnapshot returns one snapshot by id or name, or NotFound.
func (e *Engine) GetSnapshot(ctx context.Context, id string) (sandbox.Snapshot, error) {
	s, err := e.shotOf(ctx, id)
	if err != nil {
		return sandbox.Snapshot{}, fail("get snapshot", "", err)
	}
	return s.Snapshot, nil
}

// commitShot puts a new snapshot on record, and if s is not nil, that s goes on
// from it. The caller holds the lock of s. Conflict: the name is taken.
func (e *Engine) commitShot(ctx context.Context, sh *shot, s *stored) error {
	value, err := json.Marshal(sh)
	if err != nil {
		return sandbox.Errorf("encode snapshot", sandbox.Internal, "%w", err)
	}
	t := record.Txn{If: []record.Cond{{Key: sh.key()}}, Then: []record.Op{{Key: sh.key(), Value: value}}}
	if sh.Name != "" {
		key := shotNameKey(sh.Account, sh.Name)
		t.If, t.Then = append(t.If, record.Cond{Key: key}), append(t.Then, record.Op{Key: key, Value: []byte(sh.ID)})
	}
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	if s == nil {
		_, err = e.records.Commit(ctx, t)
	} else {
		changed := *s
		changed.Snapshot = sh.ID
		err = e.commitIf(ctx, s, &changed, sandbox.ChangeUpdated, t.If, t.Then...)
	}
	if err == nil {
		return nil
	}
	// The outcome may be unknown: what is on record decides.
	if now, lerr := e.loadShot(ctx, sh.Account, sh.ID); lerr == nil && now.ID == sh.ID {
		return nil
	} else if sandbox.KindOf(lerr) != sandbox.NotFound {
		return errors.Join(err, lerr)
	}
	if sandbox.KindOf(err) == sandbox.Conflict {
		if nerr := e.nameIsFree(ctx, sh.Account, sh.Name); nerr != nil {
			return nerr
		}
	}
	return err
}

// nameIsFree is Conflict if a snapshot has the name.
func (e *Engine) nameIsFree(ctx context.Context, account, name string) error {
	if name == "" {
		return nil
	}
	_, err := e.records.Get(ctx, shotNameKey(account, name))
	switch sandbox.KindOf(err) {
	case sandbox.NotFound:
		return nil
	case "":
		return &sandbox.Error{Op: "take name", Kind: sandbox.Conflict, Err: fmt.Errorf("another snapshot has the name %q", name),
			Hint: "choose another name, or remove that one: berth snapshot rm " + name}
	}
	return err
}

// snapper returns the driver of a class that writes machines down.
func (e *Engine) snapper(class string) (driver.Snapshotter, error) {
	d, err := e.driver(class)
	if err != nil {
		return nil, err
	}
	if s, ok := d.(driver.Snapshotter); ok {
		return s, nil
	}
	return nil, &sandbox.Error{Op: "find driver", Kind: sandbox.Unsupported,
		Err: fmt.Errorf("sandboxes of class %q cannot be kept as snapshots", class), Hint: "use the class gvisor, or back folders up: berth backup"}
}

// expiry is when something that is made now and kept for so many seconds goes.
func (e *Engine) expiry(now time.Time, seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(seconds) * time.Second)
}
