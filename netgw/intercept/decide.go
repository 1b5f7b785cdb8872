package intercept

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// handle asks the first handler whose rule matches, and does as it says. answered
// means that the request has had its answer. A handler that fails lets nothing
// pass.
func (r *request) handle() (answered bool, no *refusal) {
	rule := r.handler()
	if rule == nil {
		return false, nil
	}
	name := rule.Name
	if name == "" {
		name = "of the policy"
	}
	q, err := r.question()
	if err == nil {
		var d *reply
		if d, err = r.s.p.handlers.ask(r.in.Context(), rule, q); err == nil {
			defer d.body.Close()
			return r.obey(d, name)
		}
	}
	return false, &refusal{http.StatusBadGateway, fmt.Sprintf("the handler %s did not decide: %v", name, err)}
}

// handler is that of the first rule that matches the request.
func (r *request) handler() *sandbox.Handler {
	for _, rule := range r.rules() {
		if rule.Handler != nil && (r.s.flow.TLS || rule.Handler.Plain) && rule.Matches(r.in.Method, r.in.URL.EscapedPath()) {
			return rule.Handler
		}
	}
	return nil
}

// question is the request as a handler is shown it. A body is shown if it is
// known to be short: one that comes bit by bit may wait for an answer.
func (r *request) question() (*question, error) {
	scheme := "http"
	if r.s.flow.TLS {
		scheme = "https"
	}
	q := &question{r: r, url: scheme + "://" + r.in.Host + r.in.URL.RequestURI(), header: r.in.Header.Clone(), whole: true}
	for k := range q.header {
		if strings.HasPrefix(k, "Berth-") {
			delete(q.header, k) // only the gateway says such things
		}
	}
	for _, k := range hopByHop {
		q.header.Del(k)
	}
	switch n := r.in.ContentLength; {
	case n == 0:
	case n < 0 || n > maxShown:
		q.whole = false
	default:
		body, err := io.ReadAll(r.in.Body)
		if err != nil {
			return nil, fmt.Errorf("read the request's body: %w", err)
		}
		q.body = body
		r.in.Body = &replaced{r: bytes.NewReader(body), Closer: r.in.Body}
	}
	return q, nil
}

var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Content-Length", "Expect"}

// obey does what a handler has decided.
func (r *request) obey(d *reply, name string) (answered bool, no *refusal) {
	switch decision := d.header.Get(headDecision); decision {
	case "forward":
		return false, r.change(d, name)
	case "answer":
		r.entry.Rule = "handler " + name
		return true, r.relay(d)
	case "refuse":
		why, err := io.ReadAll(io.LimitReader(d.body, 400))
		if err != nil || len(why) == 0 {
			why = []byte("it gave no reason")
		}
		return false, &refusal{http.StatusForbidden, fmt.Sprintf("the handler %s refused it: %s", name, strings.ToValidUTF8(string(why), "?"))}
	default:
		return false, &refusal{http.StatusBadGateway, fmt.Sprintf("the handler %s said %.40q where it decides", name, decision)}
	}
}

// change makes the changes of a handler that forwards. What comes of them is
// judged like any other request.
func (r *request) change(d *reply, name string) *refusal {
	bad := func(what, value string) *refusal {
		return &refusal{http.StatusBadGateway, fmt.Sprintf("the handler %s gave a %s that cannot be: %.80q", name, what, value)}
	}
	changed := false
	if m := d.header.Get(headMethod); m != "" {
		if err := sandbox.CheckMethod(m); err != nil {
			return bad("method", m)
		}
		r.in.Method, changed = m, true
	}
	if p := d.header.Get(headPath); p != "" {
		u, err := url.ParseRequestURI(p)
		if err != nil || !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") || u.Host != "" {
			return bad("path", p)
		}
		r.in.URL.Path, r.in.URL.RawPath, r.in.URL.RawQuery, changed = u.Path, u.RawPath, u.RawQuery, true
	}
	for _, k := range d.header.Values(headRemove) {
		r.in.Header.Del(strings.TrimSpace(k))
	}
	for _, field := range d.header.Values(headSet) {
		k, v, ok := strings.Cut(field, ":")
		if !ok || sandbox.CheckInjectHeader(k) != nil {
			return bad("header", field)
		}
		r.in.Header[textproto.CanonicalMIMEHeaderKey(k)] = []string{strings.TrimSpace(v)}
	}
	if d.header.Get(headReplace) == "body" {
		body, err := io.ReadAll(io.LimitReader(d.body, maxShown+1))
		if err != nil || len(body) > maxShown {
			return bad("body", fmt.Sprintf("more than %d bytes, or cut off", maxShown))
		}
		r.in.Body = &replaced{r: bytes.NewReader(body), Closer: r.in.Body}
		r.in.ContentLength, r.in.TransferEncoding = int64(len(body)), nil
		r.in.Header.Del("Content-Length")
	}
	if !changed {
		return nil
	}
	r.entry.Method, r.entry.Path = cut(r.in.Method, 32), cut(r.in.URL.EscapedPath(), sandbox.MaxPathPattern)
	if no := r.agree(); no != nil {
		return no
	}
	return r.judge()
}

// relay answers with what a handler says.
func (r *request) relay(d *reply) *refusal {
	if d.status < 200 {
		return &refusal{http.StatusBadGateway, fmt.Sprintf("the handler answered with the status %d", d.status)}
	}
	h := r.w.Header()
	for k, v := range d.header {
		if !strings.HasPrefix(k, "Berth-") {
			h[k] = v
		}
	}
	for _, k := range hopByHop {
		if k != "Content-Length" {
			h.Del(k)
		}
	}
	r.w.WriteHeader(d.status)
	control := http.NewResponseController(r.w)
	buffer := r.s.p.buffers.Get()
	defer r.s.p.buffers.Put(buffer)
	for {
		n, err := d.body.Read(buffer)
		if n > 0 {
			if _, werr := r.w.Write(buffer[:n]); werr != nil {
				return nil // the client is gone
			}
			if ferr := control.Flush(); ferr != nil {
				return nil
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			r.entry.Verdict, r.entry.Reason = sandbox.VerdictFailed, "the handler's answer broke off"
			panic(http.ErrAbortHandler) // the client must see that it is cut
		}
	}
}
