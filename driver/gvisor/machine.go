package gvisor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/netgw"
	"github.com/berth-dev/berth/sandbox"
)

// stateVersion is of the bytes that State gives.
const stateVersion = 1

// state is what a later process needs to take a machine up.
type state struct {
	Version int             `json:"version"`
	Process process         `json:"process"` // the sentry
	Secret  guestapi.Secret `json:"secret"`
	Guest   string          `json:"guest"` // file name of the guest's image

	life time.Duration // after which a new guest ends by itself; 0 is never
}

// machine is one live sentry.
type machine struct {
	driver *Driver
	id     sandbox.ID
	place  place
	group  *group
	state  state
	link   *netgw.Link
	pidfd  *os.File

	guest func() *guestclient.Client // made when it is first used

	carries chan struct{} // a token for each file that moves past the link
	bare    atomic.Bool   // the engine knows no such way

	over chan struct{} // closed when the sentry has ended, after exit is set
	exit driver.Exit
	quit chan struct{} // closed when the watcher has returned

	mu       sync.Mutex
	asked    bool // its end, by Stop or Pause
	released bool
	ill      string   // why this process has ended it; "": it has not
	lacking  bool     // an earlier process has left its memory incomplete
	feeding  *feeding // brings its memory; nil: nobody has to
}

var (
	_ driver.Machine     = (*machine)(nil)
	_ guestclient.Keeper = (*machine)(nil)
)

// attach completes a machine whose sentry lives: it opens the link and starts
// the watcher, which owns the exit.
func (d *Driver) attach(id sandbox.ID, s state, ns *netgw.Namespace) (*machine, error) {
	d.place(id).unpin()
	pidfd, err := s.Process.open()
	if err != nil {
		return nil, err
	}
	link, err := d.gateway.Open(ns, id)
	if err != nil {
		pidfd.Close()
		return nil, err
	}
	m := &machine{
		driver: d, id: id, place: d.place(id), group: d.groups.group(string(id)),
		state: s, link: link, pidfd: pidfd, carries: make(chan struct{}, carriesEach),
		over: make(chan struct{}), quit: make(chan struct{}),
	}
	m.guest = sync.OnceValue(func() *guestclient.Client { return guestclient.Anew(m) })
	go m.watch()
	return m, nil
}

// Guest implements guestclient.Keeper: what was opened to make the machine ready serves
// those who use it.
func (m *machine) Guest() *guestclient.Client { return m.guest() }

// watch notes the end of the sentry. It ends with the sentry or with release.
func (m *machine) watch() {
	defer close(m.quit)
	if err := ended(m.pidfd); err != nil {
		return // released: the machine lives on
	}
	reason := m.reason()
	m.mu.Lock()
	m.exit = driver.Exit{Asked: m.asked, Reason: reason, At: time.Now()}
	if m.asked {
		m.exit.Reason = "stopped"
	} else if m.ill != "" {
		m.exit.Reason = m.ill
	}
	m.mu.Unlock()
	m.link.Close()
	close(m.over)
}

// awaitCrash waits for the end of an engine that has hung up, which it does before it
// has said why it crashes.
func (m *machine) awaitCrash(ctx context.Context, err error) {
	if !strings.HasSuffix(err.Error(), io.EOF.Error()) { // urpc does not wrap it
		return
	}
	select {
	case <-m.over:
	case <-time.After(endingTime):
	case <-ctx.Done():
	}
}

// crashed is err, or what the engine said when it crashed.
func (p place) crashed(err error) error {
	if said := p.lastWords(); said != "" {
		return &sandbox.Error{Kind: sandbox.Internal, Err: errors.New(said)}
	}
	return err
}

// lastWords are what the engine said when it crashed, if it has.
func (p place) lastWords() string {
	b, err := os.ReadFile(p.panicLog())
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return ""
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(b), []byte("\n"))
	return fmt.Sprintf("the engine crashed: %.200s", line)
}

// reason finds out why the sentry ended.
func (m *machine) reason() string {
	if said := m.place.lastWords(); said != "" {
		return said
	}
	if n := m.group.oomKills(); n > 0 {
		return "out of memory"
	}
	return "the engine was killed, or the guest ended"
}

// release lets go of the machine without ending it.
func (m *machine) release() {
	m.mu.Lock()
	again, fed := m.released, m.feeding
	m.released = true
	m.mu.Unlock()
	if again {
		return
	}
	fed.stop()
	m.pidfd.Close()
	<-m.quit
	select {
	case <-m.over: // the watcher has closed the link
	default:
		m.link.Close()
	}
}

// ID implements driver.Machine.
func (m *machine) ID() sandbox.ID { return m.id }

// Dial implements driver.Machine.
func (m *machine) Dial(ctx context.Context) (net.Conn, error) {
	select {
	case <-m.over:
		return nil, sandbox.Errorf("dial guest", sandbox.Unavailable, "the machine has ended")
	default:
	}
	c, err := m.link.DialGuest(ctx, guestapi.Port)
	if err != nil {
		return nil, dialError(ctx, err)
	}
	if t, ok := c.(interface{ TakeTurns() }); ok {
		t.TakeTurns()
	}
	if err := guestapi.WritePreface(c, m.state.Secret); err != nil {
		c.Close()
		return nil, dialError(ctx, err)
	}
	return c, nil
}

func dialError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &sandbox.Error{Op: "dial guest", Err: ctx.Err()}
	}
	return &sandbox.Error{Op: "dial guest", Kind: sandbox.Unavailable, Err: err}
}

// Wait implements driver.Machine.
func (m *machine) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-m.over:
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, ctx.Err()
	}
}

// Stop implements driver.Machine.
func (m *machine) Stop(ctx context.Context) error {
	m.expect(true)
	if err := m.driver.destroy(ctx, m.id); err != nil {
		return fault("stop", m.id, err)
	}
	m.release()
	m.driver.forgetMachine(m)
	return nil
}

// expect says whether the machine's end, when it comes, was asked for.
func (m *machine) expect(end bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = end
}

// forgetMachine frees m's place, unless a later machine of the id has it.
func (d *Driver) forgetMachine(m *machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held[m.id] == m {
		delete(d.held, m.id)
	}
}

// State implements driver.Machine.
func (m *machine) State() []byte {
	b, err := json.Marshal(m.state)
	if err != nil {
		panic(err) // numbers and strings alone
	}
	return b
}

// Usage implements driver.Machine.
func (m *machine) Usage(context.Context) (driver.Usage, error) {
	memory, err := m.group.memoryUse()
	if err != nil {
		return driver.Usage{}, m.usageError(err)
	}
	cpu, err := m.group.cpuUse()
	if err != nil {
		return driver.Usage{}, m.usageError(err)
	}
	disk, err := m.place.written()
	if err != nil {
		return driver.Usage{}, m.usageError(err)
	}
	return driver.Usage{MemoryBytes: memory, CPU: cpu, DiskBytes: disk}, nil
}

func (m *machine) usageError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &sandbox.Error{Op: "reach the cgroup", Kind: sandbox.Unavailable, ID: m.id, Err: errGone}
	}
	return fault("reach the cgroup", m.id, err)
}

// destroy ends whatever lives of a machine and removes whatever is left of it,
// finished or not, in this order: processes, cgroups, files. The namespace and
// the writable layer's file end with the processes.
func (d *Driver) destroy(ctx context.Context, id sandbox.ID) error {
	if err := d.groups.group(string(id)).destroy(ctx); err != nil {
		return err
	}
	p := d.place(id)
	p.unpin()
	return os.RemoveAll(p.dir)
}

// readReady waits for the guest's word on the sandbox's standard output. All
// else that comes before it is kept for the error.
func readReady(r *os.File, id sandbox.ID) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 4096)
	var said []string
	for lines.Scan() {
		if lines.Text() == guestapi.Ready+" "+string(id) {
			return nil
		}
		if said = append(said, lines.Text()); len(said) > 20 {
			said = said[1:]
		}
	}
	return fmt.Errorf("the guest ended before it was ready: %.1000s", strings.Join(said, "; "))
}
