package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// page is a server of one small page that keeps connections open.
const page = `
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Page(BaseHTTPRequestHandler):
    protocol_version, wbufsize, disable_nagle_algorithm = 'HTTP/1.1', 65536, True
    def do_GET(self):
        self.send_response(200); self.send_header('Content-Length', '2'); self.end_headers(); self.wfile.write(b'ok')
    def log_message(self, *_): pass
ThreadingHTTPServer(('0.0.0.0', 8080), Page).serve_forever()
`

// asks prints the milliseconds that requests took on one connection, and with a new
// one each, as JSON. Its arguments are a host, a port and whether TLS is spoken.
const asks = `
import http.client, json, ssl, sys, time
host, port, tls = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def connect():
    if tls == 'no': return http.client.HTTPConnection(host, port)
    return http.client.HTTPSConnection(host, port, context=ssl._create_unverified_context())
def ask(c):
    c.request('GET', '/'); r = c.getresponse(); r.read(); assert r.status == 200
def took(n, f):
    times = []
    for _ in range(n):
        t = time.perf_counter(); f(); times.append(1000 * (time.perf_counter() - t))
    return times
def fresh(): c = connect(); ask(c); c.close()
c = connect(); took(20, lambda: ask(c))
print(json.dumps({'kept': took(200, lambda: ask(c)), 'fresh': took(30, fresh)}))
`

type asked struct{ Kept, Fresh []float64 }

// askInside runs asks in a sandbox.
func (s *server) askInside(ctx context.Context, id string, args ...string) (a asked, err error) {
	out, err := s.run(ctx, id, append([]string{"python3", "-c", asks}, args...)...)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal([]byte(out), &a)
}

// preview compares requests to a server inside, through its preview and from within.
func preview(ctx context.Context, s *server) (rows []row, err error) {
	err = s.with(ctx, func(id string) error {
		if _, err := s.WriteFile(ctx, id, "/tmp/page.py", sandbox.WriteOptions{}, strings.NewReader(page)); err != nil {
			return err
		}
		events, err := s.Exec(ctx, id, sandbox.Command{Argv: []string{"python3", "/tmp/page.py"}})
		if err != nil {
			return err
		}
		defer events.Close()
		public := true
		share, err := s.Share(ctx, id, 8080, sandbox.ShareRequest{Public: &public})
		if err != nil {
			return err
		}
		took, err := askPreview(ctx, share.URL)
		if err != nil {
			return err
		}
		inside, err := s.askInside(ctx, id, "127.0.0.1", "8080", "no")
		if err != nil {
			return err
		}
		through := median("preview request", "ms", took)
		through.Target = "inside + 1 ms"
		rows = []row{through, median("  the same from inside", "ms", inside.Kept)}
		return nil
	})
	return rows, err
}

// askPreview makes requests to a preview on one connection, once it answers.
func askPreview(ctx context.Context, address string) (took []float64, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	to := net.JoinHostPort("127.0.0.1", u.Port())
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", to)
	}}}
	defer c.CloseIdleConnections()
	for misses := 0; len(took) < 220; {
		begin := time.Now()
		resp, err := c.Get(address)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusOK {
			if misses++; misses > 300 {
				return nil, fmt.Errorf("the preview answers %s", resp.Status)
			}
			if err := wait(ctx, 100*time.Millisecond); err != nil {
				return nil, err
			}
			continue
		}
		took = append(took, ms(time.Since(begin)))
	}
	return took[20:], nil // the first ones find nothing warm
}

// inject compares requests to a host that get a credential with those to one that are
// only passed through.
func inject(ctx context.Context, s *server) (rows []row, err error) {
	if _, err := s.SetSecret(ctx, "bench", sandbox.SecretValue("a secret of no worth")); err != nil {
		return nil, err
	}
	err = s.with(ctx, func(id string) error {
		_, err := s.SetPolicy(ctx, id, sandbox.Policy{Profile: sandbox.ProfileOpen, Inject: []sandbox.Inject{{
			Host: "api." + siteNames, Secret: "bench", Header: map[string]string{"Authorization": "Bearer " + sandbox.SecretMark}}}})
		if err != nil {
			return err
		}
		direct, err := s.askInside(ctx, id, "other."+siteNames, "443", "yes")
		if err != nil {
			return err
		}
		injected, err := s.askInside(ctx, id, "api."+siteNames, "443", "yes")
		if err != nil {
			return err
		}
		a, b := median("HTTPS request with a credential", "ms", injected.Kept), median("  with a new connection", "ms", injected.Fresh)
		a.Target, b.Target = "direct + 2 ms", "direct + 2 ms"
		rows = []row{a, median("  direct", "ms", direct.Kept), b, median("  direct, with a new connection", "ms", direct.Fresh)}
		return nil
	})
	return rows, err
}
