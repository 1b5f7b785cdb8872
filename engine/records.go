package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// The keys of a sandbox. The machine's bytes stand apart from the record: they
// may hold secrets, and no verb returns them.
const (
	recordPrefix  = "sandbox/" // + id: the record as JSON
	machinePrefix = "machine/" // + id: what driver.Recover needs, while it runs
	savedPrefix   = "saved/"   // + id: what driver.Resume needs, while it is paused or stopped
	namePrefix    = "name/"    // + account/name: the id of the living sandbox of that name
	orderPrefix   = "newest/"  // + cursor: the id; sorts the newest first
	ownPrefix     = "own/"     // + account/id: the id; what a caller of that account may ask for
	ownedPrefix   = "owned/"   // + account/cursor: the id; sorts the newest first
)

func recordKey(id sandbox.ID) string  { return recordPrefix + string(id) }
func machineKey(id sandbox.ID) string { return machinePrefix + string(id) }
func savedKey(id sandbox.ID) string   { return savedPrefix + string(id) }

func nameKey(account, name string) string         { return namePrefix + account + "/" + name }
func ownKey(account string, id sandbox.ID) string { return ownPrefix + account + "/" + string(id) }

// stored is a sandbox with what the engine keeps beside what the owner sees.
type stored struct {
	sandbox.Sandbox
	Base      base      `json:"base"`
	Doing     *doing    `json:"doing,omitempty"`     // the verb that is under way, or was when the engine ended
	Ran       time.Time `json:"ran,omitzero"`        // Started, as records had it before
	KeepUntil time.Time `json:"keep_until,omitzero"` // not idle before then
	Trust     *trust    `json:"trust,omitempty"`     // what its programs were given to trust

	Build  bool          `json:"build,omitempty"`  // a template's build works in it, and ends it
	Shares map[int]share `json:"shares,omitempty"` // by port; one that is not there is as at first

	Safe   sandbox.ID `json:"safe,omitempty"` // its last checkpoint
	SafeAt time.Time  `json:"safe_at,omitzero"`

	// Counted is the processor time that its machine had used before it was this
	// sandbox's.
	Counted time.Duration `json:"counted,omitempty"`

	// From is the snapshot that its next machine is made of: it was taken back to
	// that, and has not run since. There is nothing else of it.
	From sandbox.ID `json:"from,omitempty"`

	// ValueSet is Policy.ValueSet, which no document of a policy has.
	ValueSet string `json:"value_set,omitempty"`

	values []sandbox.RuleValue // of Policy, until they are put away

	revision int64 // of the record; 0 before it is first written
	unowned  bool  // written before there were accounts
}

// base is what the template gives to every process. What is "" the guest fills
// in: it knows which of the defaults its root has.
type base struct {
	Env     map[string]string `json:"env,omitempty"`
	User    string            `json:"user,omitempty"`
	Workdir string            `json:"workdir,omitempty"`
}

// setBase says what the template gives to every process.
func (s *stored) setBase(b base) { s.Base, s.User, s.Workdir = b, b.User, b.Workdir }

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
	if s.Started.IsZero() {
		s.Started = s.Ran
	}
	s.Ran = time.Time{}
	if s.Account == "" {
		s.Account, s.unowned = sandbox.MainAccount, true
	}
	s.setBase(s.Base)
	if s.Policy != nil {
		s.Policy.ValueSet = s.ValueSet
	}
	return s, nil
}

func notFound() error {
	return &sandbox.Error{Kind: sandbox.NotFound, Err: fmt.Errorf("no such sandbox"), Hint: "berth ls lists them"}
}

// transition takes a sandbox to a state, with its reason, in one transaction
// with ops and the journal's entry, and ends what it was doing. It is the only
// way a state changes. The record must not have changed since it was loaded;
// otherwise the result is Conflict. Deleted leaves nothing.
func (e *Engine) transition(ctx context.Context, s *stored, next sandbox.State, reason string, ops ...record.Op) error {
	if s.revision != 0 && !s.State.CanBecome(next) {
		return sandbox.Errorf("change state", sandbox.Conflict, "a sandbox that is %s cannot become %s", s.State, next)
	}
	if next == sandbox.Deleted {
		if err := e.disown(ctx, s.ID); err != nil {
			return err
		}
	}
	changed := *s
	changed.State, changed.Reason, changed.Doing = next, reason, nil
	if next == sandbox.Running {
		changed.From = ""
	}
	if next == sandbox.Running && s.State != sandbox.Running {
		changed.Started = e.now().UTC().Round(0)
	}
	if next != sandbox.Running && next != sandbox.Paused {
		changed.Ports = nil
	}
	if next != sandbox.Running && next != sandbox.Starting {
		changed.Counted = 0
	}
	what := sandbox.ChangeType(next)
	if s.revision != 0 && s.State == next {
		what = "" // nothing happened that anybody waits for
	}
	return e.commit(ctx, s, &changed, what, ops...)
}

// commit writes a changed record in one transaction with ops and, unless what is
// "", an entry of the journal. Then s is as changed.
func (e *Engine) commit(ctx context.Context, s, changed *stored, what sandbox.ChangeType, ops ...record.Op) error {
	return e.commitIf(ctx, s, changed, what, nil, ops...)
}

// commitIf is commit under further conditions.
func (e *Engine) commitIf(ctx context.Context, s, changed *stored, what sandbox.ChangeType, conds []record.Cond, ops ...record.Op) error {
	changed.Updated = e.now().UTC().Round(0)
	t := record.Txn{If: append([]record.Cond{{Key: recordKey(s.ID), Revision: s.revision}}, conds...), Then: ops}
	if err := changed.keys(&t, s); err != nil {
		return err
	}
	metered, counted, err := e.meter.Change(changed.Sandbox, changed.Started, changed.Counted)
	if err != nil {
		return err
	}
	t.Then = append(t.Then, metered...)
	entry := e.journal.reserve(what, s, changed)
	defer entry.settle()
	if err := entry.keys(&t); err != nil {
		return err
	}
	revision, err := e.records.Commit(ctx, t)
	if err != nil {
		return nameTaken(err, s)
	}
	changed.revision = revision
	*s = *changed
	if !s.living() {
		e.release(s.ID)
	}
	e.ledger.note(s)
	counted()
	if what != "" {
		e.timers.plan(s)
	}
	return nil
}

// keys adds to t what the change from a record to s writes and removes.
func (s *stored) keys(t *record.Txn, from *stored) error {
	add := func(o ...record.Op) { t.Then = append(t.Then, o...) }
	if s.State == sandbox.Deleted {
		for _, key := range s.indexes() {
			add(record.Op{Key: key, Delete: true})
		}
		for port, is := range s.Shares {
			if is.Public {
				add(record.Op{Key: publicKey(s.ID, port), Delete: true})
			}
		}
		add(record.Op{Key: recordKey(s.ID), Delete: true}, record.Op{Key: machineKey(s.ID), Delete: true},
			record.Op{Key: savedKey(s.ID), Delete: true})
	} else {
		if s.ValueSet = ""; s.Policy != nil {
			s.ValueSet = s.Policy.ValueSet
		}
		value, err := json.Marshal(s)
		if err != nil {
			return sandbox.Errorf("encode record", sandbox.Internal, "%w", err)
		}
		add(record.Op{Key: recordKey(s.ID), Value: value})
		if from.revision == 0 {
			for _, key := range s.indexes() {
				add(record.Op{Key: key, Value: []byte(s.ID)})
			}
		}
	}
	if s.Name == "" {
		return nil
	}
	name := nameKey(s.Account, s.Name)
	switch {
	case from.revision == 0:
		t.If = append(t.If, record.Cond{Key: name})
		add(record.Op{Key: name, Value: []byte(s.ID)})
	case from.living() && !s.living():
		add(record.Op{Key: name, Delete: true})
	}
	return nil
}

// indexes are the keys, beside its name's, by which a sandbox is found: they hold
// its id for as long as it has a record.
func (s *stored) indexes() []string {
	return []string{orderPrefix + s.cursor(), ownKey(s.Account, s.ID), ownedPrefix + s.Account + "/" + s.cursor()}
}

// living reports whether a sandbox has its name to itself.
func (s *stored) living() bool { return s.State != sandbox.Failed && s.State != sandbox.Deleted }

// nameTaken explains the conflict of a record that was to be the first.
func nameTaken(err error, s *stored) error {
	if sandbox.KindOf(err) != sandbox.Conflict || s.revision != 0 || s.Name == "" {
		return err
	}
	return &sandbox.Error{Op: "take name", Kind: sandbox.Conflict, Err: fmt.Errorf("another sandbox has the name %q", s.Name),
		Hint: "choose another name, or ask to get the one that is there"}
}

// erase removes a sandbox's record whatever it holds now: the undoing of a
// create, which alone knows the id.
func (e *Engine) erase(ctx context.Context, s *stored) error {
	now, err := e.load(ctx, s.ID)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil // it was never written
	}
	if err != nil {
		return err
	}
	return e.transition(ctx, now, sandbox.Deleted, "")
}

// each calls f for every record until it fails.
func (e *Engine) each(ctx context.Context, f func(*stored) error) error {
	return e.eachEntry(ctx, recordPrefix, func(entry record.Entry) error {
		s, err := decode(entry)
		if err != nil {
			return err
		}
		return f(s)
	})
}

// eachEntry calls f for every entry whose key has a prefix, until it fails.
func (e *Engine) eachEntry(ctx context.Context, prefix string, f func(record.Entry) error) error {
	return record.Each(ctx, e.records, prefix, "", f)
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
