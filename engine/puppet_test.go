package engine_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/record/bolt"
	"github.com/berth-dev/berth/sandbox"
)

// world is a driver whose machines have no guest, outlive engines, and fail on
// demand. It shows what the engine does around a driver; driver/fake shows the
// rest.
type world struct {
	mu       sync.Mutex
	machines map[sandbox.ID]*puppet
	fail     map[string]error // by step: create, stop, recover
	enter    chan sandbox.ID  // if set, Create reports here and then blocks
	leave    chan struct{}    // until this
	sweeps   [][]sandbox.ID   // what each Sweep was to keep

	guests *puppetGuests // nil: nobody lives in the puppets

	aside    map[sandbox.ID]*kept
	pausing  chan sandbox.ID // if set, Pause reports here and then blocks until leave
	resuming chan sandbox.ID // the same of Resume
	forking  chan int        // if set, Fork reports here how many and then blocks until leave
	count    int             // of what Pause and Resume gave
	resumes  int
	cpu      time.Duration // that every machine has used
	burn     time.Duration // and goes on to use, a second
}

func newWorld() *world {
	return &world{machines: map[sandbox.ID]*puppet{}, fail: map[string]error{}, aside: map[sandbox.ID]*kept{}}
}

func (w *world) failing(step string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fail[step]
}

func (w *world) set(step string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail[step] = err
}

func (w *world) ids() []sandbox.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []sandbox.ID
	for id := range w.machines {
		ids = append(ids, id)
	}
	return ids
}

func (w *world) Class() string { return "puppet" }
func (w *world) Close() error  { return nil }
func (w *world) Probe(context.Context) (driver.Capabilities, error) {
	return driver.Capabilities{Version: "1", Survives: true}, w.failing("probe")
}

func (w *world) Create(ctx context.Context, s driver.Spec) (driver.Machine, error) {
	if w.enter != nil {
		w.enter <- s.ID
		select {
		case <-w.leave:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := w.failing("create"); err != nil {
		return nil, err
	}
	m := newPuppet(w, s, "state of "+string(s.ID))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machines[s.ID] = m
	return m, nil
}

func (w *world) Recover(_ context.Context, id sandbox.ID, state []byte) (driver.Machine, error) {
	if err := w.failing("recover"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.machines[id]
	if m == nil || string(state) != m.state {
		return nil, sandbox.Errorf("recover", sandbox.NotFound, "no machine")
	}
	return m, nil
}

func (w *world) Sweep(_ context.Context, keep []sandbox.ID) (swept []sandbox.ID, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweeps = append(w.sweeps, keep)
	for id := range w.machines {
		if !slices.Contains(keep, id) {
			delete(w.machines, id)
			swept = append(swept, id)
		}
	}
	for id := range w.aside {
		if !slices.Contains(keep, id) {
			delete(w.aside, id)
			swept = append(swept, id)
		}
	}
	return swept, nil
}

type puppet struct {
	inside puppetGuest // if its world has guests
	world  *world
	id     sandbox.ID
	state  string
	ended  chan struct{}
	whole  <-chan struct{} // closed once its memory has come; nil: it came whole, or nobody brings it
	once   sync.Once
	exit   driver.Exit

	content
	limits sandbox.Limits
	born   time.Time
}

func newPuppet(w *world, s driver.Spec, state string) *puppet {
	return &puppet{world: w, id: s.ID, state: state, ended: make(chan struct{}), limits: s.Limits, born: time.Now()}
}

func (p *puppet) ID() sandbox.ID { return p.id }
func (p *puppet) State() []byte  { return []byte(p.state) }
func (p *puppet) Dial(ctx context.Context) (net.Conn, error) {
	if p.world.guests != nil {
		return p.world.guests.dial(ctx, p)
	}
	return nil, sandbox.Errorf("dial", sandbox.Unavailable, "nobody lives here")
}
func (p *puppet) Usage(context.Context) (driver.Usage, error) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	burnt := time.Duration(time.Since(p.born).Seconds() * float64(p.world.burn))
	return driver.Usage{CPU: p.world.cpu + burnt, MemoryBytes: 100 << 20}, p.world.fail["usage"]
}

func (p *puppet) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-p.ended:
		return p.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, ctx.Err()
	}
}

func (p *puppet) Stop(ctx context.Context) error {
	if err := p.world.failing("stop"); err != nil {
		return err
	}
	p.end(driver.Exit{Asked: true})
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	delete(p.world.machines, p.id)
	return ctx.Err()
}

func (p *puppet) end(e driver.Exit) {
	p.once.Do(func() { p.exit = e; close(p.ended) })
}

// crash ends a machine as if by itself.
func (w *world) crash(id sandbox.ID, reason string) {
	w.mu.Lock()
	m := w.machines[id]
	w.mu.Unlock()
	m.end(driver.Exit{Reason: reason, At: time.Now()})
}

// templates is a store of templates in memory.
type templates struct {
	mu     sync.Mutex
	all    map[string]sandbox.Template
	keys   map[string]sandbox.Template
	pruned func(string) bool
}

func newTemplates() *templates {
	return &templates{keys: map[string]sandbox.Template{}, all: map[string]sandbox.Template{"base": {Name: "base", Digest: fmt.Sprintf("sha256:%064d", 1), Source: "distribution:bookworm"}}}
}

func (t *templates) Build(_ context.Context, r sandbox.BuildRequest, progress func(sandbox.Progress)) (sandbox.Template, error) {
	progress(sandbox.Progress{Step: "unpack", Done: 1, Total: 2, Unit: "layers"})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all[r.Name] = sandbox.Template{Name: r.Name, Digest: fmt.Sprintf("sha256:%064d", len(t.all)+1), Source: r.From}
	return t.all[r.Name], nil
}

func (t *templates) Get(_ context.Context, name string) (sandbox.Template, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if got, ok := t.all[name]; ok {
		return got, nil
	}
	for _, got := range t.all {
		if got.Digest == name {
			return got, nil
		}
	}
	return sandbox.Template{}, sandbox.Errorf("get template", sandbox.NotFound, "no template %q", name)
}

func (t *templates) List(context.Context) ([]sandbox.Template, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []sandbox.Template
	for _, tpl := range t.all {
		all = append(all, tpl)
	}
	return all, nil
}

func (t *templates) Remove(_ context.Context, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, name)
	return nil
}

func (t *templates) Import(_ context.Context, from string, _ *sandbox.Login, _ bool, _ func(sandbox.Progress)) (sandbox.Template, error) {
	return t.pack(sandbox.Template{Source: from}, "import "+from), nil
}

func (t *templates) Pack(_ context.Context, like sandbox.Template, key string, stream io.Reader, _ func(sandbox.Progress)) (sandbox.Template, error) {
	if _, err := io.Copy(io.Discard, stream); err != nil {
		return sandbox.Template{}, err
	}
	return t.pack(like, key), nil
}

func (t *templates) pack(like sandbox.Template, key string) sandbox.Template {
	t.mu.Lock()
	defer t.mu.Unlock()
	like.Digest = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(key)))
	t.all[like.Digest] = like
	t.keys[key] = like
	return like
}

func (t *templates) Made(_ context.Context, key string) (sandbox.Template, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	got, ok := t.keys[key]
	return got, ok, nil
}

func (t *templates) Assign(_ context.Context, like sandbox.Template) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all[like.Name] = like
	return nil
}

func (t *templates) RootPath(tpl sandbox.Template) string { return "/roots/" + tpl.Digest }
func (t *templates) Prune(_ context.Context, inUse func(string) bool) ([]string, error) {
	t.pruned = inUse
	return nil, nil
}

// faulty is a store whose commits fail on demand: the decision is made for each,
// by its number from 1.
type faulty struct {
	record.Store
	mu     sync.Mutex
	count  int
	before func(n int, t record.Txn) error // fails without applying
	after  func(n int) error               // fails although it applied
}

func (f *faulty) Commit(ctx context.Context, t record.Txn) (int64, error) {
	f.mu.Lock()
	f.count++
	n, before, after := f.count, f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(n, t); err != nil {
			return 0, err
		}
	}
	rev, err := f.Store.Commit(ctx, t)
	if err == nil && after != nil {
		err = after(n)
	}
	return rev, err
}

// house is an engine with its parts.
type house struct {
	*engine.Engine
	world     *world
	records   *faulty
	templates *templates
}

func newHouse(t *testing.T, change ...func(*engine.Config)) *house {
	t.Helper()
	store, err := bolt.Open(t.TempDir() + "/records")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	h := &house{world: newWorld(), records: &faulty{Store: store}, templates: newTemplates()}
	h.open(t, change...)
	return h
}

// open starts an engine on the house's parts, as a restart does.
func (h *house) open(t *testing.T, change ...func(*engine.Config)) {
	t.Helper()
	c := engine.Config{Drivers: []driver.Driver{h.world}, Records: h.records, Templates: h.templates, Version: "test"}
	for _, f := range change {
		f(&c)
	}
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	h.Engine = e
}

func (h *house) create(t *testing.T, r sandbox.CreateRequest) sandbox.Sandbox {
	t.Helper()
	s, err := h.Create(operator(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// nothingLeft fails unless no machine and no key is left.
func (h *house) nothingLeft(t *testing.T) {
	t.Helper()
	entries, err := h.records.List(context.Background(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Key, "event/") {
			continue // the journal remembers
		}
		t.Errorf("left in the store: %s = %s", e.Key, e.Value)
	}
	if ids := h.world.ids(); len(ids) > 0 {
		t.Errorf("left in the driver: %v", ids)
	}
	if ids := h.world.asides(); len(ids) > 0 {
		t.Errorf("left aside in the driver: %v", ids)
	}
}

// await polls until ok; the test's own deadline bounds it.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 3000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never came true: %s", what)
}

func wantKind(t *testing.T, err error, kind sandbox.Kind) {
	t.Helper()
	if sandbox.KindOf(err) != kind {
		t.Fatalf("error of kind %q, want %q: %v", sandbox.KindOf(err), kind, err)
	}
}

var errBroken = &sandbox.Error{Op: "test", Kind: sandbox.Exhausted, Err: errors.New("broken on purpose")}
