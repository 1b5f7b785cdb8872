package intercept

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// request is one request on its way through.
type request struct {
	s      *session
	w      *countedWriter
	in     *http.Request
	entry  sandbox.AuditEntry
	policy sandbox.Policy
	begun  time.Time
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	secrets []string // that were added

	own []string // headers that got a value of the policy's own
}

// errRevoked ends a request whose credential was taken away.
var errRevoked = errors.New("the grant of its credential was revoked")

func (r *request) end() { r.cancel(errRevoked) }

func (r *request) uses(secret string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.secrets, secret)
}

// serveRequest is the handler of the one server.
func serveRequest(w http.ResponseWriter, in *http.Request) {
	s := in.Context().Value(sessionKey{}).(*session)
	ctx, cancel := context.WithCancelCause(in.Context())
	defer cancel(nil)
	r := &request{s: s, begun: s.p.now(), cancel: cancel, policy: s.flow.Policy()}
	control := http.NewResponseController(w)
	body := &steadyBody{ReadCloser: in.Body, control: control}
	counted := &countedWriter{ResponseWriter: w, control: control, begun: body.calm}
	r.w, r.in = counted, in.WithContext(ctx)
	if in.Body != nil && in.Body != http.NoBody {
		r.in.Body = body
	}
	r.entry = sandbox.AuditEntry{Time: r.begun.UTC(), Kind: sandbox.AuditRequest, Verdict: sandbox.VerdictAllowed, Protocol: "tcp",
		Host: s.flow.Host, Method: cut(in.Method, 32), Path: cut(in.URL.EscapedPath(), sandbox.MaxPathPattern)}
	defer func() {
		body.calm()
		broken := recover()
		if broken != nil && broken != http.ErrAbortHandler {
			s.p.log.Error("panic", "sandbox", s.flow.Sandbox, "panic", broken)
			broken = http.ErrAbortHandler
			r.entry.Verdict, r.entry.Reason = sandbox.VerdictFailed, "an error of the server's own"
		}
		if errors.Is(context.Cause(ctx), errRevoked) {
			r.entry.Verdict, r.entry.Reason = sandbox.VerdictDenied, errRevoked.Error()
		}
		r.entry.Status, r.entry.Sent, r.entry.Received = counted.status, body.n.Load(), counted.n
		r.entry.DurationMS = s.p.now().Sub(r.begun).Milliseconds()
		r.entry.Credential = strings.Join(append(r.secrets, r.own...), ", ")
		s.flow.Note(r.entry)
		if broken != nil {
			panic(broken)
		}
	}()
	if !s.box.enter(r) {
		r.refuse(&refusal{http.StatusServiceUnavailable, "too many requests of this sandbox are under way"})
		return
	}
	defer s.box.leave(r)
	if no := r.serve(); no != nil {
		r.refuse(no)
	}
}

// serve does all that the policy says, and sends the request on.
func (r *request) serve() *refusal {
	if no := r.agree(); no != nil {
		return no
	}
	if no := r.judge(); no != nil {
		return no
	}
	answered, no := r.handle()
	if answered || no != nil {
		return no
	}
	c, no := r.credentials()
	if no != nil {
		return no
	}
	r.forward(c)
	return nil
}

// agree refuses a request that is for another host than the connection.
func (r *request) agree() *refusal {
	host, port := r.in.Host, ""
	if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	}
	if !strings.EqualFold(strings.TrimSuffix(host, "."), r.s.flow.Host) || (port != "" && port != strconv.Itoa(int(r.s.flow.Addr.Port()))) {
		return &refusal{http.StatusMisdirectedRequest, fmt.Sprintf("the request is for %.100q, the connection for %s", r.in.Host, r.s.flow.Host)}
	}
	if r.in.Method == http.MethodConnect || r.in.Method == http.MethodTrace {
		return &refusal{http.StatusMethodNotAllowed, "the method " + r.in.Method + " does not pass here"}
	}
	return nil
}

// judge asks the policy.
func (r *request) judge() *refusal {
	j := r.s.flow.Judge(r.in.Method, r.s.flow.Host, r.in.URL.EscapedPath())
	r.entry.Rule = j.Rule
	if j.Allowed {
		return nil
	}
	return &refusal{http.StatusForbidden, j.Reason}
}

// rules are those of the policy that are about the flow's host.
func (r *request) rules() []*sandbox.Inject {
	var rules []*sandbox.Inject
	for i := range r.policy.Inject {
		if r.policy.Inject[i].MatchesHost(r.s.flow.Host) {
			rules = append(rules, &r.policy.Inject[i])
		}
	}
	return rules
}

// forward sends the request on, changed as c says, and its answer back.
func (r *request) forward(c *credentials) {
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(pr *httputil.ProxyRequest) { r.rewrite(pr, c) },
		Transport:      r.s.upstream,
		FlushInterval:  -1, // what comes is what the client waits for
		BufferPool:     &r.s.p.buffers,
		ErrorLog:       r.s.p.server.ErrorLog,
		ModifyResponse: func(resp *http.Response) error { return r.answered(resp, c) },
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { r.failed(err) },
	}
	if c.mask.on() {
		proxy.Transport = untraced{r.s.upstream}
	}
	proxy.ServeHTTP(r.w, r.in)
}

// answered sees the answer before it passes.
func (r *request) answered(resp *http.Response, c *credentials) error {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		r.w.status = resp.StatusCode // it is written past the writer
	}
	return c.mask.apply(resp)
}

// rewrite makes the request that goes out: the client's own, but for what is
// added.
func (r *request) rewrite(pr *httputil.ProxyRequest, c *credentials) {
	out := pr.Out
	out.URL.Scheme = "http"
	if r.s.flow.TLS {
		out.URL.Scheme = "https"
	}
	out.URL.Host = net.JoinHostPort(r.s.flow.Host, strconv.Itoa(int(r.s.flow.Addr.Port())))
	out.Host = r.in.Host
	out.URL.RawQuery = r.in.URL.RawQuery // as it was sent
	out.Trailer = r.in.Trailer           // filled in when the body has been read
	for _, k := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := r.in.Header[k]; ok {
			out.Header[k] = v
		}
	}
	c.apply(out)
}

// failed answers for a server that did not.
func (r *request) failed(err error) {
	no := &refusal{http.StatusBadGateway, "the server did not answer: " + err.Error()}
	var timeout net.Error
	var own *refusal
	switch {
	case errors.As(err, &own):
		no = own
	case unverified(err):
		no = &refusal{http.StatusBadGateway, "the server's certificate is not good for " + r.s.flow.Host + ": " + err.Error()}
	case errors.As(err, &timeout) && timeout.Timeout():
		no = &refusal{http.StatusGatewayTimeout, "the server did not answer in time"}
	}
	r.entry.Verdict = sandbox.VerdictFailed
	r.answer(no)
}

// refusal is why a request does not pass.
type refusal struct {
	status int
	reason string
}

func (r *refusal) Error() string { return r.reason }

// refuse answers a request that does not pass.
func (r *request) refuse(no *refusal) {
	r.entry.Verdict = sandbox.VerdictDenied
	r.answer(no)
}

// answer writes a plain page that says why.
func (r *request) answer(no *refusal) {
	r.entry.Reason = cut(no.reason, 500)
	h := r.w.Header()
	clear(h)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Berth-Refused", strconv.Itoa(no.status))
	if no.status == http.StatusMisdirectedRequest {
		h.Set("Connection", "close")
	}
	r.w.WriteHeader(no.status)
	io.WriteString(r.w, "The gateway of this sandbox did not let the request pass:\n"+strings.ToValidUTF8(no.reason, "?")+"\n")
}

// cut bounds what is kept of a text.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "?")
}

// countedWriter counts what is answered, and bounds how long a client takes to
// read some of it: over HTTP/2 that holds up its stream alone.
type countedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	begun   func() // called when the answer begins
	n       int64
	status  int
}

func (w *countedWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.status = status
		w.begun()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *countedWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.control.SetWriteDeadline(time.Now().Add(stallTime)) // an error would come from the write too
	n, err := w.ResponseWriter.Write(b)
	w.n += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// steadyBody is a request's body that may come slowly, but not stand still before
// there is an answer: from then on the two ends may talk as they like. The
// transport may read it for a moment longer than the request lasts.
type steadyBody struct {
	io.ReadCloser
	control *http.ResponseController
	n       atomic.Int64

	mu   sync.Mutex
	done bool
}

func (b *steadyBody) Read(p []byte) (int, error) {
	b.bound()
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	if err != nil {
		b.calm()
	}
	return n, err
}

// bound gives the next read its time. An error would come from the read too.
func (b *steadyBody) bound() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.done {
		b.control.SetReadDeadline(time.Now().Add(stallTime))
	}
}

// calm takes the bound off: what comes next on the connection has its own.
func (b *steadyBody) calm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.done {
		b.done = true
		b.control.SetReadDeadline(time.Time{})
	}
}

// untraced hides from the transport that somebody wants the answers before the
// answer: their headers would pass unmasked.
type untraced struct{ http.RoundTripper }

func (t untraced) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.RoundTripper.RoundTrip(r.WithContext(bare{r.Context()}))
}

// bare is a context without its values.
type bare struct{ context.Context }

func (bare) Value(any) any { return nil }
