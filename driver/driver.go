// Package driver is the contract between the engine and what runs sandboxes.
//
// A body of it (gvisor, fake, later vm and isolate) turns a Spec into a live
// Machine whose guest answers on Machine.Dial. Semantics are stated here once,
// and driver/drivertest holds every body to them.
package driver

import (
	"context"
	"net"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Spec is all a driver needs to make a machine. The driver puts the guest in
// by itself: Root need not contain it.
type Spec struct {
	ID       sandbox.ID
	Root     string         // absolute path of the template's root image (EROFS, read-only, never changed)
	Hostname string         // inside; at most 63 characters of [a-z0-9-]
	Limits   sandbox.Limits // complete: every field within its range
	Mounts   []Mount        // each at a place of its own; a body that has none of the kind is Unsupported
}

// Mount is a folder of the host that a machine sees as one of its own. It is shared:
// other machines may have it at the same time, and nothing of it is in what Pause,
// Capture and Fork keep or copy. What was open there is opened again by its path; a
// machine that had something open that is gone cannot be taken up with its memory.
//
// A machine is resumed, restored and forked with mounts at the same places as it
// was made with.
type Mount struct {
	Source   string // absolute path of a folder on the host
	Target   string // absolute path inside; made if it is not there
	ReadOnly bool
}

// Driver makes machines of one isolation class.
//
// All methods may be called at once from many goroutines. Errors are
// *sandbox.Error with a kind; a context that ends is returned as such, and
// whatever was half made is undone before the method returns.
type Driver interface {
	// Class is the isolation class: "gvisor", "fake". It never changes.
	Class() string

	// Probe says what this machine can do, by trying rather than by looking.
	// An error means that Create cannot work here; its hint says what to do.
	Probe(ctx context.Context) (Capabilities, error)

	// Create makes a machine and returns once its guest has answered. A failure
	// at any step leaves nothing of it: no process, mount, cgroup, namespace or
	// file. An id that is in use is Conflict.
	Create(ctx context.Context, spec Spec) (Machine, error)

	// Recover adopts the machine that a former process of this program made,
	// from the bytes its State gave. NotFound means that it no longer lives;
	// then nothing of it is left when Recover returns. An unknown version of the
	// bytes is Unsupported and leaves the machine alone.
	Recover(ctx context.Context, id sandbox.ID, state []byte) (Machine, error)

	// Sweep removes what dead or half-made machines left behind, except those
	// of the ids in keep (live or put aside) and those this process holds. It returns the ids that
	// it removed anything of.
	Sweep(ctx context.Context, keep []sandbox.ID) ([]sandbox.ID, error)

	// Close lets go of every machine without ending it; Recover in the next
	// process takes them up again. A body that cannot outlive its process (the
	// fake) ends them.
	Close() error
}

// Capabilities is what Probe found.
type Capabilities struct {
	Version  string            `json:"version"`            // of the engine beneath
	Survives bool              `json:"survives"`           // machines outlive this process
	Isolates bool              `json:"isolates"`           // hostile code may run in it
	Details  map[string]string `json:"details,omitempty"`  // for people: platform, cgroup version
	Warnings []string          `json:"warnings,omitempty"` // what works less well than it could, and the remedy
}

// Machine is one live computer.
type Machine interface {
	ID() sandbox.ID

	// Dial opens a connection that the guest has accepted as the host's own:
	// HTTP may be spoken on it at once. Dial works from the moment the machine
	// exists until it ends; then it fails with Unavailable.
	Dial(ctx context.Context) (net.Conn, error)

	// Wait returns when the machine has ended, with how it ended. It returns
	// the context's error if that ends first. Many may wait.
	Wait(ctx context.Context) (Exit, error)

	// Stop ends the machine and removes all that was made for it, whatever state
	// it is in. After a nil error nothing is left. A second Stop is nil.
	Stop(ctx context.Context) error

	// State is what Recover needs in a later process: opaque, versioned, at
	// most 64 KiB, to be kept where secrets may be kept. It changes at no time
	// after Create.
	State() []byte

	// Usage is what the machine uses now.
	Usage(ctx context.Context) (Usage, error)
}

// Exit is how a machine ended.
type Exit struct {
	Asked  bool      // through Stop
	Reason string    // for people: "out of memory", "the guest ended", "killed"
	At     time.Time // when it was noticed
}

// Usage is a machine's present use of its host.
type Usage struct {
	MemoryBytes int64         // charged to the machine, page cache that it shares left out
	CPU         time.Duration // since it was made
	DiskBytes   int64         // of the writable layer, as stored on the host
}

// Keep says what of a machine Pause keeps.
type Keep string

const (
	KeepMemory Keep = "memory" // all: memory, processes, terminals, disk
	KeepDisk   Keep = "disk"   // the disk alone, as after a clean end of power
)

// Pauser is a Driver whose machines can be put aside and taken up again, by
// this process or by a later one, after a restart of the host too.
type Pauser interface {
	// Pause saves what keep says, then ends m and frees all of its memory: no
	// process, cgroup or namespace is left, only files. Wait returns an Exit that
	// was asked for. The bytes are what Resume needs, under the terms of State;
	// all that they stand for survives the loss of power when Pause returns. A
	// machine that has ended is Unavailable. After a nil error m is of no more use:
	// its Dial is Unavailable, and Stop must not be called.
	//
	// Once saving has begun the context no longer ends it. If there is no room
	// (Exhausted) or saving fails, m runs on, unless the error is of kind
	// Internal: then m may have ended, as Wait tells.
	Pause(ctx context.Context, m Machine, keep Keep) (saved []byte, err error)

	// Resume takes a machine up again that Pause has put aside, with the spec
	// that it was made from; limits may differ. Saved bytes serve once: after a
	// nil error they are void. After an error they still serve, unless it is of
	// kind Internal. With KeepDisk the guest starts anew.
	Resume(ctx context.Context, spec Spec, saved []byte) (Machine, error)

	// Discard removes what a machine that was put aside left. One that is not
	// there is no error.
	Discard(ctx context.Context, id sandbox.ID) error
}

// Reducer is a Pauser that can give up the memory of what was put aside.
type Reducer interface {
	// Reduce makes of what Pause has kept with KeepMemory what it would have kept with
	// KeepDisk, and returns the bytes for that; those that were given are void then.
	// Nothing of the machine runs meanwhile: what its programs held open or had not
	// written yet is as after the loss of power. After an error the bytes that were
	// given still serve, unless it is of kind Internal. Of what has kept its disk alone
	// it returns the bytes as they are, so that a Reduce that was cut short can be done
	// again with what Find tells.
	Reduce(ctx context.Context, spec Spec, saved []byte) ([]byte, error)

	// ReduceFrom puts the disk alone of what a captured folder holds aside under spec's
	// id, which is not in use, and returns the bytes for Resume. Nothing of it runs
	// meanwhile, under the same terms. The folder and the spec are as for Restore. After
	// an error nothing is left; all that the bytes stand for survives the loss of power.
	ReduceFrom(ctx context.Context, spec Spec, dir string) ([]byte, error)
}

// Keeper is a Pauser that can say how much room what it has put aside takes.
type Keeper interface {
	// Kept is how many bytes the files of a machine that was put aside occupy on
	// the host. One that is not there is NotFound.
	Kept(ctx context.Context, id sandbox.ID) (bytes int64, err error)
}

// Tidier is a Pauser that can say what of its files no machine needs.
type Tidier interface {
	// Litter lists what is there of machines that this process does not hold, put
	// aside or dead, and the files that none of the machines needs, for whoever
	// knows which of the machines are wanted. It changes nothing.
	Litter(ctx context.Context) ([]sandbox.Litter, error)

	// Clear removes what Litter has listed, but a machine's: that is for Discard.
	// What is needed again meanwhile is left, with Conflict; what is not there is no
	// error.
	Clear(ctx context.Context, l sandbox.Litter) error
}

// Finder is a Pauser that can say what became of a machine whose caller died
// before it could keep what Pause or Resume gave.
type Finder interface {
	// Find waits for a save or a load that an earlier process began, undoes what
	// is half done, and tells what there is of id now. NotFound: nothing that
	// could be taken up; then nothing is left of it. A machine that this process
	// holds is found too.
	Find(ctx context.Context, id sandbox.ID) (Found, error)
}

// Found is what there is of a machine: one of the two is set.
type Found struct {
	State []byte // it lives: for Recover
	Saved []byte // it is put aside: for Resume
}

// Resizer is a Driver that can change the limits of a machine that runs.
type Resizer interface {
	// Resize applies limits, complete ones, at once. What cannot be changed while
	// the machine runs is Unsupported; limits below what is in use are Exhausted.
	// After an error the limits are those from before.
	Resize(ctx context.Context, m Machine, limits sandbox.Limits) error
}

// Snapshotter is a Driver that writes machines down, so that others are made
// like them.
//
// Folders that it writes and reads are the caller's: the driver keeps nothing of
// them. They hold the secrets that were in the machine's memory.
type Snapshotter interface {
	// Capture writes into dir, an empty folder, all that is needed to make machines
	// like m as it is at one moment: memory and disk, or the disk alone. The machine
	// stands still for that moment only and goes on with every connection. After a
	// nil error dir is complete but not synced: whoever wants it to survive the loss
	// of power syncs it. After any other, what is in dir is the caller's to remove.
	//
	// Once m stands still the context no longer ends the capture. If it fails m
	// runs on, unless the error is of kind Internal: then m may have ended, as Wait
	// tells. No room in dir is Exhausted; a machine that has ended is Unavailable.
	//
	// Layers are cloned where dir and the machine's files lie on one file system
	// that can; elsewhere the parts that hold data are copied.
	Capture(ctx context.Context, m Machine, keep Keep, dir string) error

	// CaptureSaved does the same for a machine that Pause has put aside, without
	// waking it; what is kept is what Pause has kept. The bytes go on to serve.
	CaptureSaved(ctx context.Context, id sandbox.ID, saved []byte, dir string) error

	// Restore makes a new machine from dir. Its id, link, secret, hostname and what
	// the guest derives from them are new; no connection to the one that was
	// captured, nor any of its to the outside, goes on. With KeepDisk the guest
	// starts anew. The spec has the root of the machine that was captured; its
	// limits may differ, but memory or a disk too small for what was captured is
	// Exhausted, and with KeepMemory the sizes of the disk and of tables (processes,
	// open files) stay those that were captured.
	//
	// The folder is only read and may serve many calls at once and in later
	// processes. Its files may be removed once Restore has returned, but never
	// changed: the machine may still have them open. One that does not fit (see
	// Fits) is Unsupported, one that is not whole is Invalid. A failure leaves
	// nothing, as with Create; an id that is in use is Conflict.
	Restore(ctx context.Context, spec Spec, dir string) (Machine, error)

	// Fits returns nil if Restore can use what a folder holds on this host, and
	// otherwise an Unsupported error that says what differs.
	Fits(about About) error
}

// AboutName is the file of a captured folder that holds its About as JSON. It is
// written last: a folder without it is not whole.
const AboutName = "about.json"

// AboutFormat is the format of a captured folder that this build writes.
const AboutFormat = 1

// About says what a captured folder holds.
type About struct {
	Format int            `json:"format"`
	Class  string         `json:"class"`
	Engine string         `json:"engine"`        // as Capabilities.Version
	CPU    []string       `json:"cpu,omitempty"` // features of the processor that programs may have found; with KeepMemory
	Arch   string         `json:"arch"`
	Keep   Keep           `json:"keep"`
	Limits sandbox.Limits `json:"limits"` // of the machine
	Memory int64          `json:"memory"` // bytes that it holds; 0 with KeepDisk
	Disk   int64          `json:"disk"`   // bytes that its layer holds
	Taken  time.Time      `json:"taken"`  // the moment that it shows
}

// Forker is a Driver that makes machines like one that is there, faster than
// Capture and Restore would.
type Forker interface {
	// Fork makes a machine like m, as Restore makes them, for each of specs. The
	// outcomes come in the order of specs; one that fails leaves nothing of itself
	// and takes no other with it. The error is set if m could not be copied: then
	// no machine was made, and m is as Capture leaves it. The end of ctx undoes
	// what is not yet whole.
	Fork(ctx context.Context, m Machine, specs []Spec) (Forks, error)

	// ForkSaved does the same with a machine that Pause has put aside. The caller
	// sees to it that it stays so.
	ForkSaved(ctx context.Context, id sandbox.ID, saved []byte, specs []Spec) (Forks, error)
}

// Forks is what became of a fork.
type Forks struct {
	Each   []Forked
	Pause  time.Duration // how long the machine stood still
	Stages []Stage       // in the order of their beginnings
}

// Forked is one outcome: one of the two is set.
type Forked struct {
	Machine Machine
	Err     error
}

// Stage is one step of a verb, for people who look for where its time goes.
type Stage struct {
	Name  string        `json:"name"`
	Start time.Duration `json:"start"` // after the verb's beginning
	Took  time.Duration `json:"took"`
}

// Ports is a Machine whose ports are reached from outside without its guest. Of
// a Machine that is none the guest connects them.
type Ports interface {
	// DialPort opens a TCP connection to a port of the machine. A server that
	// listens on the machine's loopback alone may be out of its reach: where it
	// finds none, the error has sandbox.ErrNotListening in its chain. The guest's
	// own port is Forbidden; a machine that has ended is Unavailable. The
	// connection has a CloseWrite.
	DialPort(ctx context.Context, port uint16) (net.Conn, error)
}
