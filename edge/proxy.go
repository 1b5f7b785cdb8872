package edge

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

const (
	idleKept      = 16               // connections to one port that wait for the next request
	idleKeptAll   = 1024             // to all of them
	idleKeptFor   = 30 * time.Second // then they are closed
	maxHeader     = 256 << 10        // bytes of the header of an answer
	copyBuffer    = 32 << 10         // bytes
	continueAfter = time.Second      // a body is sent although nobody said "continue"
)

// transport makes connections to ports. There is no bound on the time to answer:
// a connection is cut when nothing has passed on it for Config.Idle.
func (e *Edge) transport() *http.Transport {
	return &http.Transport{
		Protocols:              new(http.Protocols),
		DialContext:            e.dial,
		DisableCompression:     true,
		MaxIdleConns:           idleKeptAll,
		MaxIdleConnsPerHost:    idleKept,
		IdleConnTimeout:        idleKeptFor,
		MaxResponseHeaderBytes: maxHeader,
		ExpectContinueTimeout:  continueAfter,
	}
}

// dial opens a connection to "<id>:<port>".
func (e *Edge) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	c, err := e.engine.Reach(ctx, host, port)
	if err != nil {
		return nil, err
	}
	return watchIdle(c, e.idle), nil
}

func (e *Edge) newProxy() *httputil.ReverseProxy {
	buffers := &pool{}
	buffers.New = func() any { return new([copyBuffer]byte) }
	return &httputil.ReverseProxy{
		Rewrite:        e.rewrite,
		Transport:      e,
		FlushInterval:  -1, // at once
		ErrorLog:       log.New(io.Discard, "", 0),
		BufferPool:     buffers,
		ModifyResponse: modify,
		ErrorHandler:   e.broken,
	}
}

// RoundTrip speaks HTTP/2 where gRPC does, and HTTP/1.1 otherwise.
func (e *Edge) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		return e.grpc.RoundTrip(r)
	}
	return e.plain.RoundTrip(r)
}

func visitorOf(ctx context.Context) *visitor { return ctx.Value(visitorKey{}).(*visitor) }

// rewrite makes the request that the server inside gets.
func (e *Edge) rewrite(p *httputil.ProxyRequest) {
	v := visitorOf(p.In.Context())
	p.Out.URL.Scheme = "http"
	p.Out.URL.Host = net.JoinHostPort(string(v.Sandbox), strconv.Itoa(v.Port))
	p.Out.URL.RawQuery = withoutToken(p.In.URL.RawQuery)
	p.SetXForwarded()
	clean(p.Out.Header)
	p.Out.Host = p.In.Host
	if v.HostHeader == "" {
		return
	}
	p.Out.Host = v.HostHeader
	// A server that knows itself by that name takes another origin for a stranger.
	if u, err := url.Parse(p.In.Header.Get("Origin")); err == nil && u.Host != "" && strings.EqualFold(u.Host, p.In.Host) {
		p.Out.Header.Set("Origin", "http://"+v.HostHeader)
	}
}

func modify(r *http.Response) error {
	confine(r.Header)
	if strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream") {
		visitorOf(r.Request.Context()).endless()
	}
	return nil
}

// broken answers for a server that did not.
func (e *Edge) broken(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has gone, or the edge closes
	}
	v := visitorOf(r.Context())
	var own *sandbox.Error
	switch {
	case errors.Is(err, sandbox.ErrNotListening):
		e.noServer(w, r, v)
	case errors.As(err, &own):
		e.refuse(w, r, err)
	default:
		e.log.LogAttrs(r.Context(), slog.LevelDebug, "preview broken", slog.String("sandbox", string(v.Sandbox)), slog.Int("port", v.Port), slog.Any("error", err))
		e.noAnswer(w, r, v, err)
	}
}

// pool lends buffers.
type pool struct{ sync.Pool }

func (p *pool) Get() []byte  { return p.Pool.Get().(*[copyBuffer]byte)[:] }
func (p *pool) Put(b []byte) { p.Pool.Put((*[copyBuffer]byte)(b)) }
