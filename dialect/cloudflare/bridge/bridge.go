// Package bridge serves the HTTP API by which programs that run in no Worker use
// Cloudflare Sandbox, unmodified clients of it included.
//
// It translates, and keeps nothing: the id that a client has is the name of a sandbox
// in the account of its key, and a sandbox is made when its id is first used.
package bridge

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// Config is what a Bridge is made of.
type Config struct {
	Engine Engine

	// Enter lets in whoever shows the 40 hex digits of a key: the context names the
	// caller, until leave is called. An unknown key is Unauthorized.
	Enter func(ctx context.Context, digits string) (_ context.Context, leave func(), err error)

	// Inside gives the server that Cloudflare's clients find in a sandbox. Terminals
	// are its WebSockets at /ws/pty.
	Inside func(id string) http.Handler

	Template string                               // of new sandboxes; "" means the one that mounts buckets where there is one, else the server's default
	PortURL  func(id sandbox.ID, port int) string // where anybody reaches a port that is public
	Warm     int                                  // how many sandboxes of a kind run ahead, for the statistics
	Logger   *slog.Logger                         // nil means none
}

// Engine is what the bridge needs of the engine.
type Engine interface {
	Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Sandbox, error)
	Get(ctx context.Context, id string) (sandbox.Sandbox, error)
	List(ctx context.Context, q sandbox.ListQuery) (sandbox.Page, error)
	Remove(ctx context.Context, id string) error
	Awake(ctx context.Context, id string) (sandbox.Sandbox, error)
	Template(ctx context.Context, name string) (sandbox.Template, error)
	Status(ctx context.Context) (sandbox.Status, error)
	EmptyPool(ctx context.Context) error

	Exec(ctx context.Context, id string, cmd sandbox.Command) (sandbox.Events, error)
	OpenSession(ctx context.Context, id string, o sandbox.SessionOptions) (s sandbox.Session, created bool, err error)
	RunInSession(ctx context.Context, id, session string, cmd sandbox.Command) (sandbox.Events, error)
	CloseSession(ctx context.Context, id, session string) error

	ReadFile(ctx context.Context, id, path string, r sandbox.ReadRange) (io.ReadCloser, sandbox.FileInfo, error)
	WriteFile(ctx context.Context, id, path string, o sandbox.WriteOptions, body io.Reader) (sandbox.FileInfo, error)
	Archive(ctx context.Context, id, path string, o sandbox.ArchiveOptions) (io.ReadCloser, error)
	Unpack(ctx context.Context, id, path string, o sandbox.UnpackOptions, body io.Reader) (sandbox.Unpacked, error)

	Share(ctx context.Context, id string, port int, r sandbox.ShareRequest) (sandbox.Share, error)
}

// Prefix is the path under which the bridge is served: it is what clients are given
// as the URL of their Worker, behind the server's.
const Prefix = "/cloudflare"

// Bridge is the handler of all that clients of the bridge send.
type Bridge struct {
	Config
	routes []route
}

// New returns a Bridge.
func New(c Config) *Bridge {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Bridge{Config: c}
	b.routes = b.table()
	return b
}

// Claims reports whether a request is for the bridge.
func (b *Bridge) Claims(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.URL.Path, Prefix)
	return ok && (rest == "/health" || rest == "/v1" || strings.HasPrefix(rest, "/v1/"))
}

// ServeHTTP serves what Claims has claimed.
func (b *Bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &answer{ResponseWriter: w}
	a.Header().Set("Cache-Control", "no-store")
	a.Header().Set("X-Content-Type-Options", "nosniff")
	err := b.serve(a, r, strings.TrimPrefix(r.URL.Path, Prefix))
	switch {
	case err == nil:
	case a.begun:
		panic(http.ErrAbortHandler) // the client must see that the answer is cut
	default:
		b.render(a, r, err)
	}
}

// answer is a ResponseWriter that knows whether it has begun.
type answer struct {
	http.ResponseWriter
	begun bool
}

func (a *answer) WriteHeader(status int) {
	a.begun = true
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
