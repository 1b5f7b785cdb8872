package intercept

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// session is one connection of a sandbox while it is served, with the way to the
// server behind it.
type session struct {
	p        *Proxy
	flow     *Flow
	ctx      context.Context // ends with the connection
	box      *box
	upstream *http.Transport
}

type sessionKey struct{}

// connContext gives every request of a connection its session.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	s := c.(*lent).session
	// The server's own value is what its parts look for.
	return context.WithValue(context.WithValue(s.ctx, sessionKey{}, s), http.ServerContextKey, ctx.Value(http.ServerContextKey))
}

// Serve serves a connection to its end, or ctx's. It closes neither side. The
// result says why nothing came of it.
func (p *Proxy) Serve(ctx context.Context, f *Flow, guest net.Conn) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	s := &session{p: p, flow: f, ctx: ctx, box: p.box(f.Sandbox)}
	s.upstream = s.transport()
	defer s.upstream.CloseIdleConnections()
	conn := &lent{steady: steady{guest}, session: s, done: make(chan struct{})}
	defer conn.Close()
	var serving net.Conn = conn
	if f.TLS {
		t, err := s.handshake(ctx, conn)
		if err != nil {
			return err
		}
		serving = t
	}
	if !p.queue.Push(serving) {
		return sandbox.Errorf("serve", sandbox.Unavailable, "the server is shutting down")
	}
	select {
	case <-conn.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// handshake ends the sandbox's TLS.
func (s *session) handshake(ctx context.Context, c net.Conn) (net.Conn, error) {
	const op = "answer the client's TLS"
	a, err := s.p.authorities.get(ctx, s.flow.Sandbox)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	t := tls.Server(c, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		Time:       s.p.now,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if !strings.EqualFold(strings.TrimSuffix(hello.ServerName, "."), s.flow.Host) {
				return nil, fmt.Errorf("the client asks for %.80q, not for %s", hello.ServerName, s.flow.Host)
			}
			return a.certificate(s.flow.Host, s.p.now())
		},
	})
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Unavailable, Err: err,
			Hint: "a program that brings its own list of authorities must be told to use the system's"}
	}
	return t, nil
}

// transport speaks to the flow's host and to no other.
func (s *session) transport() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := s.flow.Dial(ctx)
			if err != nil {
				return nil, err
			}
			return steady{c}, nil
		},
		TLSClientConfig: &tls.Config{
			ServerName: s.flow.Host, RootCAs: s.p.roots, MinVersion: tls.VersionTLS12,
			ClientSessionCache: s.box.sessions.cache(), Time: s.p.now,
		},
		TLSHandshakeTimeout:    handshakeTime,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // the client's own choice passes
		MaxConnsPerHost:        maxStreams,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        time.Minute,
		ResponseHeaderTimeout:  answerTime,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxAnswer,
		WriteBufferSize:        copyBuffer,
		ReadBufferSize:         copyBuffer,
	}
}

// tlsSessions lets the connections of one sandbox resume what they know: a
// handshake less with every connection after the first to a host.
type tlsSessions struct{ known tls.ClientSessionCache }

func newTLSSessions() tlsSessions { return tlsSessions{tls.NewLRUClientSessionCache(32)} }

func (t tlsSessions) cache() tls.ClientSessionCache { return t.known }

// buffers are for copying bodies.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if v, ok := b.pool.Get().(*[]byte); ok {
		return *v
	}
	return make([]byte, copyBuffer)
}

func (b *buffers) Put(v []byte) { b.pool.Put(&v) }

// unverified reports whether err says that a server is not who it should be.
func unverified(err error) bool {
	var v *tls.CertificateVerificationError
	return errors.As(err, &v)
}
