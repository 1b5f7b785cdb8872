package guest

import (
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// Bounds on the processes that are remembered.
const (
	maxLive       = 8192     // started by the host and not yet ended
	maxEnded      = 256      // kept with their exits
	maxEndedBytes = 32 << 20 // of output that the ended ones hold, all together
)

// table is all processes that the host started.
type table struct {
	kids     *children
	logBytes int
	ready    spares
	wg       sync.WaitGroup // supervisors and pumps

	mu     sync.Mutex
	closed bool
	count  int
	live   map[string]*process // by id; a nil one is being started
	named  map[string]string   // id of the live process of a name
	ended  []*process          // oldest first
}

func newTable(kids *children, logBytes int) *table {
	return &table{kids: kids, logBytes: logBytes, live: map[string]*process{}, named: map[string]string{}}
}

// idOf is the id of the n-th process.
func idOf(n int) string { return "p" + strconv.Itoa(n) }

var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	idPattern   = regexp.MustCompile(`^p[0-9]+$`)
)

// start runs a plan. The cursor stands at the beginning of the output and is the
// caller's to close; with lossless set, the process waits for it.
//
// The plan may be an outline; look settles it if need be. What ends within brief has come
// to its end when start returns.
func (t *table) start(pl *plan, r *guestv1.StartRequest, look func(*plan) error, brief time.Duration) (*process, *cursor, error) {
	return t.begin(pl, r, time.Duration(r.TimeoutMs)*time.Millisecond, func(p *process) error {
		if t.logBytes >= 2*pipeSize {
			p.brief = brief
		}
		return p.launch(r.Stdin, r.Merge, &t.ready, look)
	})
}

// begin registers what launch makes of a process: its leader, its pumps and its
// input. A timeout of 0 leaves the leader alone.
func (t *table) begin(pl *plan, r *guestv1.StartRequest, timeout time.Duration, launch func(*process) error) (*process, *cursor, error) {
	seq, err := t.reserve(r.Name)
	if err != nil {
		return nil, nil, err
	}
	id := idOf(seq)
	p := &process{id: id, seq: seq, name: r.Name, plan: pl, detach: r.Detach, kids: t.kids,
		timeout: timeout,
		out:     newOutput(t.logBytes), done: make(chan struct{})}
	first, err := p.out.read([streams]int64{})
	if r.Lossless {
		p.out.lossless = first
	}
	if err == nil {
		err = launch(p)
	}
	if err != nil {
		t.cancel(id, r.Name)
		return nil, nil, err
	}
	t.mu.Lock()
	t.live[id] = p
	closed := t.closed
	t.mu.Unlock()
	over := p.alone && !closed && p.passed()
	if p.alone { // if it is over, for what it may have left
		p.kids.expect(p.leader.number())
	}
	if over {
		t.retire(p)
		go func() {
			defer t.wg.Done() // of reserve
			t.tidy(p)
		}()
		return p, first, nil
	}
	for i, pump := range p.pumps {
		t.wg.Go(func() { pump.run(func(b []byte) { p.out.write(i, b) }) })
	}
	t.wg.Go(func() {
		defer t.wg.Done() // of reserve
		p.supervise()
		t.retire(p)
		runtime.Gosched() // the exit goes out first
		t.ready.fill()
	})
	if closed {
		p.end()
	}
	return p, first, nil
}

// reserve takes an id and a name for a process that is about to start.
func (t *table) reserve(name string) (int, error) {
	if name != "" && (!namePattern.MatchString(name) || idPattern.MatchString(name)) {
		return 0, refuse(invalid, "a name has 1 to 64 characters of A-Z a-z 0-9 . _ - and is not p with a number",
			"%.80q is not a process name", name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return 0, refuse(connect.CodeUnavailable, "", "the sandbox is ending")
	case len(t.live) >= maxLive:
		return 0, refuse(exhausted, "end some processes", "%d processes are running", len(t.live))
	case name != "" && t.named[name] != "":
		return 0, refuse(conflict, "end it first, or take another name", "process %s is running under the name %q", t.named[name], name)
	}
	t.count++
	id := idOf(t.count)
	t.live[id] = nil
	if name != "" {
		t.named[name] = id
	}
	t.wg.Add(1) // until the process has been supervised to its end
	return t.count, nil
}

// cancel gives back what reserve took.
func (t *table) cancel(id, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, id)
	delete(t.named, name)
	t.wg.Done()
}

// retire remembers an ended process and forgets the oldest beyond the bounds.
func (t *table) retire(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, p.id)
	delete(t.named, p.name)
	if p.forgotten {
		return
	}
	t.ended = append(t.ended, p)
	if extra := len(t.ended) - maxEnded; extra > 0 {
		for _, old := range t.ended[:extra] {
			old.out.forget()
		}
		t.ended = slices.Delete(t.ended, 0, extra)
	}
	total := 0
	for _, old := range slices.Backward(t.ended) {
		if size := old.out.size(); total+size > maxEndedBytes {
			old.out.forget()
		} else {
			total += size
		}
	}
}

// find gives the process of an id, or the newest of a name.
func (t *table) find(key string) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, ok := t.named[key]; ok {
		key = id
	}
	if p := t.live[key]; p != nil {
		return p, nil
	}
	for _, p := range slices.Backward(t.ended) {
		if p.id == key || (p.name != "" && p.name == key) {
			return p, nil
		}
	}
	return nil, refuse(notFound, "list the processes; the last 256 that ended are kept", "no process %.80q", key)
}

// list gives all processes, in the order of their ids.
func (t *table) list() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.ended)
	for _, p := range t.live {
		if p != nil {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *process) int { return a.seq - b.seq })
	return all
}

// close kills every process and returns when all has ended. What a process left
// running elsewhere keeps its pipe; that end is closed.
func (t *table) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	for _, p := range t.list() {
		p.end()
	}
	t.wg.Wait()
	t.ready.close()
}
