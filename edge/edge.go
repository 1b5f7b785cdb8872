// Package edge lets people and programs outside reach the ports of sandboxes:
// it is a proxy from a host name to a server inside.
//
// "<port>-<id>.<domain>" is a port of a sandbox, and so is a domain that its owner
// has proved to have. A port is private until its owner says otherwise: who shows
// no pass gets the page that he gets for a sandbox that is not there. All that is
// addressed otherwise is handed on.
package edge

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Engine is what the edge needs of the engine.
type Engine interface {
	// Admit says how a request that shows these passes reaches a port. To who may
	// not come it is NotFound, whether there is such a port or not.
	Admit(ctx context.Context, id sandbox.ID, port int, shown []sandbox.Pass) (sandbox.Admission, error)

	// WatchShare has changed called, which must not wait, after each change of who may
	// reach a port, until stop is called.
	WatchShare(id sandbox.ID, port int, changed func()) (stop func())

	// Connect wakes a sandbox and counts an activity until release is called.
	Connect(ctx context.Context, id string) (release func(), err error)

	// Reach opens a connection to a port.
	Reach(ctx context.Context, id string, port int) (net.Conn, error)

	// DomainTarget is the port that a domain stands for, or NotFound.
	DomainTarget(ctx context.Context, domain string) (sandbox.ID, int, error)
}

// Config is what an Edge is made of.
type Config struct {
	Engine Engine
	Domain string       // that the hosts of previews are beneath
	Next   http.Handler // of every other host
	Logger *slog.Logger // nil means none

	Requests int           // at once, to one sandbox; 0 means 512
	Idle     time.Duration // of a connection, after which it is cut; 0 means an hour
}

const (
	defaultRequests = 512
	defaultIdle     = time.Hour
)

// Edge is the handler of a whole listener.
type Edge struct {
	engine Engine
	domain string
	next   http.Handler
	log    *slog.Logger
	slots  slots
	idle   time.Duration

	plain, grpc *http.Transport
	proxy       *httputil.ReverseProxy

	ctx context.Context // ends with Close
	end context.CancelFunc
}

// New returns an Edge.
func New(c Config) *Edge {
	e := &Edge{engine: c.Engine, domain: strings.ToLower(strings.TrimSuffix(c.Domain, ".")), next: c.Next, log: c.Logger, idle: c.Idle}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.idle == 0 {
		e.idle = defaultIdle
	}
	if e.slots.most = c.Requests; e.slots.most == 0 {
		e.slots.most = defaultRequests
	}
	e.plain, e.grpc = e.transport(), e.transport()
	e.plain.Protocols.SetHTTP1(true)
	e.grpc.Protocols.SetUnencryptedHTTP2(true)
	e.proxy = e.newProxy()
	e.ctx, e.end = context.WithCancel(context.Background())
	return e
}

// Close ends what would never end by itself, WebSockets and streams of events, and
// lets go of idle connections. Other requests go on.
func (e *Edge) Close() {
	e.end()
	e.plain.CloseIdleConnections()
	e.grpc.CloseIdleConnections()
}

// ServeHTTP serves one request.
func (e *Edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := bareHost(r.Host)
	if id, port, ok := parseHost(host, e.domain); ok {
		e.visit(w, r, id, port)
		return
	}
	if !e.mayBeDomain(host) {
		e.next.ServeHTTP(w, r)
		return
	}
	id, port, err := e.engine.DomainTarget(r.Context(), host)
	switch {
	case err == nil:
		e.visit(w, r, id, port)
	case sandbox.KindOf(err) == sandbox.NotFound:
		e.next.ServeHTTP(w, r)
	default:
		e.refuse(w, r, err)
	}
}

// visit takes a request to a port, if it may.
func (e *Edge) visit(w http.ResponseWriter, r *http.Request, id sandbox.ID, port int) {
	if r.Method == http.MethodConnect {
		e.refuse(w, r, &sandbox.Error{Kind: sandbox.Invalid, Err: errConnect, Hint: "berth forward carries other protocols"})
		return
	}
	// Whoever shows a pass has what the engine asks a caller for.
	ctx, cancel := context.WithCancel(sandbox.WithCaller(r.Context(), sandbox.Operator()))
	defer cancel()
	passes := shown(r)
	defer e.engine.WatchShare(id, port, func() {
		if _, err := e.engine.Admit(ctx, id, port, passes); err != nil {
			cancel() // who may come no more does not stay either
		}
	})()
	entry, err := e.engine.Admit(ctx, id, port, passes)
	if err != nil {
		e.refuse(w, r, err)
		return
	}
	if entry.Cookie != "" {
		exchange(w, r, entry)
		return
	}
	give, ok := e.slots.take(id)
	if !ok {
		e.refuse(w, r, errCrowded)
		return
	}
	defer give()
	release, err := e.engine.Connect(ctx, string(id))
	if err != nil {
		e.refuse(w, r, err)
		return
	}
	defer release()
	v := &visitor{Admission: entry, closing: e.ctx, cancel: cancel}
	defer v.leave()
	if r.Header.Get("Upgrade") != "" {
		v.endless()
	}
	// HTTP/1.1 servers of Go otherwise read all that is sent before they answer.
	_ = http.NewResponseController(w).EnableFullDuplex()
	e.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, visitorKey{}, v)))
}

// visitor is one request under way.
type visitor struct {
	sandbox.Admission
	closing context.Context
	cancel  context.CancelFunc
	detach  func() bool
}

type visitorKey struct{}

// endless says that the request would not end by itself: it ends with the edge.
func (v *visitor) endless() {
	if v.detach == nil {
		v.detach = context.AfterFunc(v.closing, v.cancel)
	}
}

func (v *visitor) leave() {
	if v.detach != nil {
		v.detach()
	}
}
