// Package api serves the native API: the engine's verbs as HTTP under /v1.
//
// A handler reads a request, calls one verb and writes its result, or returns
// the error, which is rendered in one place. It stores nothing.
package api

import (
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
)

// Config is what an API is made of.
type Config struct {
	Engine   Engine
	AdminKey string       // the key that may do everything; empty lets nobody in
	Hosts    []string     // names, with their subdomains, under which a loopback listener may be addressed beside localhost
	Logger   *slog.Logger // nil means none

	Accounts Accounts                           // nil: the admin's key is the only one
	Used     func(account string) sandbox.Quota // what an account uses now; nil: it is not told
	ClaimURL string                             // where the server is reached from outside; "": as the client addressed it

	// SignSecret signs URLs of files: MinSignSecret random bytes or more, kept
	// from start to start. Another secret ends every URL that was signed before;
	// without one none are signed.
	SignSecret []byte

	// Previews gives the address of a port's preview; nil: there are none.
	Previews func(id sandbox.ID, port int) string

	LowDisk       func() bool  // for /healthz; nil: nobody looks
	Metrics       http.Handler // of /metrics; nil: there are none
	PublicMetrics bool         // they need no key
	Counter       Counter      // of requests; nil means nobody
}

// Engine is what the API serves: the engine, or a client of another server.
type Engine interface {
	Sandboxes
	Lifecycle
	Snapshots
	Backups
	Code
	Journal
	Policies
	Secrets
	Webhooks
	Volumes
	Metering
	Upkeep
	Processes
	Sessions
	Terminals
	Files
	Ports
	Domains
	Templates
	Status(ctx context.Context) (sandbox.Status, error)
}

// Sandboxes are the verbs on whole sandboxes.
type Sandboxes interface {
	Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Sandbox, error)
	Get(ctx context.Context, id string) (sandbox.Sandbox, error)
	List(ctx context.Context, q sandbox.ListQuery) (sandbox.Page, error)
	Remove(ctx context.Context, id string) error
	Usage(ctx context.Context, id string) (sandbox.Usage, error)
}

// Processes are the verbs on what runs in a sandbox.
type Processes interface {
	Exec(ctx context.Context, id string, cmd sandbox.Command) (sandbox.Events, error)
	Attach(ctx context.Context, id, process string, from sandbox.Offsets) (sandbox.Events, error)
	Input(ctx context.Context, id, process string, r io.Reader) error
	CloseInput(ctx context.Context, id, process string) error
	Signal(ctx context.Context, id, process, signal string) error
	Processes(ctx context.Context, id string) ([]sandbox.Process, error)
	WaitProcess(ctx context.Context, id, process string) (sandbox.Exit, error)

	StartProcess(ctx context.Context, id string, cmd sandbox.Command) (sandbox.Process, error)
	RemoveProcess(ctx context.Context, id, process string) (sandbox.Exit, error)
	WaitLine(ctx context.Context, id, process string, w sandbox.LineWait) (sandbox.Line, error)
	WaitPort(ctx context.Context, id, process string, w sandbox.PortWait) (sandbox.PortAnswer, error)
}

// Sessions are the verbs on shells that remember.
type Sessions interface {
	OpenSession(ctx context.Context, id string, o sandbox.SessionOptions) (s sandbox.Session, created bool, err error)
	RunInSession(ctx context.Context, id, session string, cmd sandbox.Command) (sandbox.Events, error)
	Sessions(ctx context.Context, id string) ([]sandbox.Session, error)
	CancelSession(ctx context.Context, id, session, process string) (int, error)
	CloseSession(ctx context.Context, id, session string) error
}

// Terminals are the verbs on the terminals of a sandbox.
type Terminals interface {
	OpenTerminal(ctx context.Context, id string, req sandbox.TerminalRequest) (t sandbox.Terminal, made bool, err error)
	AttachTerminal(ctx context.Context, id, terminal string, at sandbox.TerminalAttach) (sandbox.TerminalEvents, error)
	TerminalInput(ctx context.Context, id, terminal string, r io.Reader) error
	ResizeTerminal(ctx context.Context, id, terminal string, cols, rows int) error
	SignalTerminal(ctx context.Context, id, terminal, signal string) error
	CloseTerminal(ctx context.Context, id, terminal string) error
	Terminals(ctx context.Context, id string) ([]sandbox.Terminal, error)
}

// Files are the verbs on a sandbox's file system.
type Files interface {
	Stat(ctx context.Context, id, path string, follow bool) (sandbox.FileInfo, error)
	ListDir(ctx context.Context, id, path string, depth, limit int, after string) ([]sandbox.FileInfo, bool, error)
	MakeDir(ctx context.Context, id, path string, mode uint32, user string, parents bool) (sandbox.FileInfo, error)
	Move(ctx context.Context, id, from, to string, replace bool) error
	RemoveFile(ctx context.Context, id, path string, recursive bool) error
	ReadFile(ctx context.Context, id, path string, r sandbox.ReadRange) (io.ReadCloser, sandbox.FileInfo, error)
	WriteFile(ctx context.Context, id, path string, o sandbox.WriteOptions, body io.Reader) (sandbox.FileInfo, error)

	FindFiles(ctx context.Context, id string, q sandbox.FindQuery) ([]sandbox.FileInfo, bool, error)
	ChangeFile(ctx context.Context, id, path string, c sandbox.FileChange) (sandbox.FileInfo, error)
	CopyFile(ctx context.Context, id, from, to string, o sandbox.CopyOptions) (sandbox.FileInfo, error)
	LinkFile(ctx context.Context, id, path, target string, replace bool) (sandbox.FileInfo, error)
	HashFile(ctx context.Context, id, path string) (sandbox.FileHash, error)
	FileAttributes(ctx context.Context, id, path string) (sandbox.Attributes, error)
	SetFileAttributes(ctx context.Context, id, path string, c sandbox.AttributeChange) (sandbox.Attributes, error)
	Archive(ctx context.Context, id, path string, o sandbox.ArchiveOptions) (io.ReadCloser, error)
	Unpack(ctx context.Context, id, path string, o sandbox.UnpackOptions, body io.Reader) (sandbox.Unpacked, error)
	Watch(ctx context.Context, id string, r sandbox.WatchRequest) (sandbox.Watch, error)
}

// Templates are the verbs on what sandboxes start from.
type Templates interface {
	BuildTemplate(ctx context.Context, req sandbox.BuildRequest, progress func(sandbox.Progress)) (sandbox.Template, error)
	Templates(ctx context.Context) ([]sandbox.Template, error)
	Template(ctx context.Context, name string) (sandbox.Template, error)
	RemoveTemplate(ctx context.Context, name string) error
	PutContext(ctx context.Context, name string, body io.Reader) (digest string, size int64, err error)
	HasContext(ctx context.Context, name string) (bool, error)
	StartBuild(ctx context.Context, id string, req sandbox.BuildRequest) (sandbox.Build, error)
	GetBuild(ctx context.Context, id string, after int) (sandbox.Build, error)
	CancelBuild(ctx context.Context, id string) error
}

// API is the handler of /v1 and /healthz.
type API struct {
	engine Engine
	key    *[sha256.Size]byte // of the admin key; nil lets nobody in
	hosts  []string

	previews func(id sandbox.ID, port int) string
	log      *slog.Logger
	mux      *http.ServeMux
	signer   *signer

	lowDisk  func() bool
	measures http.Handler
	public   bool // the measures
	counter  Counter

	accounts Accounts
	used     func(account string) sandbox.Quota
	claimURL string

	ctx context.Context // ends with Close
	end context.CancelFunc
}

// New returns an API.
func New(c Config) *API {
	a := &API{engine: c.Engine, previews: c.Previews, hosts: c.Hosts, log: c.Logger, mux: http.NewServeMux()}
	if c.AdminKey != "" {
		sum := sha256.Sum256([]byte(c.AdminKey))
		a.key = &sum
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.accounts, a.used, a.claimURL = c.Accounts, c.Used, c.ClaimURL
	a.signer = newSigner(c.SignSecret)
	if a.lowDisk = c.LowDisk; a.lowDisk == nil {
		a.lowDisk = func() bool { return false }
	}
	if a.measures, a.public, a.counter = c.Metrics, c.PublicMetrics, c.Counter; a.counter == nil {
		a.counter = noCounter{}
	}
	a.ctx, a.end = context.WithCancel(context.Background())
	for _, r := range a.routes() {
		a.mux.Handle(r.method+" "+r.path, a.guarded(r))
	}
	a.mux.Handle("/", a.guarded(route{open: true, handle: a.noRoute}))
	return a
}

// ServeHTTP serves one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// Close ends the streams, so that a server can shut down without cutting other
// requests: pass it to http.Server.RegisterOnShutdown.
func (a *API) Close() { a.end() }
