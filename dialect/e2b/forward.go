package e2b

import (
	"context"
	"crypto/tls"
	"errors"
	"html/template"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// page is what browsers get in place of a trafficError.
var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{{if .Port}}Closed Port Error{{else}}{{.Code}}{{end}}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1rem}code{background:#8882;padding:.1em .3em}</style>
<h1>{{.Message}}</h1>
<p>Sandbox <code>{{.SandboxID}}</code>{{if .Port}}: no service running on port <code>{{.Port}}</code>. Start one, and reload{{end}}.</p>
</html>
`))

// tokenHeader opens the ports of a sandbox that are not public.
const tokenHeader = "E2b-Traffic-Access-Token"

// Bounds on reaching a port.
const (
	dialTime   = 20 * time.Second
	dialTries  = 5 // a server that was just started may not listen yet
	dialPause  = 100 * time.Millisecond
	headerWait = 10 * time.Minute
)

// forward passes a request to a port of a sandbox, and wakes it if that is
// allowed.
func (d *Dialect) forward(w http.ResponseWriter, r *http.Request, id string, port int) {
	s, ctx, ok := d.admit(w, r, id)
	if !ok {
		return
	}
	if s, ok = d.wakeFor(ctx, w, r, s); ok {
		d.proxy(&s, port).ServeHTTP(w, r.WithContext(ctx))
	}
}

// admit finds the sandbox that a request for a port is for, if it may come there.
// Otherwise it has answered.
func (d *Dialect) admit(w http.ResponseWriter, r *http.Request, id string) (s sandbox.Sandbox, ctx context.Context, ok bool) {
	ctx = sandbox.WithCaller(r.Context(), sandbox.Operator())
	s, err := d.reachable(ctx, id)
	if err == nil && private(&s) && !same(r.Header.Get(tokenHeader), d.trafficToken(s.ID)) {
		err = &fault{status: http.StatusForbidden, text: "Sandbox is secured with a traffic access token: send it in the header " + strings.ToLower(tokenHeader)}
	}
	if err != nil {
		d.renderTraffic(w, r, id, err)
	}
	return s, ctx, err == nil
}

// wakeFor makes sure that a sandbox runs for a request. If it does not, it has
// answered.
func (d *Dialect) wakeFor(ctx context.Context, w http.ResponseWriter, r *http.Request, s sandbox.Sandbox) (sandbox.Sandbox, bool) {
	if s.State == sandbox.Running {
		return s, true
	}
	woken, err := d.engine.Awake(ctx, string(s.ID))
	if err != nil {
		d.renderTraffic(w, r, string(s.ID), err)
	}
	return woken, err == nil
}

// proxy passes one request on; connections are not kept, as what listens may be
// another program by the next one.
func (d *Dialect) proxy(s *sandbox.Sandbox, port int) http.Handler {
	id, text := string(s.ID), strconv.Itoa(port)
	scheme := "http"
	if slices.Contains(strings.Split(s.Metadata[metaTLS], ","), text) {
		scheme = "https"
	}
	mask := strings.ReplaceAll(s.Metadata[metaHost], "${PORT}", text)
	return &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = scheme, p.In.Host
			p.Out.Host = p.In.Host
			if mask != "" {
				p.Out.Host = mask
			}
			p.SetXForwarded()
			for _, h := range []string{headerID, headerPort, tokenHeader} {
				p.Out.Header.Del(h)
			}
		},
		Transport: &http.Transport{
			DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return d.dial(ctx, id, port) },
			TLSClientConfig:       &tls.Config{InsecureSkipVerify: true}, // the sandbox's own certificate, over its own link
			DisableKeepAlives:     true,
			DisableCompression:    true,
			ResponseHeaderTimeout: headerWait,
		},
		ErrorLog: nil,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			d.portError(w, r, s, port, err)
		},
	}
}

// dial reaches a port, patiently: a server that was just started may be late.
func (d *Dialect) dial(ctx context.Context, id string, port int) (c net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	for range dialTries {
		if c, err = d.engine.Dial(ctx, id, port); err == nil || !errors.Is(err, sandbox.ErrNotListening) {
			return c, err
		}
		select {
		case <-time.After(dialPause):
		case <-ctx.Done():
			return nil, err
		}
	}
	return nil, err
}

// portError tells a port that nobody listens on from a sandbox that has gone.
func (d *Dialect) portError(w http.ResponseWriter, r *http.Request, s *sandbox.Sandbox, port int, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
	ctx := sandbox.WithCaller(r.Context(), sandbox.Operator())
	if _, gone := d.reachable(ctx, string(s.ID)); gone != nil {
		d.renderTraffic(w, r, string(s.ID), gone)
		return
	}
	if !errors.Is(err, sandbox.ErrNotListening) {
		d.log.Debug("request to a port", "sandbox", s.ID, "port", port, "error", err)
	}
	renderPort(w, r, trafficError{SandboxID: string(s.ID), Message: "The sandbox is running but port is not open", Port: port, Code: http.StatusBadGateway})
}

// renderPort answers in place of a port: browsers get a page.
func renderPort(w http.ResponseWriter, r *http.Request, e trafficError) {
	if strings.Contains(r.UserAgent(), "Mozilla/") {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(e.Code)
		_ = page.Execute(w, e) // a browser that has gone cannot be told
		return
	}
	writeJSON(w, e.Code, e)
}
