// Package cloudflare serves, for every sandbox, what clients of Cloudflare Sandbox
// find on port 3000 of a container: HTTP with server-sent events, two protocols over
// WebSockets, and terminals.
//
// It translates. Nothing of it runs inside a sandbox: each operation is a verb of the
// engine, or a few. What must outlive a restart of the server is kept by the sandbox:
// the names of processes and sessions there are made of the ids that clients gave.
package cloudflare

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/berth-dev/berth/sandbox"
)

// Config is what a Server is made of.
type Config struct {
	Engine Engine

	// Enter lets in whoever shows the 40 hex digits of a key: the context names the
	// caller, until leave is called. An unknown key is Unauthorized. Without it only
	// Sandbox serves.
	Enter func(ctx context.Context, digits string) (_ context.Context, leave func(), err error)

	Logger *slog.Logger // nil means none
}

// Engine is what the dialect needs of the engine.
type Engine interface {
	Get(ctx context.Context, id string) (sandbox.Sandbox, error)
	Template(ctx context.Context, name string) (sandbox.Template, error)
	Dial(ctx context.Context, id string, port int) (net.Conn, error)

	Exec(ctx context.Context, id string, cmd sandbox.Command) (sandbox.Events, error)
	Attach(ctx context.Context, id, process string, from sandbox.Offsets) (sandbox.Events, error)
	Processes(ctx context.Context, id string) ([]sandbox.Process, error)
	Signal(ctx context.Context, id, process, signal string) error

	OpenSession(ctx context.Context, id string, o sandbox.SessionOptions) (s sandbox.Session, created bool, err error)
	RunInSession(ctx context.Context, id, session string, cmd sandbox.Command) (sandbox.Events, error)
	Sessions(ctx context.Context, id string) ([]sandbox.Session, error)
	CloseSession(ctx context.Context, id, session string) error

	OpenTerminal(ctx context.Context, id string, req sandbox.TerminalRequest) (t sandbox.Terminal, made bool, err error)
	AttachTerminal(ctx context.Context, id, terminal string, at sandbox.TerminalAttach) (sandbox.TerminalEvents, error)
	TerminalInput(ctx context.Context, id, terminal string, r io.Reader) error
	Terminals(ctx context.Context, id string) ([]sandbox.Terminal, error)
	ResizeTerminal(ctx context.Context, id, terminal string, cols, rows int) error
	CloseTerminal(ctx context.Context, id, terminal string) error

	Stat(ctx context.Context, id, path string, follow bool) (sandbox.FileInfo, error)
	ListDir(ctx context.Context, id, path string, depth, limit int, after string) ([]sandbox.FileInfo, bool, error)
	MakeDir(ctx context.Context, id, path string, mode uint32, user string, parents bool) (sandbox.FileInfo, error)
	Move(ctx context.Context, id, from, to string, replace bool) error
	RemoveFile(ctx context.Context, id, path string, recursive bool) error
	ReadFile(ctx context.Context, id, path string, r sandbox.ReadRange) (io.ReadCloser, sandbox.FileInfo, error)
	WriteFile(ctx context.Context, id, path string, o sandbox.WriteOptions, body io.Reader) (sandbox.FileInfo, error)
	Watch(ctx context.Context, id string, r sandbox.WatchRequest) (sandbox.Watch, error)
	Archive(ctx context.Context, id, path string, o sandbox.ArchiveOptions) (io.ReadCloser, error)
	Unpack(ctx context.Context, id, path string, o sandbox.UnpackOptions, body io.Reader) (sandbox.Unpacked, error)

	CreateCodeContext(ctx context.Context, id string, o sandbox.CodeOptions) (sandbox.CodeContext, error)
	CodeContexts(ctx context.Context, id string) ([]sandbox.CodeContext, error)
	RemoveCodeContext(ctx context.Context, id, context string) error
	RunCode(ctx context.Context, id string, r sandbox.CodeRun) (sandbox.CodeEvents, error)
}

// Prefix is the path under which sandboxes are served on the main listener, as
// Prefix/{id}/api/..., to whoever shows a key.
const Prefix = "/cloudflare/sandboxes"

// Server serves the in-sandbox server of every sandbox.
type Server struct {
	engine Engine
	enter  func(ctx context.Context, digits string) (_ context.Context, leave func(), err error)
	log    *slog.Logger
	routes *http.ServeMux
	open   http.Handler // of Prefix
	names  names
	limits limits

	mu     sync.Mutex
	closed bool
	cut    map[*func()]bool // ends what would not end by itself
}

// New returns a Server.
func New(c Config) *Server {
	s := &Server{engine: c.Engine, enter: c.Enter, log: c.Logger, cut: map[*func()]bool{}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.routes = s.mux()
	mux := http.NewServeMux()
	mux.HandleFunc(Prefix+"/{id}", s.serveKeyed)
	mux.HandleFunc(Prefix+"/{id}/{rest...}", s.serveKeyed)
	s.open = mux
	return s
}

// boxKey is where a request's context has its sandbox.
type boxKey struct{}

func boxOf(ctx context.Context) *box { return ctx.Value(boxKey{}).(*box) }

// Sandbox returns the server of one sandbox, by id or name, at the root of all paths.
// It checks no key: the context of its requests names the caller
// (sandbox.WithCaller), and who may send them is its own caller's to decide.
func (s *Server) Sandbox(id string) http.Handler {
	b := &box{Server: s, id: id}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, b) })
}

// serve serves a request for a sandbox.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, b *box) {
	if cors(w, r) {
		return
	}
	s.routes.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), boxKey{}, b)))
}

// cors lets pages of any site use the server: what counts is the key. It reports
// whether that was all.
func cors(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE, OPTIONS")
	h.Set("Access-Control-Allow-Headers", "*, Authorization, Content-Type")
	if r.Method != http.MethodOptions {
		return false
	}
	w.WriteHeader(http.StatusOK)
	return true
}

// Claims reports whether a request is for sandboxes by their ids.
func (s *Server) Claims(r *http.Request) bool {
	return s.enter != nil && strings.HasPrefix(r.URL.Path, Prefix+"/")
}

// ServeHTTP serves what Claims has claimed, to whoever shows a key.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.open.ServeHTTP(w, r) }

func (s *Server) serveKeyed(w http.ResponseWriter, r *http.Request) {
	if cors(w, r) {
		return
	}
	ctx, leave, err := s.byKey(r)
	if err != nil {
		s.render(w, err)
		return
	}
	defer leave()
	id := r.PathValue("id")
	if _, err := s.engine.Get(ctx, id); err != nil {
		s.render(w, err)
		return
	}
	b := &box{Server: s, id: id}
	http.StripPrefix(Prefix+"/"+id, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "" {
			r.URL.Path = "/"
		}
		s.serve(w, r, b)
	})).ServeHTTP(w, r.WithContext(ctx))
}

// byKey finds on whose behalf a request is made. WebSockets of browsers have no
// headers: they show the key in the query.
func (s *Server) byKey(r *http.Request) (ctx context.Context, leave func(), err error) {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		key = r.URL.Query().Get("token")
	}
	if ctx, leave, err = s.enter(r.Context(), strings.TrimPrefix(strings.TrimSpace(key), "berth_")); err != nil {
		return nil, nil, err
	}
	if c, err := sandbox.CallerOf(ctx); err != nil || !c.May(sandbox.ScopeExec) {
		leave()
		return nil, nil, &sandbox.Error{Op: "check key", Kind: sandbox.Forbidden, Err: errScope, Hint: "take a key with the scope exec"}
	}
	return ctx, leave, nil
}

// untilClose returns a context that ends with the server too.
func (s *Server) untilClose(ctx context.Context) (_ context.Context, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosing
	}
	ctx, cancel := context.WithCancelCause(ctx)
	end := func() { cancel(errClosing) }
	s.cut[&end] = true
	return ctx, func() {
		s.mu.Lock()
		delete(s.cut, &end)
		s.mu.Unlock()
		cancel(nil)
	}, nil
}

// endless serves what would not end by itself.
func (s *Server) endless(serve func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, done, err := s.untilClose(r.Context())
		if err != nil {
			return err
		}
		defer done()
		return serve(w, r.WithContext(ctx))
	}
}

// Close ends what would not end by itself: WebSockets, and streams of what is yet to
// come. Later ones are Unavailable.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for end := range s.cut {
		(*end)()
	}
}
