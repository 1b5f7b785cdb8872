package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// guarded puts around a route what every request passes: its id, the checks of
// where it comes from and who sends it, the rendering of its error, the log.
func (a *API) guarded(rt route) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		w := &answer{ResponseWriter: rw, request: "req_" + strings.ToLower(rand.Text()[:20])}
		h := w.Header()
		h.Set(wire.HeaderRequestID, w.request)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		err := a.serve(rt, w, r)
		defer func() { a.counter.Request(rt.name(), w.status) }()
		_ = http.NewResponseController(rw).SetWriteDeadline(time.Time{}) // a stream's must not bound the next request's
		path := r.URL.Path
		if rt.secret {
			path = rt.path
		}
		a.log.Debug("request", "request", w.request, "method", r.Method, "path", path,
			"status", w.status, "took", time.Since(begin), "error", err)
		switch {
		case err == nil:
		case w.status == 0:
			a.renderError(w, err)
		default:
			panic(http.ErrAbortHandler) // the answer has begun: the client must see that it is cut
		}
	})
}

// name is the route's, as metrics have it.
func (rt route) name() string {
	if rt.path == "" {
		return "none"
	}
	return rt.method + " " + rt.path
}

// serve checks a request and runs its handler; a panic comes back as Internal.
func (a *API) serve(rt route, w *answer, r *http.Request) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler {
			panic(p)
		}
		a.log.Error("panic", "request", w.request, "panic", p, "stack", string(debug.Stack()))
		err = sandbox.Errorf("serve", sandbox.Internal, "panic: %v", p)
	}()
	if !rt.anywhere {
		if err := a.checkOrigin(r); err != nil {
			return err
		}
	}
	if !rt.open {
		ctx, leave, err := a.enter(r)
		if err != nil {
			return err
		}
		defer leave()
		if err := rt.permits(ctx, isWebSocket(r)); err != nil {
			return err
		}
		defer cutConnection(ctx, w)()
		return orCut(ctx, w, rt.handle(w, r.WithContext(ctx)))
	}
	return rt.handle(w, r)
}

// checkOrigin refuses what a page of another site makes a browser send, and, on
// a loopback listener, names that such a page may have pointed at it.
func (a *API) checkOrigin(r *http.Request) error {
	if o := r.Header.Get("Origin"); o != "" {
		u, err := url.Parse(o)
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return forbidden(fmt.Sprintf("a page of %.200q may not use this server", o), "call it from a program, or from its own pages")
		}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return forbidden("a page of another site may not use this server", "call it from a program, or from its own pages")
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && local.IP.IsLoopback() && !a.ownName(r.Host) {
		return forbidden(fmt.Sprintf("this server is not called %.200q", r.Host), "use its address or localhost, or start it with --domain set to that name")
	}
	return nil
}

func forbidden(text, hint string) error {
	return &sandbox.Error{Kind: sandbox.Forbidden, Err: errors.New(text), Hint: hint}
}

// ownName reports whether a Host header names this server. An address always
// does: it cannot be rebound.
func (a *API) ownName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	for _, own := range append([]string{"localhost"}, a.hosts...) {
		if host == own || strings.HasSuffix(host, "."+own) {
			return true
		}
	}
	return false
}

// enter lets in whoever sent a request: its context names the caller, until leave
// is called. The admin's key is compared in constant time, whatever the given
// one's length; with HeaderAccount its owner is one of that account, and sees
// nothing else.
func (a *API) enter(r *http.Request) (_ context.Context, leave func(), err error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		header = protocolKey(r)
	}
	if header == "" {
		return nil, nil, unauthorized("a key is needed")
	}
	scheme, key, _ := strings.Cut(header, " ")
	key = strings.TrimSpace(key)
	given := sha256.Sum256([]byte(key))
	as := r.Header.Get(wire.HeaderAccount)
	switch {
	case !strings.EqualFold(scheme, "Bearer"):
		return nil, nil, unauthorized("the key is not known")
	case a.key != nil && subtle.ConstantTimeCompare(given[:], a.key[:]) == 1:
		if as == "" {
			return sandbox.WithCaller(r.Context(), sandbox.Operator()), func() {}, nil
		}
		if a.accounts == nil {
			return nil, nil, noAccounts()
		}
		return a.accounts.EnterAs(r.Context(), as)
	case a.accounts == nil:
		return nil, nil, unauthorized("the key is not known")
	}
	ctx, leave, err := a.accounts.Enter(r.Context(), key)
	if err != nil {
		return nil, nil, err
	}
	if c, _ := sandbox.CallerOf(ctx); as != "" && c.Account != as {
		leave()
		return nil, nil, forbidden("the key is of another account", "leave "+wire.HeaderAccount+" out: only the operator acts for others")
	}
	return ctx, leave, nil
}

// cutGrace is how long a request that is cut may take to say so.
const cutGrace = 5 * time.Second

// wasCut reports whether a request's context ended because its key opens nothing
// any more, and not because the client left.
func wasCut(ctx context.Context) bool {
	return ctx.Err() != nil && sandbox.KindOf(context.Cause(ctx)) == sandbox.Unauthorized
}

// cutConnection ends what a handler waits for on its connection, once the request
// is cut. stop is to be called at the end of the request.
func cutConnection(ctx context.Context, w *answer) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		if !wasCut(ctx) {
			return
		}
		c := http.NewResponseController(w.ResponseWriter)
		// One that was taken over by a WebSocket has none: that one heeds ctx.
		_ = c.SetReadDeadline(time.Now())
		_ = c.SetWriteDeadline(time.Now().Add(cutGrace))
	})
}

// orCut is err, or of a request that was cut the reason: what it has answered so
// far must not look like the whole. Its connection serves no other.
func orCut(ctx context.Context, w *answer, err error) error {
	if !wasCut(ctx) {
		return err
	}
	w.Header().Set("Connection", "close")
	return context.Cause(ctx)
}

func unauthorized(text string) error {
	return &sandbox.Error{Kind: sandbox.Unauthorized, Err: errors.New(text),
		Hint: "send Authorization: Bearer <key>; the admin's key is in admin.key of the server's data directory"}
}

// permits is Forbidden unless the caller of ctx may use the route.
func (rt *route) permits(ctx context.Context, socket bool) error {
	c, err := sandbox.CallerOf(ctx)
	need := rt.scope
	if socket && rt.socket != "" {
		need = rt.socket
	}
	switch {
	case err != nil:
		return err
	case c.Operator:
		return nil
	case rt.operator || rt.scope == "":
		return forbidden("this is for the server's operator", "ask whoever runs this server")
	case !c.May(need):
		return forbidden(fmt.Sprintf("the key may %s, this needs %s", joined(c.Scopes), need), "use a key with that scope")
	}
	return nil
}

func joined(scopes []sandbox.Scope) string {
	all := make([]string, len(scopes))
	for i, s := range scopes {
		all[i] = string(s)
	}
	return strings.Join(all, ", ")
}

// protocolKey is the key that a page's WebSocket names as a second protocol,
// written as a header would be: a page cannot set one.
func protocolKey(r *http.Request) string {
	if !isWebSocket(r) {
		return ""
	}
	all := strings.Split(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), ",")
	if len(all) != 2 || strings.TrimSpace(all[0]) != wire.TerminalProtocol {
		return ""
	}
	return "Bearer " + strings.TrimSpace(all[1])
}

// answer is a ResponseWriter that knows whether it has begun.
type answer struct {
	http.ResponseWriter
	request string // id
	status  int    // 0 until the answer has begun
}

func (w *answer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *answer) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
