// Package gvisor runs sandboxes as gVisor sentries, without KVM and without any
// other program than this one.
//
// # A machine
//
// A machine is one sentry process on the systrap platform, started by this very
// program under the engine's name (package runsc). It outlives the daemon: it is
// nobody's child, its cgroups are its own, and its network namespace is held by
// itself. The driver keeps of it one folder beneath its own, one cgroup, and the
// host's end of its link; State holds what is needed to take it up again.
//
// # Its disk
//
// The root is the template's EROFS image, mapped by the sentry itself, so there
// is no gofer process and the page cache is shared by all sandboxes. Beside it
// the guest's binary is mounted from a second image. What the sandbox writes
// goes to a layer above it whose bytes lie in a sparse file of the machine's
// folder, with a size of its own: writing past it is ENOSPC inside, and so is a
// full disk of the host. The file stays where it is over pauses and stops, and
// what is removed inside is given back to the host's disk a moment later.
//
// The figures that settled it (two cores; bench measures them anew, and
// docs/benchmarks.md has a whole run): a layer in memory costs its size in RAM,
// counts against the sandbox's memory and is copied by every pause; the file
// costs page cache that the kernel takes back, writes at the speed of memory
// until that is short, and a pause with 300 MiB in it saves less than 100.
//
// # Its limits
//
// Memory is limited by the engine itself, which kills the process that asks for
// more; behind it stands a cgroup with a reserve for the engine's own needs.
// Processor time is limited by a cgroup. The driver makes the cgroups, of
// version 1, 2 or both. The number of tasks is limited inside, by an
// RLIMIT_NPROC that counts the whole sandbox: a pids cgroup would stop the
// sentry in place of the process that asks for too much.
package gvisor

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/netgw"
	"github.com/berth-dev/berth/sandbox"
)

// Config is what a Driver needs.
type Config struct {
	Dir string // holds every machine's files; made if missing; no other driver uses it
	// Guest gives the guest's static binary, whenever it is wanted: it is not kept. An
	// error is that of New.
	Guest func() ([]byte, error)

	// Engine opens the program that is the engine, cmd/berth-engine. Nil means that
	// Exe becomes it (see package runsc), and without that this program.
	Engine func() (fs.File, error)
	Exe    string

	// Store is the size of a file system of its own for Dir, in bytes, on which forks
	// share what was written: see store.go. 0 makes none; one that is there is used
	// whatever it says. It is not made where the disk beneath Dir does as much.
	Store int64

	// Shells are engines that are started ahead of their machines.
	Shells Shells

	// Gateway carries the machines' traffic; nil means one of its own, which has no
	// policies and so lets nothing out.
	Gateway *netgw.Gateway
}

// Driver makes gVisor machines.
type Driver struct {
	dir     string
	clones  bool // files in dir share what they hold
	guest   func() ([]byte, error)
	present string // name of the guest's image; "" without a guest
	engine  func() (fs.File, error)
	exe     string // unless engine
	groups  *cgroups
	gateway *netgw.Gateway
	imageMu sync.Mutex    // one image is made at a time
	carries chan struct{} // a token for each file that moves

	programMu sync.Mutex
	program   *os.File // of engine; nil before its first use

	shelf *shelf // nil: no engine waits

	mu     sync.Mutex
	held   map[sandbox.ID]*machine // nil value: being made or taken up
	closed bool
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver on its folder. It starts nothing: call Sweep to clear
// what an earlier process left.
func New(c Config) (*Driver, error) {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fault("open driver", "", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault("open driver", "", err)
	}
	if err := openStore(dir, c.Store); err != nil {
		return nil, fault("open driver", "", err)
	}
	clones := canClone(dir)
	// Of one folder there is one tag, so that two servers on a machine never
	// touch each other's cgroups.
	sum := sha256.Sum256([]byte(dir))
	groups, err := findCgroups(fmt.Sprintf("%x", sum[:6]))
	if err != nil {
		return nil, &sandbox.Error{Op: "find cgroups", Kind: sandbox.Unsupported, Err: err, Hint: "mount the memory and cpu controllers, of version 1 or 2"}
	}
	exe := c.Exe
	if exe == "" {
		exe = "/proc/self/exe"
	}
	gateway := c.Gateway
	if gateway == nil {
		if gateway, err = netgw.New(netgw.Config{}); err != nil {
			return nil, fault("open driver", "", err)
		}
	}
	present, err := nameGuest(c.Guest)
	if err != nil {
		return nil, fault("open driver", "", err)
	}
	d := &Driver{dir: dir, clones: clones, guest: c.Guest, present: present, engine: c.Engine, exe: exe, groups: groups, gateway: gateway,
		carries: make(chan struct{}, carriesAll), held: map[sandbox.ID]*machine{}}
	d.shelf = newShelf(d, c.Shells)
	return d, nil
}

// Class implements driver.Driver.
func (d *Driver) Class() string { return "gvisor" }

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.shelf.close()
	d.mu.Lock()
	d.closed = true
	var all []*machine
	for _, m := range d.held {
		if m != nil {
			all = append(all, m)
		}
	}
	d.mu.Unlock()
	for _, m := range all {
		m.release()
	}
	d.groups.remove()
	return errors.Join(d.closeProgram(), fault("close driver", "", closeStore(d.dir)))
}

func (d *Driver) place(id sandbox.ID) place { return place{filepath.Join(d.dir, string(id))} }

// hold reserves an id for a machine that is being made or taken up.
func (d *Driver) hold(id sandbox.ID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return sandbox.Errorf("", sandbox.Unavailable, "the driver is closed")
	}
	if _, taken := d.held[id]; taken {
		return sandbox.Errorf("", sandbox.Conflict, "the machine is there already")
	}
	d.held[id] = nil
	return nil
}

// adopt puts a finished machine in its reserved place.
func (d *Driver) adopt(m *machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[m.id] = m
}

func (d *Driver) forget(id sandbox.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.held, id)
}

// fault wraps err, giving it the kind that its cause deserves.
func fault(op string, id sandbox.ID, err error) error {
	if err == nil {
		return nil
	}
	e := &sandbox.Error{Op: op, ID: id, Err: err}
	var known *sandbox.Error
	switch {
	case errors.As(err, &known):
	case isFull(err):
		e.Kind, e.Hint = sandbox.Exhausted, "free space on the disk that holds the data directory"
	default:
		e.Kind = sandbox.KindOf(err)
	}
	return e
}
