package fake

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guest"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// machine is one guest of this process.
type machine struct {
	id sandbox.ID
	d  *Driver
	*inside

	ending sync.Mutex // held while it is being ended
	clean  bool       // nothing is left

	done chan struct{} // closed when it has ended
	exit driver.Exit   // set before that
}

// inside is the guest itself. It may outlive its machine, put aside.
type inside struct {
	secret guestapi.Secret
	inner  *listener
	cancel context.CancelFunc
	served chan error // what the guest's Serve returned

	usage  sync.Mutex
	cpu    time.Duration // the most that was ever seen
	limits sandbox.Limits
}

// folders are in every sandbox.
var folders = []string{"workspace", "home/user", "tmp"}

// start makes the folder and the guest.
func start(d *Driver, spec driver.Spec) (*machine, error) {
	dir := d.folder(spec.ID)
	for _, f := range folders {
		if err := os.MkdirAll(filepath.Join(dir, f), 0o755); err != nil {
			return nil, errors.Join(&sandbox.Error{Kind: sandbox.Internal, Err: err}, os.RemoveAll(dir))
		}
	}
	return around(d, spec.ID, boot(dir, spec)), nil
}

// around makes a machine of a guest.
func around(d *Driver, id sandbox.ID, in *inside) *machine {
	return &machine{id: id, d: d, inside: in, done: make(chan struct{})}
}

// boot starts a guest on a folder that is there.
func boot(dir string, spec driver.Spec) *inside {
	in := &inside{inner: newListener(), served: make(chan error, 1), limits: spec.Limits}
	rand.Read(in.secret[:])
	g := guest.New(guest.Config{SandboxID: string(spec.ID), Version: Class, Secret: in.secret,
		Scratch: dir, Env: map[string]string{mark: string(spec.ID)}})
	ctx, cancel := context.WithCancel(context.Background())
	in.cancel = cancel
	go func() { in.served <- g.Serve(ctx, in.inner) }()
	return in
}

// greet returns when the guest has answered.
func (m *machine) greet(ctx context.Context) error {
	c := guestclient.New(m.Dial)
	defer c.Close()
	_, err := c.Hello(ctx)
	return err
}

func (m *machine) ID() sandbox.ID { return m.id }

// Dial connects to the guest through memory.
func (m *machine) Dial(ctx context.Context) (net.Conn, error) {
	c, err := m.inner.dial(ctx)
	if err != nil {
		return nil, &sandbox.Error{Op: "dial", ID: m.id, Err: err}
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	err = guestapi.WritePreface(c, m.secret)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, &sandbox.Error{Op: "dial", ID: m.id, Kind: kindOfDial(ctx), Err: err}
	}
	return c, nil
}

// kindOfDial leaves a context's end to speak for itself.
func kindOfDial(ctx context.Context) sandbox.Kind {
	if ctx.Err() != nil {
		return ""
	}
	return sandbox.Unavailable
}

// Wait returns when the machine has ended.
func (m *machine) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-m.done:
		return m.exit, nil
	default:
	}
	select {
	case <-m.done:
		return m.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, &sandbox.Error{Op: "wait", ID: m.id, Err: ctx.Err()}
	}
}

// Stop ends the guest with its processes and removes the folder.
func (m *machine) Stop(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &sandbox.Error{Op: "stop", ID: m.id, Err: err}
	}
	if err := m.end("stopped", true); err != nil {
		return &sandbox.Error{Op: "stop", ID: m.id, Err: err}
	}
	m.d.release(m)
	return nil
}

// end ends the machine once; what could not be removed is tried again by the
// next call.
func (m *machine) end(reason string, asked bool) error {
	m.ending.Lock()
	defer m.ending.Unlock()
	if m.clean {
		return nil
	}
	select {
	case <-m.done:
	default:
		m.cancel()
		if err := <-m.served; err != nil {
			reason = err.Error()
		}
		m.exit = driver.Exit{Asked: asked, Reason: reason, At: time.Now()}
		close(m.done)
	}
	if err := wipe(context.Background(), m.d.folder(m.id), m.id); err != nil {
		return err
	}
	m.clean = true
	return nil
}

// stateVersion is of the bytes that State gives.
const stateVersion = 1

type state struct {
	Version int        `json:"version"`
	ID      sandbox.ID `json:"id"`
}

// State names the machine; there is nothing to come back to in it.
func (m *machine) State() []byte {
	b, err := json.Marshal(state{stateVersion, m.id})
	if err != nil {
		panic(err) // two plain fields
	}
	return b
}

func checkState(id sandbox.ID, b []byte) error {
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return sandbox.Errorf("read state", sandbox.Unsupported, "not a state of this driver: %w", err)
	}
	if s.Version != stateVersion {
		return &sandbox.Error{Op: "read state", Kind: sandbox.Unsupported, Err: errors.New("unknown version"),
			Hint: "the machine was made by another build of berth: use that one"}
	}
	if s.ID != id {
		return sandbox.Errorf("read state", sandbox.Invalid, "the state is of %.20q", s.ID)
	}
	_, err := sandbox.ParseID(string(id))
	return err
}

// Usage sums up the marked processes and the folder.
func (m *machine) Usage(ctx context.Context) (driver.Usage, error) {
	var u driver.Usage
	for _, p := range m.d.census.processes(m.id) {
		cpu, memory := p.usage()
		u.CPU += cpu
		u.MemoryBytes += memory
	}
	m.usage.Lock()
	m.cpu = max(m.cpu, u.CPU) // those that ended are not counted any more
	u.CPU = m.cpu
	m.usage.Unlock()
	var err error
	u.DiskBytes, err = occupied(ctx, m.d.folder(m.id))
	if err != nil {
		return u, &sandbox.Error{Op: "measure", ID: m.id, Err: err}
	}
	return u, nil
}

// skipMissing passes over what was removed while it was being counted.
func skipMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
