package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// The keys of a sandbox. The machine's bytes stand apart from the record: they
// may hold secrets, and no verb returns them.
const (
	recordPrefix  = "sandbox/" // + id: the record as JSON
	machinePrefix = "machine/" // + id: what driver.Recover needs
	orderPrefix   = "newest/"  // + cursor: the id; sorts the newest first
)

func recordKey(id sandbox.ID) string  { return recordPrefix + string(id) }
func machineKey(id sandbox.ID) string { return machinePrefix + string(id) }

// stored is a sandbox with what the engine keeps beside what the owner sees.
type stored struct {
	sandbox.Sandbox
	Base base `json:"base"`

	revision int64 // of the record; 0 before it is first written
}

// base is what the template gives to every process. What is "" the guest fills
// in: it knows which of the defaults its root has.
type base struct {
	Env     map[string]string `json:"env,omitempty"`
	User    string            `json:"user,omitempty"`
	Workdir string            `json:"workdir,omitempty"`
}

// cursor is the sandbox's place in the list: its time, inverted, then its id.
func (s *stored) cursor() string {
	return fmt.Sprintf("%016x-%s", ^uint64(s.Created.UnixNano()), s.ID)
}

// load returns a sandbox's record, or NotFound.
func (e *Engine) load(ctx context.Context, id sandbox.ID) (*stored, error) {
	entry, err := e.records.Get(ctx, recordKey(id))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, notFound()
	}
	if err != nil {
		return nil, err
	}
	return decode(entry)
}

func decode(entry record.Entry) (*stored, error) {
	s := &stored{revision: entry.Revision}
	if err := json.Unmarshal(entry.Value, s); err != nil {
		return nil, sandbox.Errorf("decode record "+entry.Key, sandbox.Internal, "%w", err)
	}
	return s, nil
}

func notFound() error {
	return &sandbox.Error{Kind: sandbox.NotFound, Err: fmt.Errorf("no such sandbox"), Hint: "berth ls lists them"}
}

// transition takes a sandbox to a state, with its reason, in one transaction
// with ops. It is the only way a state changes. The record must not have changed
// since it was loaded; otherwise the result is Conflict. Deleted leaves nothing.
func (e *Engine) transition(ctx context.Context, s *stored, next sandbox.State, reason string, ops ...record.Op) error {
	if s.revision != 0 && !s.State.CanBecome(next) {
		return sandbox.Errorf("change state", sandbox.Conflict, "a sandbox that is %s cannot become %s", s.State, next)
	}
	changed := *s
	changed.State, changed.Reason, changed.Updated = next, reason, e.now().UTC().Round(0)
	order := record.Op{Key: orderPrefix + s.cursor(), Value: []byte(s.ID)}
	if next == sandbox.Deleted {
		order.Delete, order.Value = true, nil
		ops = append(ops, order, record.Op{Key: recordKey(s.ID), Delete: true}, record.Op{Key: machineKey(s.ID), Delete: true})
	} else {
		value, err := json.Marshal(&changed)
		if err != nil {
			return sandbox.Errorf("encode record", sandbox.Internal, "%w", err)
		}
		ops = append(ops, record.Op{Key: recordKey(s.ID), Value: value})
		if s.revision == 0 {
			ops = append(ops, order)
		}
	}
	revision, err := e.records.Commit(ctx, record.Txn{
		If:   []record.Cond{{Key: recordKey(s.ID), Revision: s.revision}},
		Then: ops,
	})
	if err != nil {
		return err
	}
	changed.revision = revision
	*s = changed
	return nil
}

// erase removes a sandbox's record whatever it holds now: the undoing of a
// create, which alone knows the id.
func (e *Engine) erase(ctx context.Context, s *stored) error {
	_, err := e.records.Commit(ctx, record.Txn{Then: []record.Op{
		{Key: recordKey(s.ID), Delete: true},
		{Key: machineKey(s.ID), Delete: true},
		{Key: orderPrefix + s.cursor(), Delete: true},
	}})
	return err
}

// each calls f for every record until it fails.
func (e *Engine) each(ctx context.Context, f func(*stored) error) error {
	for after := ""; ; {
		entries, err := e.records.List(ctx, recordPrefix, after, 0)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			s, err := decode(entry)
			if err != nil {
				return err
			}
			if err := f(s); err != nil {
				return err
			}
			after = entry.Key
		}
		if len(entries) < record.MaxPage {
			return nil
		}
	}
}

// parseCursor checks a cursor that a caller gave back.
func parseCursor(s string) error {
	stamp, id, ok := strings.Cut(s, "-")
	_, err := sandbox.ParseID(id)
	if !ok || err != nil || len(stamp) != 16 || strings.Trim(stamp, "0123456789abcdef") != "" {
		return &sandbox.Error{Op: "check list query", Kind: sandbox.Invalid, Err: fmt.Errorf("%.80q is not a cursor", s),
			Hint: "after takes next of the page before"}
	}
	return nil
}
