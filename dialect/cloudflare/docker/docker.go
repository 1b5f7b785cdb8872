// Package docker serves the part of the Docker Engine's API through which workerd
// starts containers: the containers are sandboxes, and the sidecar beside each is
// an object of this package alone.
//
// It translates. What must outlive the server stands in the metadata of the
// sandboxes; the rest can be lost.
package docker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/berth-dev/berth/handover"
	"github.com/berth-dev/berth/sandbox"
)

// Engine is what the dialect needs of the engine.
type Engine interface {
	Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Sandbox, error)
	Get(ctx context.Context, id string) (sandbox.Sandbox, error)
	List(ctx context.Context, q sandbox.ListQuery) (sandbox.Page, error)
	Update(ctx context.Context, id string, u sandbox.Update) (sandbox.Sandbox, error)
	Remove(ctx context.Context, id string) error
	Pause(ctx context.Context, id string) (sandbox.Sandbox, error)
	Stop(ctx context.Context, id string) (sandbox.Sandbox, error)
	Start(ctx context.Context, id string) (sandbox.Sandbox, error)
	FollowChanges(ctx context.Context, q sandbox.ChangeQuery) (sandbox.ChangeStream, error)
	Dial(ctx context.Context, id string, port int) (net.Conn, error)

	Exec(ctx context.Context, id string, cmd sandbox.Command) (sandbox.Events, error)
	StartProcess(ctx context.Context, id string, cmd sandbox.Command) (sandbox.Process, error)
	WaitProcess(ctx context.Context, id, process string) (sandbox.Exit, error)
	Processes(ctx context.Context, id string) ([]sandbox.Process, error)
	Signal(ctx context.Context, id, process, signal string) error
	Input(ctx context.Context, id, process string, r io.Reader) error
	CloseInput(ctx context.Context, id, process string) error
	OpenTerminal(ctx context.Context, id string, req sandbox.TerminalRequest) (t sandbox.Terminal, made bool, err error)
	AttachTerminal(ctx context.Context, id, terminal string, at sandbox.TerminalAttach) (sandbox.TerminalEvents, error)
	TerminalInput(ctx context.Context, id, terminal string, r io.Reader) error
	ResizeTerminal(ctx context.Context, id, terminal string, cols, rows int) error

	Archive(ctx context.Context, id, path string, o sandbox.ArchiveOptions) (io.ReadCloser, error)
	Unpack(ctx context.Context, id, path string, o sandbox.UnpackOptions, body io.Reader) (sandbox.Unpacked, error)
	Stat(ctx context.Context, id, path string, follow bool) (sandbox.FileInfo, error)
	Template(ctx context.Context, name string) (sandbox.Template, error)
	RemoveTemplate(ctx context.Context, name string) error
	BuildTemplate(ctx context.Context, req sandbox.BuildRequest, progress func(sandbox.Progress)) (sandbox.Template, error)
	Snapshot(ctx context.Context, id string, req sandbox.SnapshotRequest) (sandbox.Snapshot, error)
	GetSnapshot(ctx context.Context, id string) (sandbox.Snapshot, error)
	RemoveSnapshot(ctx context.Context, id string) error

	Policy(ctx context.Context, id string) (sandbox.Policy, error)
	SetPolicy(ctx context.Context, id string, p sandbox.Policy) (warnings []string, err error)

	CreateVolume(ctx context.Context, req sandbox.VolumeRequest) (sandbox.Volume, error)
	Volume(ctx context.Context, given string) (sandbox.Volume, error)
	Volumes(ctx context.Context) ([]sandbox.Volume, error)
	RemoveVolume(ctx context.Context, given string) error
}

// Config is what a Dialect is made of.
type Config struct {
	Engine Engine

	// Server answers what is sent to the port of a sandbox on which the vendor's
	// own program listens. nil: there is none, and the port is as any other.
	Server func(id sandbox.ID) http.Handler

	// Egress decides over what the containers send. nil: it goes where the policy
	// of the template lets it.
	Egress *Egress

	// Forget has a container that was stopped begin anew, as the vendor's do.
	// Otherwise it goes on where it was, with its files and processes.
	Forget bool

	// Keep is how long a sandbox waits for the next container of its name, once its
	// container has ended. 0: a week.
	Keep time.Duration

	// Orphan is how long a container is left alone whose maker's process has ended. Then
	// one of a session that is over with it is removed, and any other put aside until
	// somebody comes to it. 0: an hour.
	Orphan time.Duration

	Type   string       // of instance, of containers whose image says no size; "" means the default
	Logger *slog.Logger // nil means none
}

// Dialect is the Docker Engine that workerd is told of.
type Dialect struct {
	engine Engine
	server func(id sandbox.ID) http.Handler
	egress *Egress
	forget bool
	keep   time.Duration
	orphan time.Duration
	kind   string
	log    *slog.Logger

	handler http.Handler
	inside  *http.Server // serves the vendor's own program
	conns   *handover.Listener

	ctx   context.Context // ends with Close; it names the operator
	end   context.CancelFunc
	tasks sync.WaitGroup

	names locks // by container: who changes it
	news  board // tells when something may have become of a container

	mu       sync.Mutex
	closed   bool
	sidecars map[string]*sidecar // by name
	execs    map[string]*execution
	watchers map[sandbox.ID]*watcher
	insides  map[sandbox.ID]map[*inside]struct{} // open connections to the vendor's program
	known    map[sandbox.ID]string               // the containers of sandboxes that this server has met
	ending   map[string]bool                     // containers that have exited, and whose sandboxes do not rest yet
}

// New returns a Dialect. It serves nothing before Open.
func New(c Config) *Dialect {
	d := &Dialect{
		engine: c.Engine, server: c.Server, egress: c.Egress, forget: c.Forget, keep: c.Keep, orphan: c.Orphan, kind: c.Type, log: c.Logger, conns: handover.New("inside"),
		sidecars: map[string]*sidecar{}, execs: map[string]*execution{}, watchers: map[sandbox.ID]*watcher{}, insides: map[sandbox.ID]map[*inside]struct{}{}, known: map[sandbox.ID]string{}, ending: map[string]bool{},
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.keep <= 0 {
		d.keep = defaultKeep
	}
	if d.orphan <= 0 {
		d.orphan = defaultOrphan
	}
	d.ctx, d.end = context.WithCancel(sandbox.WithCaller(context.Background(), sandbox.Operator()))
	d.handler = d.routes()
	d.inside = &http.Server{
		Handler: http.HandlerFunc(d.serveInside), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return d.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, insideKey{}, c) },
		ErrorLog:    slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	return d
}

// Open takes up the containers that an earlier server left: their sidecars listen
// again where they did, and what ends them is watched.
func (d *Dialect) Open(ctx context.Context) error {
	d.task(func() {
		if err := d.inside.Serve(d.conns); err != nil && !errors.Is(err, http.ErrServerClosed) {
			d.log.Error("serve inside", "error", err)
		}
	})
	d.task(d.follow)
	d.task(d.sweep)
	return d.takeUp(sandbox.WithCaller(ctx, sandbox.Operator()))
}

// Serve serves the API on a listener until Close. Whoever can connect to it may do
// all that the operator may.
func (d *Dialect) Serve(l net.Listener) error {
	s := &http.Server{
		Handler: d.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return d.ctx }, ConnContext: withOwner,
		ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	defer context.AfterFunc(d.ctx, func() { s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return &sandbox.Error{Op: "serve containers", Kind: sandbox.Internal, Err: err}
	}
	return nil
}

// Close ends what is served. The containers live on.
func (d *Dialect) Close() error {
	d.mu.Lock()
	d.closed = true
	all := d.sidecars
	d.sidecars = map[string]*sidecar{}
	d.mu.Unlock()
	d.end()
	for _, s := range all {
		s.close()
	}
	err := d.inside.Close()
	d.conns.Close()
	d.tasks.Wait()
	return err
}

// task runs work that Close waits for.
func (d *Dialect) task(work func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.tasks.Add(1)
	go func() {
		defer d.tasks.Done()
		work()
	}()
	return true
}
