// Package engine holds what Berth does to sandboxes: one verb, one file.
//
// It knows contracts only. Every verb of several steps undoes itself when one of
// them fails, and every change of state passes through one function.
package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/keylock"
	"github.com/berth-dev/berth/pass"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// Config is what an Engine is made of. Its parts outlive the Engine: whoever
// made them closes them, after Close.
type Config struct {
	Drivers   []driver.Driver // one a class; the first is the default
	Records   record.Store
	Templates Templates
	Clock     func() time.Time // nil means time.Now
	Logger    *slog.Logger     // nil means none
	Version   string           // of the server, for Status
	Creates   int              // how many are made at once; 0 means 4 a core, at least 2
	Queue     int              // how many more may wait for that; 0 means 1024
	Forks     int              // how many children one fork may make; 0 means sandbox.MaxForks

	Wake   time.Duration          // how long a call waits for its sandbox to wake; 0 means 60 s
	Types  []sandbox.InstanceType // beside sandbox.InstanceTypes, or in their place
	Boot   string                 // names this boot of the host; "": a restart of it is not noticed
	Events int                    // how many entries the journal keeps; 0 means 10,000
	Hooks  *http.Client           // sends to webhooks; nil means one of its own

	// SignSecret signs the tokens that open ports: pass.MinSecret random bytes or
	// more. Another one ends every token; without one none are given out.
	SignSecret []byte

	Domain string // that previews are beneath: nobody claims a name in it
	Proofs prover // of domains; nil: none can be proved

	// Gateway holds sandboxes to their policies; without one, policies are refused.
	Gateway gateway
	Audit   auditLog // nil: none is kept

	// Credentials and Vault serve what policies inject; without them, such
	// policies are refused. Both are given or neither.
	Credentials credentials
	Vault       vault
	Quotas      Quotas // nil: accounts have none

	Meter    Meter      // nil: nothing is measured
	Egress   Egress     // nil: nor is what leaves the sandboxes
	Room     RoomConfig // what must stay free of the disk
	Observer Observer   // hears how long verbs take; nil means nobody
	Pool     PoolConfig // machines that run ahead of their creates
	Contexts blob.Store // what template builds copy from; nil: nothing is taken
	Archive  Archive    // nil: there are no snapshots or backups
	Volumes  Volumes    // nil: there are none
}

// Templates keeps the root file systems that sandboxes start from.
type Templates interface {
	Build(ctx context.Context, req sandbox.BuildRequest, progress func(sandbox.Progress)) (sandbox.Template, error)
	Get(ctx context.Context, name string) (sandbox.Template, error) // by name or digest
	List(ctx context.Context) ([]sandbox.Template, error)
	Remove(ctx context.Context, name string) error
	RootPath(t sandbox.Template) string

	// Import makes the root image of a source, or returns the one that is there; its
	// registry is shown the login if that is not nil and its own.
	// Pack makes one of a tar stream, and Made finds one, by a key that names all
	// that went into it. These have no name until Assign gives them one.
	Import(ctx context.Context, from string, login *sandbox.Login, force bool, progress func(sandbox.Progress)) (sandbox.Template, error)
	Pack(ctx context.Context, t sandbox.Template, key string, stream io.Reader, progress func(sandbox.Progress)) (sandbox.Template, error)
	Made(ctx context.Context, key string) (t sandbox.Template, ok bool, err error)
	Assign(ctx context.Context, t sandbox.Template) error

	// Prune removes the roots that have no name and that inUse does not claim.
	Prune(ctx context.Context, inUse func(digest string) bool) (removed []string, err error)
}

// Bounds on time that no caller sets.
const (
	undoTime = time.Minute // to take back what was half made
	stopTime = time.Minute // to end a machine
)

// Engine makes sandboxes and works in them. All methods may be called at once
// from many goroutines; Open comes first.
type Engine struct {
	drivers     map[string]driver.Driver
	classes     []string // in the order given
	records     record.Store
	templates   Templates
	gateway     gateway
	audit       auditLog
	credentials credentials
	vault       vault
	now         func() time.Time
	log         *slog.Logger
	version     string
	started     time.Time

	sandboxes  keylock.Locks // by id: who changes a sandbox's state holds its lock
	names      keylock.Locks // by template: who starts from it or removes it
	taken      keylock.Locks // by sandbox name: who gets or creates it
	slots      *slots
	forks      int // at most, of one fork
	probes     probes
	types      []sandbox.InstanceType
	meter      Meter
	egress     Egress
	observer   Observer
	room       *rooms
	builds     sync.RWMutex // held for reading by each build of a template
	naming     sync.Mutex   // of templates, by which what one has started gets more names
	contexts   blob.Store
	background *builds
	journal    journal
	wakes      wakes
	passes     *pass.Signer
	shareWatch shareWatch
	domain     string
	prover     prover
	timers     *timers
	hooks      *hooks
	quotas     Quotas
	admitting  keylock.Locks // by account: who claims something of its quota
	volumes    Volumes
	sharing    keylock.Locks // by account: who makes, removes or begins to use a volume
	ledger     ledger
	pool       *pool
	archive    Archive
	shots      keylock.Locks // by a snapshot's key: who removes it, or makes a sandbox wait for it
	garbage    *garbage
	keeping    *slots // of what is saved to the archive at once
	boot       string
	rebooted   bool         // set by Open, before anything reads it
	checking   sync.Map     // ids of those whose checkpoint is being taken
	fallen     []sandbox.ID // the same: those that lost their machines and have checkpoints

	ctx   context.Context // ends with Close
	end   context.CancelCauseFunc
	tasks sync.WaitGroup // watchers, and verbs that must not be cut in half

	mu       sync.Mutex
	closed   bool
	live     map[sandbox.ID]*live
	creating map[sandbox.ID]context.CancelCauseFunc
}

// New returns an Engine. It touches nothing before Open.
func New(c Config) (*Engine, error) {
	if len(c.Drivers) == 0 || c.Records == nil || c.Templates == nil {
		return nil, sandbox.Errorf("make engine", sandbox.Invalid, "drivers, records and templates are needed")
	}
	e := &Engine{
		drivers: map[string]driver.Driver{}, records: c.Records, templates: c.Templates, gateway: c.Gateway, audit: c.Audit,
		credentials: c.Credentials, vault: c.Vault,
		now: c.Clock, log: c.Logger, version: c.Version,
		live: map[sandbox.ID]*live{}, creating: map[sandbox.ID]context.CancelCauseFunc{},
	}
	for _, d := range c.Drivers {
		if e.drivers[d.Class()] != nil {
			return nil, sandbox.Errorf("make engine", sandbox.Invalid, "two drivers of class %q", d.Class())
		}
		e.drivers[d.Class()] = d
		e.classes = append(e.classes, d.Class())
	}
	if e.now == nil {
		e.now = time.Now
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if c.Creates == 0 {
		c.Creates = max(2, 4*runtime.NumCPU())
	}
	if c.Queue == 0 {
		c.Queue = 1024
	}
	if c.Forks == 0 {
		c.Forks = sandbox.MaxForks
	}
	if c.Wake == 0 {
		c.Wake = defaultWake
	}
	if c.Events == 0 {
		c.Events = defaultRetention
	}
	if c.Creates < 0 || c.Queue < 0 || c.Forks < 0 || c.Wake < 0 || c.Events < 0 {
		return nil, sandbox.Errorf("make engine", sandbox.Invalid, "creates is %d, queue %d, wake %v, events %d", c.Creates, c.Queue, c.Wake, c.Events)
	}
	e.types = append(sandbox.InstanceTypes(), c.Types...)
	e.boot, e.quotas = c.Boot, c.Quotas
	e.journal = journal{keep: int64(c.Events), next: 1, pending: map[int64]bool{}, grown: make(chan struct{})}
	e.passes = pass.New(c.SignSecret, e.now)
	e.domain, e.prover = c.Domain, c.Proofs
	e.wakes = wakes{most: c.Wake, all: map[wakeKey]*wake{}}
	e.timers = newTimers(e.now)
	if e.meter, e.egress = c.Meter, c.Egress; e.meter == nil {
		e.meter = noMeter{}
	}
	e.room = newRooms(c.Room, e.now)
	if e.observer = c.Observer; e.observer == nil {
		e.observer = noObserver{}
	}
	e.hooks = newHooks(c.Hooks)
	e.pool = newPool(c.Pool)
	e.archive, e.garbage = c.Archive, newGarbage()
	e.volumes = c.Volumes
	e.keeping = newSlots(keepsAtOnce, keepsWaiting)
	e.contexts, e.background = c.Contexts, newBuilds()
	e.slots = newSlots(c.Creates, c.Queue)
	e.forks = c.Forks
	e.probes.turn = make(chan struct{}, 1)
	e.started = e.now().UTC()
	e.ctx, e.end = context.WithCancelCause(context.Background())
	return e, nil
}

// errClosing is the cause of a context that ended because of Close.
var errClosing = &sandbox.Error{Kind: sandbox.Unavailable, Err: errors.New("the server is shutting down")}

// Close ends the creates under way, waits until nothing runs half-way, and lets
// go of every machine without ending it. Later verbs are Unavailable.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.end(errClosing)
	e.tasks.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for id, l := range e.live {
		errs = append(errs, l.guest.Close())
		delete(e.live, id)
	}
	return errors.Join(errs...)
}

// task counts a verb that Close waits for. done is to be called at its end.
func (e *Engine) task() (done func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errClosing
	}
	e.tasks.Add(1)
	return e.tasks.Done, nil
}

// bounded returns a context for work that goes on when ctx ends, but not for
// longer than d.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// fail puts the verb and the sandbox in front of an error.
func fail(op string, id sandbox.ID, err error) error {
	if err == nil {
		return nil
	}
	return &sandbox.Error{Op: op, ID: id, Err: err}
}
