package guest

import (
	"regexp"
	"slices"
	"strconv"
	"sync"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/screen"
)

// Bounds on the terminals that are remembered.
const (
	maxTerminals      = 256 // that live
	maxEndedTerminals = 8   // kept with their screens and exits
)

const defaultTerminal = "main"

var terminalID = regexp.MustCompile(`^t[0-9]+$`)

// terminals is all terminals that the host opened.
type terminals struct {
	kids *children
	wg   sync.WaitGroup // supervisors and pumps

	mu     sync.Mutex
	closed bool
	count  int
	live   []*terminal // in the order of their ids
	ended  []*terminal // oldest first
}

// open gives the living terminal of a name, or makes one of the plan that is
// asked for then.
func (ts *terminals) open(r *guestv1.OpenTerminalRequest, makePlan func() (*plan, error)) (*terminal, bool, error) {
	cols, rows, err := sizeOf(r.Cols, r.Rows)
	if err != nil {
		return nil, false, err
	}
	ts.mu.Lock() // for as long as it takes to start a program: two who ask for one name get one
	defer ts.mu.Unlock()
	name := r.Name
	if name == "" && r.Fresh {
		name = ts.freeName()
	} else if name == "" {
		name = defaultTerminal
	}
	if !namePattern.MatchString(name) || (terminalID.MatchString(name) && r.Name != "") {
		return nil, false, refuse(invalid, "a name has 1 to 64 characters of A-Z a-z 0-9 . _ - and is not t with a number",
			"%.80q is not a terminal's name", name)
	}
	for _, t := range ts.live {
		if t.name == name && r.Fresh {
			return nil, false, refuse(conflict, "attach to it, or take another name", "terminal %s lives under the name %q", t.id, name)
		} else if t.name == name {
			return t, false, nil
		}
	}
	if ts.closed {
		return nil, false, refuse(connect.CodeUnavailable, "", "the sandbox is ending")
	}
	if len(ts.live) >= maxTerminals {
		return nil, false, refuse(exhausted, "close some terminals", "%d terminals are open", len(ts.live))
	}
	pl, err := makePlan()
	if err != nil {
		return nil, false, err
	}
	t, err := ts.start(name, pl, cols, rows)
	return t, err == nil, err
}

// freeName is a name that no living terminal has.
func (ts *terminals) freeName() string {
	for n := 1; ; n++ {
		name := "shell" + strconv.Itoa(n)
		if !slices.ContainsFunc(ts.live, func(t *terminal) bool { return t.name == name }) {
			return name
		}
	}
}

// start runs a terminal; the lock is held.
func (ts *terminals) start(name string, pl *plan, cols, rows int) (*terminal, error) {
	ts.count++
	t := &terminal{id: "t" + strconv.Itoa(ts.count), seq: ts.count, name: name, plan: pl, kids: ts.kids, cols: cols, rows: rows,
		screen: screen.New(cols, rows), kept: ring{limit: terminalBytes},
		viewers: map[*viewer]struct{}{}, done: make(chan struct{})}
	if err := t.launch(); err != nil {
		return nil, err
	}
	ts.live = append(ts.live, t)
	ts.wg.Go(func() { t.pump.run(t.draw) })
	ts.wg.Go(func() {
		t.supervise()
		ts.retire(t)
	})
	return t, nil
}

// retire remembers an ended terminal and forgets the oldest beyond the bound.
func (ts *terminals) retire(t *terminal) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.live = slices.DeleteFunc(ts.live, func(o *terminal) bool { return o == t })
	ts.ended = append(ts.ended, t)
	if extra := len(ts.ended) - maxEndedTerminals; extra > 0 {
		ts.ended = slices.Delete(ts.ended, 0, extra)
	}
}

// find gives the terminal of an id, or the newest of a name.
func (ts *terminals) find(key string) (*terminal, error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, list := range [][]*terminal{ts.live, ts.ended} {
		for _, t := range slices.Backward(list) {
			if t.id == key || t.name == key {
				return t, nil
			}
		}
	}
	return nil, refuse(notFound, "list the terminals; the last 8 that ended are kept", "no terminal %.80q", key)
}

// remove forgets an ended terminal.
func (ts *terminals) remove(t *terminal) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.ended = slices.DeleteFunc(ts.ended, func(o *terminal) bool { return o == t })
}

// list gives all terminals in the order of their ids.
func (ts *terminals) list() []*terminal {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	all := slices.Concat(ts.ended, ts.live)
	slices.SortFunc(all, func(a, b *terminal) int { return a.seq - b.seq })
	return all
}

// close hangs every terminal up and returns when all have ended.
func (ts *terminals) close() {
	ts.mu.Lock()
	ts.closed = true
	live := slices.Clone(ts.live)
	ts.mu.Unlock()
	var hanging sync.WaitGroup
	for _, t := range live {
		hanging.Go(t.hangUp)
	}
	hanging.Wait()
	ts.wg.Wait()
}

// sizeOf is a size, or the usual one where none is given.
func sizeOf(cols, rows uint32) (int, int, error) {
	if cols == 0 && rows == 0 {
		return 80, 24, nil
	}
	return int(cols), int(rows), checkSize(cols, rows)
}

func checkSize(cols, rows uint32) error {
	if cols < 1 || cols > screen.MaxCols || rows < 1 || rows > screen.MaxRows {
		return refuse(invalid, "a terminal has 1 to 1000 columns and 1 to 500 rows", "the size is %d columns by %d rows", cols, rows)
	}
	return nil
}
