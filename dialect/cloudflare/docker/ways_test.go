package docker_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/dialect/cloudflare/docker"
	"github.com/berth-dev/berth/sandbox"
)

// selfSigned is a certificate of a host.
func selfSigned(host string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// lead asks a sidecar for a way to a port, by a request of its own.
func lead(t *testing.T, sidecar, host, more string) (net.Conn, *bufio.Reader, int) {
	t.Helper()
	c, err := net.Dial("tcp", "127.0.0.1:"+sidecar)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", host, host, more)
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"})
	if err != nil {
		t.Fatal(err)
	}
	return c, in, resp.StatusCode
}

// get asks for a page behind a sidecar.
func get(t *testing.T, sidecar, host, path string) (int, string) {
	t.Helper()
	c, in, status := lead(t, sidecar, host, "X-Dst-Addr: "+host+"\r\n")
	if status != 200 {
		return status, ""
	}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// put sends a sidecar a document.
func put(t *testing.T, sidecar, path, body string, want int) {
	t.Helper()
	r, err := http.NewRequest("PUT", "http://127.0.0.1:"+sidecar+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != want {
		t.Errorf("PUT %s %.80s: %d, want %d", path, body, resp.StatusCode, want)
	}
}

func TestIngress(t *testing.T) {
	k := newDocks(t, false)
	side := k.sidecar(t, name)
	if status, _ := get(t, side, "127.0.0.1:3000", "/"); status != 400 {
		t.Errorf("without a container: %d", status)
	}
	k.create(t, name, vendorRef)
	id := string(k.box(t).ID)
	if status, body := get(t, side, "127.0.0.1:3000", "/api/ping"); status != 200 || body != id+" serves /api/ping" {
		t.Errorf("the server's port: %d %s", status, body)
	}
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "inside ", r.URL.Path) }))
	defer inside.Close()
	address := inside.Listener.Addr().String() // the fake driver's sandboxes have the host's ports
	if status, body := get(t, side, address, "/page"); status != 200 || body != "inside /page" {
		t.Errorf("a port: %d %s", status, body)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	free.Close()
	if status, _ := get(t, side, nobody, "/"); status != 400 {
		t.Errorf("a port that nobody serves: %d", status)
	}
	for _, host := range []string{"127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:x"} {
		if _, _, status := lead(t, side, host, ""); status != 400 {
			t.Errorf("%s: %d", host, status)
		}
	}
	if _, _, status := lead(t, side, "evil.example:3000", ""); status != 403 {
		t.Errorf("by a foreign name: %d", status)
	}
	put(t, side, "/egress", `{"port":0}`, 400)
	put(t, side, "/egress", `{"port":"x"}`, 400)
	put(t, side, "/egress", `{"dns":{"allowHostnames":["`+strings.Repeat("a", 300)+`"]}}`, 400)
	put(t, side, "/egress", `{"dns":{"allowHostnames":[`+strings.Repeat(`"a",`, 2000)+`"a"]}}`, 400)
	put(t, side, "/elsewhere", `{}`, 404)
	many := make([]string, 500)
	for i := range many {
		many[i] = fmt.Sprintf(`"host-%d.example"`, i)
	}
	put(t, side, "/egress", `{"port":4711,"dns":{"allowHostnames":[`+strings.Join(many, ",")+`]}}`, 204)
	put(t, side, "/egress", `{"dns":{"allowHostnames":["one.example"]}}`, 204)
	if _, served := k.egress.Name(sandbox.ID(id), "host-3.example"); served {
		t.Error("a host that was taken back is served")
	}

	k.must(t, 204, "POST", "/containers/"+name+"/kill?signal=SIGTERM", "")
	if status, _ := get(t, side, "127.0.0.1:3000", "/"); status != 400 {
		t.Errorf("to one that has ended: %d", status)
	}
	if s := k.box(t).State; s != sandbox.Paused {
		t.Errorf("who asked has woken it: it is %s", s)
	}
}

// TestCertificate has what a client is told before a container is made lead to the
// authority of its sandbox.
func TestCertificate(t *testing.T) {
	k := newDocks(t, false)
	side := k.sidecar(t, name)
	ask := func() string {
		resp, err := http.Get("http://127.0.0.1:" + side + "/ca")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%d %s, %v", resp.StatusCode, b, err)
		}
		return string(b)
	}
	early := ask()
	if again := ask(); again != early {
		t.Errorf("first %s, then %s", early, again)
	}
	k.create(t, name, vendorRef)
	own := "PEM of " + string(k.box(t).ID) + "\n"
	if got := ask(); got != own {
		t.Errorf("%s, want %s", got, own)
	}
	k.must(t, 204, "POST", "/containers/"+name+"/kill?signal=SIGTERM", "")
	k.must(t, 204, "DELETE", "/containers/"+name+"-proxy?force=true", "")
	side = k.sidecar(t, name)
	if got := ask(); got != own {
		t.Errorf("once it sleeps: %s, want %s", got, own)
	}
}

// workerd stands for the program that decides over connections.
func workerd(t *testing.T, status int) (port int, asked <-chan string) {
	t.Helper()
	seen := make(chan string, 8)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- fmt.Sprintf("%s %s sni=%s host=%s", r.Method, r.Host, r.Header.Get("X-Tls-Sni"), r.Header.Get("X-Hostname"))
		if status != 200 {
			w.WriteHeader(status)
			return
		}
		c, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
		inner, err := http.ReadRequest(in.Reader)
		if err != nil {
			t.Error(err)
			return
		}
		text := "caught " + inner.Method + " " + inner.Host + inner.URL.Path
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port, seen
}

func TestEgress(t *testing.T) {
	const id = sandbox.ID("abcdefghij0123456789")
	e := docker.NewEgress(&authority{})
	send := func(secure bool, request func(net.Conn) string) (string, bool, error) {
		inside, outside := net.Pipe()
		defer inside.Close()
		got := make(chan string, 1)
		go func() { got <- request(inside) }()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		taken, err := e.Divert(ctx, docker.Connection{Sandbox: id, Host: "one.example", Addr: netip.MustParseAddrPort("198.18.0.7:443"), TLS: secure, HTTP: !secure, Pass: pass}, outside)
		outside.Close()
		if !taken {
			return "", taken, err
		}
		return <-got, taken, err
	}
	plain := func(c net.Conn) string {
		fmt.Fprint(c, "GET /p HTTP/1.1\r\nHost: one.example\r\n\r\n")
		return answer(c)
	}
	quiet := func(net.Conn) string { return "" }

	if _, taken, err := send(false, quiet); taken || err == nil {
		t.Errorf("a sandbox that nobody knows: %v, %v", taken, err)
	}
	port, asked := workerd(t, 200)
	e.Set(id, docker.Route{Port: port})
	if got, _, err := send(false, plain); got != "caught GET one.example/p" || err != nil {
		t.Errorf("plain: %q, %v", got, err)
	}
	if got := <-asked; got != "CONNECT 198.18.0.7:443 sni= host=one.example" {
		t.Errorf("it was asked %s", got)
	}
	got, _, err := send(true, func(c net.Conn) string {
		s := tls.Client(c, &tls.Config{ServerName: "one.example", InsecureSkipVerify: true})
		return plain(s)
	})
	if got != "caught GET one.example/p" || err != nil {
		t.Errorf("TLS: %q, %v", got, err)
	}
	if got := <-asked; got != "CONNECT 198.18.0.7:443 sni=one.example host=" {
		t.Errorf("it was asked %s", got)
	}

	port, _ = workerd(t, 202)
	e.Set(id, docker.Route{Port: port, Internet: true})
	if _, taken, err := send(false, quiet); taken || err != nil {
		t.Errorf("what it does not want: %v, %v", taken, err)
	}
	e.Set(id, docker.Route{Port: port})
	if _, taken, err := send(false, quiet); taken || err == nil {
		t.Errorf("what it does not want, without internet: %v, %v", taken, err)
	}
	port, _ = workerd(t, 500)
	e.Set(id, docker.Route{Port: port, Internet: true})
	if _, taken, err := send(false, quiet); taken || err == nil {
		t.Errorf("when it fails: %v, %v", taken, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.Set(id, docker.Route{Port: l.Addr().(*net.TCPAddr).Port, Internet: true})
	l.Close()
	if _, taken, err := send(false, quiet); taken || err == nil {
		t.Errorf("when it is gone: %v, %v", taken, err)
	}
	e.Unset(id)
	if _, taken, err := send(false, quiet); taken || err == nil {
		t.Errorf("once it is forgotten: %v, %v", taken, err)
	}
}

// pass copies both ways until both have ended.
func pass(a, b net.Conn) {
	done := make(chan struct{})
	go func() { io.Copy(a, b); a.Close(); close(done) }()
	io.Copy(b, a)
	<-done
}

func answer(c net.Conn) string {
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	c.Close()
	return string(b)
}

func TestNames(t *testing.T) {
	const id = sandbox.ID("abcdefghij0123456789")
	e := docker.NewEgress(&authority{})
	e.Set(id, docker.Route{Hosts: []string{"one.example", "*.Two.example", "port.example:8080"}})
	for n, want := range map[string]bool{"one.example": true, "x.two.example": true, "two.example": false, "port.example": true, "one.example.org": false} {
		if known, served := e.Name(id, n); served != want || known != want {
			t.Errorf("%s: %v, %v", n, known, served)
		}
	}
	e.Set(id, docker.Route{Internet: true})
	if known, served := e.Name(id, "any.example"); !known || served {
		t.Errorf("with internet: %v, %v", known, served)
	}
	if known, _ := e.Name("bbbbbbbbbbbbbbbbbbbb", "any.example"); known {
		t.Error("a sandbox that nobody knows learns names")
	}
}

func TestSize(t *testing.T) {
	l, err := docker.Size("FROM x\nLABEL a=b berth.cpu=\"1.5\" \\\n  berth.memory=4GiB\nLABEL berth.disk=20GB\n")
	if err != nil || l == nil || l.CPUMilli != 1500 || l.MemoryBytes != 4<<30 || l.DiskBytes != 20e9 {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err := docker.Size("FROM x\nRUN echo berths.cpu=2\n"); l != nil || err != nil {
		t.Errorf("%+v, %v", l, err)
	}
	for _, bad := range []string{"LABEL berth.cpu=many", "LABEL berth.memory=much", "LABEL berth.cpu=-1", "LABEL berth.cpu=NaN"} {
		if _, err := docker.Size(bad); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestImages(t *testing.T) {
	got := docker.Images("ARG V=1\nARG B=cloudflare/sandbox-test:1\nFROM --platform=linux/amd64 docker.io/cloudflare/sandbox:0.12.10-python AS base\nFROM base\nCOPY --from=app:dev /a /b\n",
		map[string]string{"A": "cloudflare/sandbox:2-python", "O": "cloudflare/sandbox:3-opencode", "X": "y"})
	for ref, want := range map[string]string{"docker.io/cloudflare/sandbox:0.12.10-python": "cloudflare-sandbox-python", "base": "", "app:dev": "",
		"cloudflare/sandbox-test:1": "cloudflare-sandbox", "cloudflare/sandbox:2-python": "cloudflare-sandbox-python", "cloudflare/sandbox:3-opencode": "cloudflare-sandbox-opencode"} {
		n := got[ref]
		if n == "" || want != "" && n != want || sandbox.CheckName(n) != nil {
			t.Errorf("%s stands for %q", ref, n)
		}
	}
	a, err1 := docker.TemplateName("app")
	b, err2 := docker.TemplateName("docker.io/library/app:latest")
	c, err3 := docker.TemplateName("app/latest")
	if err1 != nil || err2 != nil || err3 != nil || a != b || a == c {
		t.Errorf("%s, %s, %s", a, b, c)
	}
}

// TestStandalone has the vendor's program be copied into other images.
func TestStandalone(t *testing.T) {
	const rest = "FROM a AS b\nCOPY --from=b /container-server/sandbox.txt /x\nRUN COPY --from=b /container-server/sandbox /sandbox && x\n"
	got := docker.Standalone("COPY --from=docker.io/cloudflare/sandbox:1 --chmod=755 /container-server/sandbox-musl /sandbox\r\n" + rest)
	if want := `RUN printf '%s\n' '#!/bin/sh' 'exec "$@"' > /sandbox && chmod 755 /sandbox` + "\n" + rest; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzRefs finds no image whose template's name is none, and no Dockerfile that
// cannot be looked through.
func FuzzRefs(f *testing.F) {
	for _, s := range []string{"a", "docker.io/cloudflare/sandbox:1", "x@sha256:" + strings.Repeat("0", 64), "FROM a\nLABEL berth.cpu=2", "A/B_C:d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := docker.TemplateName(s); err == nil && sandbox.CheckName(n) != nil {
			t.Errorf("%q stands for %q", s, n)
		}
		for ref, n := range docker.Images(s, nil) {
			if sandbox.CheckName(n) != nil {
				t.Errorf("%q stands for %q", ref, n)
			}
		}
		if l, err := docker.Size(s); err == nil && l != nil && (l.CPUMilli < 0 || l.MemoryBytes < 0 || l.DiskBytes < 0) {
			t.Errorf("%q is as large as %+v", s, l)
		}
	})
}

// FuzzHosts holds the matching of hosts to that of regular expressions.
func FuzzHosts(f *testing.F) {
	f.Add("*.example", "a.example")
	f.Add("a*b*c", "abbc")
	f.Add("*", "")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(pattern) > 64 || len(s) > 256 || strings.ContainsAny(pattern, "[]:") || strings.ToLower(pattern) != pattern {
			return
		}
		const id = sandbox.ID("abcdefghij0123456789")
		e := docker.NewEgress(&authority{})
		e.Set(id, docker.Route{Hosts: []string{pattern}})
		_, served := e.Name(id, s)
		expression := bytes.ReplaceAll([]byte(regexp.QuoteMeta(pattern)), []byte(`\*`), []byte(`(?s:.*)`))
		re, err := regexp.Compile("^" + string(expression) + "$")
		if err != nil {
			return
		}
		if want := re.MatchString(s); served != want {
			t.Errorf("%q by %q: %v, want %v", s, pattern, served, want)
		}
	})
}

// TestEndIsToldLast has who waits for a container's end find its sandbox at rest.
func TestEndIsToldLast(t *testing.T) {
	k := newDocks(t, false)
	k.sidecar(t, name)
	k.create(t, name, vendorRef)
	for range 5 {
		ended, killed := k.wait(t, name+"/wait"), k.wait(t, name+"/kill?signal=SIGTERM")
		if got := <-ended; got != `200 {"StatusCode":0}` {
			t.Fatalf("wait: %s", got)
		}
		if s := k.box(t); s.State != sandbox.Paused {
			t.Fatalf("it has ended, and its sandbox is %s", s.State)
		}
		if got := <-killed; !strings.HasPrefix(got, "204") {
			t.Fatalf("kill: %s", got)
		}
		k.must(t, 204, "POST", "/containers/"+name+"/start", "")
	}
}

// TestOwnImages has each variant of the vendor's image be made of what there is.
func TestOwnImages(t *testing.T) {
	have := map[string]sandbox.Template{sandbox.DefaultTemplate: {Name: sandbox.DefaultTemplate, Digest: "sha256:1"}}
	find := func(_ context.Context, name string) (sandbox.Template, error) {
		if got, ok := have[name]; ok {
			return got, nil
		}
		return sandbox.Template{}, sandbox.Errorf("find", sandbox.NotFound, "no %s", name)
	}
	ask := func(name string) (sandbox.BuildRequest, string) {
		t.Helper()
		r, err := docker.OwnImage(t.Context(), name, find)
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, s := range r.Steps {
			if s.Run != nil {
				said += strings.Join(s.Run.Argv, " ")
			}
		}
		return r, said
	}
	if r, run := ask("cloudflare-sandbox"); r.From != "template:base" || run != "" || r.Steps[0].Env["PYTHON_POOL_MIN_SIZE"] != "0" {
		t.Errorf("the plain one: %+v", r)
	}
	have[sandbox.CodeTemplate] = sandbox.Template{Name: sandbox.CodeTemplate, Digest: "sha256:2"}
	if r, run := ask("cloudflare-sandbox-python"); r.From != "template:code-interpreter" || run != "" || r.Steps[0].Env["PYTHON_POOL_MIN_SIZE"] == "0" {
		t.Errorf("the one with Python: %+v", r)
	}
	have[sandbox.BucketTemplate] = sandbox.Template{Name: sandbox.BucketTemplate, Digest: "sha256:3", Source: "distribution:bookworm+s3fs"}
	if r, _ := ask("cloudflare-sandbox"); r.From != "template:code-interpreter" {
		t.Errorf("code counts more than mounts: %+v", r)
	}
	have[sandbox.BucketTemplate] = sandbox.Template{Name: sandbox.BucketTemplate, Digest: "sha256:3", Source: "distribution:bookworm+code+s3fs"}
	if r, run := ask("cloudflare-sandbox"); r.From != "template:bucket-mounts" || run != "" {
		t.Errorf("the one with both: %+v", r)
	}
	delete(have, sandbox.BucketTemplate)
	if r, run := ask("cloudflare-sandbox-opencode"); r.From != "template:code-interpreter" || !strings.Contains(run, "opencode --version") || r.Steps[0].Env["BERTH_MADE_OF"] != "sha256:2" {
		t.Errorf("the one with OpenCode: %+v", r)
	}
	clear(have)
	if r, _ := ask("cloudflare-sandbox"); r.From != "template:base" {
		t.Errorf("of nothing: %+v", r)
	}
}

// TestRoutesInTurn has many say at once where a container's traffic goes, each a part.
func TestRoutesInTurn(t *testing.T) {
	k := newDocks(t, false)
	port := k.sidecar(t, name)
	k.create(t, name, vendorRef)
	for _, hosts := range []string{`["one.example"]`, `["two.example"]`} {
		var all sync.WaitGroup
		for _, body := range []string{`{"dns":{"allowHostnames":` + hosts + `}}`, `{"internet":{"enabled":false}}`, `{"port":4711}`, `{"internet":{"enabled":false}}`} {
			all.Go(func() {
				r, err := http.NewRequestWithContext(t.Context(), "PUT", "http://127.0.0.1:"+port+"/egress", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				if resp.StatusCode != 204 {
					t.Errorf("%s: %d", body, resp.StatusCode)
				}
			})
		}
		all.Wait()
		if kept := k.box(t).Metadata["cloudflare.container"]; !strings.Contains(kept, `"hosts":`+hosts) || !strings.Contains(kept, `"port":4711`) || !strings.Contains(kept, `"internet":false`) {
			t.Errorf("what is kept is %s", kept)
		}
	}
	if known, served := k.egress.Name(k.box(t).ID, "two.example"); !known || !served {
		t.Errorf("the name is known: %v, served: %v", known, served)
	}
}
