package docker_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/dialect/cloudflare/docker"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/served"
)

// patience bounds every wait of these tests.
const patience = 2 * time.Minute

const (
	vendorRef = "docker.io/cloudflare/sandbox:0.12.10"
	name      = "workerd-suite-Sandbox-7d262b5d6ecf6957409b950bb0055febeda5170bd84134ca1c028d40650c4886"
)

// images is an engine whose images are all made of the one template there is.
type images struct {
	*engine.Engine
	programs map[string][2][]string // ENTRYPOINT and CMD, by template
}

func (i *images) Template(ctx context.Context, name string) (sandbox.Template, error) {
	p, ok := i.programs[name]
	if !ok {
		return i.Engine.Template(ctx, name)
	}
	t, err := i.Engine.Template(ctx, sandbox.DefaultTemplate)
	t.Entrypoint, t.Cmd = p[0], p[1]
	return t, err
}

// docks is a server with a socket.
type docks struct {
	*served.Server
	images *images
	egress *docker.Egress
	d      *docker.Dialect
	client *http.Client
	socket string
	forget bool
	keep   time.Duration
	orphan time.Duration
	end    func()
}

func newDocks(t *testing.T, forget bool) *docks {
	t.Helper()
	s := served.Start(t)
	k := &docks{Server: s, forget: forget, images: &images{s.Engine, map[string][2][]string{"cloudflare-sandbox": {{"/sandbox"}, nil}}}}
	k.open(t)
	t.Cleanup(func() { k.end() })
	return k
}

// open starts the dialect, as a server does that takes over from another.
func (k *docks) open(t *testing.T) {
	t.Helper()
	k.egress = docker.NewEgress(&authority{})
	k.d = docker.New(docker.Config{Engine: k.images, Egress: k.egress, Forget: k.forget, Keep: k.keep, Orphan: k.orphan, Logger: k.Log.Logger(), Server: func(id sandbox.ID) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s serves %s", id, r.URL.Path) })
	}})
	if err := k.d.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", k.socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- k.d.Serve(l) }()
	k.end = func() {
		if err := k.d.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	k.client = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", k.socket)
	}}}
}

// authority is one whose certificates nobody checks.
type authority struct{ told []sandbox.ID }

func (a *authority) Certificate(_ context.Context, id sandbox.ID) ([]byte, error) {
	return []byte("PEM of " + string(id) + "\n"), nil
}
func (a *authority) Inherit(context.Context, sandbox.ID, sandbox.ID) error { return nil }
func (a *authority) Forget(context.Context, sandbox.ID) error              { return nil }
func (a *authority) Terminate(_ context.Context, _ sandbox.ID, host string, c net.Conn) (net.Conn, error) {
	return tls.Server(c, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return selfSigned(host) }}), nil
}

// call makes a call and returns its status and answer.
func (k *docks) call(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := k.client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(b)
}

// must is call whose status must be the one given.
func (k *docks) must(t *testing.T, status int, method, path, body string) string {
	t.Helper()
	got, text := k.call(t, method, path, body)
	if got != status {
		t.Fatalf("%s %s: %d, want %d: %s", method, path, got, status, text)
	}
	return text
}

// container is what inspect says that counts here.
type container struct {
	ID    string `json:"Id"`
	State struct {
		Status   string
		Running  bool
		ExitCode int
	}
	NetworkSettings struct {
		Ports map[string][]struct{ HostPort string }
	}
}

func (k *docks) inspect(t *testing.T, name string) (c container) {
	t.Helper()
	if err := json.Unmarshal([]byte(k.must(t, 200, "GET", "/containers/"+name+"/json", "")), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// sidecar makes a sidecar that runs and returns its port.
func (k *docks) sidecar(t *testing.T, of string) string {
	t.Helper()
	k.must(t, 201, "POST", "/containers/create?name="+of+"-proxy", `{"Image":"cloudflare/proxy-everything:1","Cmd":["--http-egress-port","39000","--http-ingress-address","0.0.0.0:39001","--dns-enabled","--tls-intercept"],"HostConfig":{"PublishAllPorts":true,"CapAdd":["NET_ADMIN"]}}`)
	k.must(t, 204, "POST", "/containers/"+of+"-proxy/start", "")
	return k.inspect(t, of+"-proxy").NetworkSettings.Ports["39001/tcp"][0].HostPort
}

// create makes a container with a sidecar, and runs it.
func (k *docks) create(t *testing.T, of, image string) {
	t.Helper()
	k.must(t, 201, "POST", "/containers/create?name="+of, fmt.Sprintf(`{"Image":%q,"Env":["A=1","B=x=y"],"HostConfig":{"NetworkMode":"container:%s-proxy","PidMode":"host","RestartPolicy":{"Name":"on-failure"}}}`, image, of))
	k.must(t, 204, "POST", "/containers/"+of+"/start", "")
}

// wait waits for a container's end, in the background.
func (k *docks) wait(t *testing.T, path string) <-chan string {
	t.Helper()
	got := make(chan string, 1)
	go func() {
		r, err := http.NewRequest("POST", "http://localhost/containers/"+path, nil)
		if err != nil {
			got <- err.Error()
			return
		}
		resp, err := k.client.Do(r)
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			got <- err.Error()
			return
		}
		got <- fmt.Sprintf("%d %s", resp.StatusCode, bytes.TrimSpace(b))
	}()
	return got
}

func (k *docks) box(t *testing.T) sandbox.Sandbox {
	t.Helper()
	page, err := k.Engine.List(sandbox.WithCaller(t.Context(), sandbox.Operator()), sandbox.ListQuery{})
	if err != nil || len(page.Sandboxes) != 1 {
		t.Fatalf("%d sandboxes, %v", len(page.Sandboxes), err)
	}
	return page.Sandboxes[0]
}

func TestLife(t *testing.T) {
	k := newDocks(t, false)
	k.must(t, 404, "GET", "/containers/"+name+"/json", "")
	k.must(t, 404, "DELETE", "/containers/"+name+"-proxy?force=true", "")
	k.sidecar(t, name)
	k.must(t, 409, "POST", "/containers/create?name="+name+"-proxy", `{"Cmd":["--http-ingress-address","x"]}`)
	k.must(t, 304, "POST", "/containers/"+name+"-proxy/start", "")
	k.create(t, name, vendorRef)
	k.must(t, 304, "POST", "/containers/"+name+"/start", "")
	if c := k.inspect(t, name); !c.State.Running || c.State.Status != "running" {
		t.Fatalf("it is %+v", c.State)
	}
	first := k.box(t)
	if first.State != sandbox.Running || first.Env["B"] != "x=y" || first.Policy == nil || first.Policy.Divert != docker.DiverterName {
		t.Fatalf("the sandbox is %+v", first)
	}

	ended := k.wait(t, name+"/wait")
	k.must(t, 204, "POST", "/containers/"+name+"/kill?signal=SIGTERM", "")
	if got := <-ended; got != `200 {"StatusCode":0}` {
		t.Fatalf("wait: %s", got)
	}
	k.must(t, 409, "POST", "/containers/"+name+"/kill?signal=SIGTERM", "")
	k.must(t, 304, "POST", "/containers/"+name+"/stop", "")
	if c := k.inspect(t, name); c.State.Running || c.State.Status != "exited" || c.State.ExitCode != 0 {
		t.Fatalf("it is %+v", c.State)
	}
	if s := k.box(t); s.State != sandbox.Paused || s.ID != first.ID {
		t.Fatalf("the sandbox is %s, %s", s.ID, s.State)
	}

	k.must(t, 201, "POST", "/containers/create?name="+name, fmt.Sprintf(`{"Image":%q,"Env":["A=2"],"HostConfig":{"NetworkMode":"container:%s-proxy"}}`, vendorRef, name))
	if env := k.box(t).Env; len(env) != 1 || env["A"] != "2" {
		t.Errorf("its environment is %v", env)
	}
	k.must(t, 204, "POST", "/containers/"+name+"/start", "") // it wakes
	if s := k.box(t); s.State != sandbox.Running || s.ID != first.ID {
		t.Fatalf("the sandbox is %s, %s", s.ID, s.State)
	}
	k.must(t, 409, "DELETE", "/containers/"+name, "")
	ended = k.wait(t, name+"/wait")
	removed := k.wait(t, name+"/wait?condition=removed")
	for range 2 { // both wait by now, or find what is left
		k.must(t, 200, "GET", "/containers/"+name+"/json", "")
	}
	k.must(t, 204, "DELETE", "/containers/"+name+"?force=true", "")
	for _, c := range []<-chan string{ended, removed} {
		if got := <-c; got != `200 {"StatusCode":137}` && !strings.HasPrefix(got, "404 ") {
			t.Fatalf("wait: %s", got)
		}
	}
	k.must(t, 404, "DELETE", "/containers/"+name+"?force=true", "")
	k.must(t, 404, "POST", "/containers/"+name+"/wait?condition=removed", "")
	k.must(t, 404, "POST", "/containers/"+name+"/start", "")
	k.must(t, 204, "DELETE", "/containers/"+name+"-proxy?force=true", "")
	page, err := k.Engine.List(sandbox.WithCaller(t.Context(), sandbox.Operator()), sandbox.ListQuery{})
	if err != nil || len(page.Sandboxes) != 0 {
		t.Fatalf("%d sandboxes are left, %v", len(page.Sandboxes), err)
	}
}

func TestForgetful(t *testing.T) {
	k := newDocks(t, true)
	k.sidecar(t, name)
	k.create(t, name, vendorRef)
	first := k.box(t)
	ended := k.wait(t, name+"/wait")
	k.must(t, 204, "POST", "/containers/"+name+"/kill?signal=15", "")
	if got := <-ended; got != `200 {"StatusCode":0}` {
		t.Fatalf("wait: %s", got)
	}
	k.must(t, 409, "POST", "/containers/create?name="+name, `{"Image":"`+vendorRef+`"}`)
	k.must(t, 204, "DELETE", "/containers/"+name+"?force=true", "")
	k.create(t, name, vendorRef)
	if s := k.box(t); s.ID == first.ID {
		t.Error("the new container has the old one's sandbox")
	}
}

func TestCommand(t *testing.T) {
	k := newDocks(t, false)
	image := func(ref string, entrypoint, cmd []string) string {
		n, err := docker.TemplateName(ref)
		if err != nil {
			t.Fatal(err)
		}
		k.images.programs[n] = [2][]string{entrypoint, cmd}
		return ref
	}
	for _, one := range []struct {
		name, image, want string
	}{
		{"ends", image("a/b:1", []string{"sh", "-c"}, []string{"sleep 0.2; exit 7"}), `200 {"StatusCode":7}`},
		{"ends-well", image("a/c", nil, []string{"sh", "-c", "sleep 0.2"}), `200 {"StatusCode":0}`},
		{"fails-behind-the-server", image("a/d", []string{"/sandbox"}, []string{"sh", "-c", "sleep 0.2; exit 3"}), `200 {"StatusCode":3}`},
	} {
		k.must(t, 201, "POST", "/containers/create?name="+one.name, fmt.Sprintf(`{"Image":%q}`, one.image))
		ended := k.wait(t, one.name+"/wait")
		k.must(t, 204, "POST", "/containers/"+one.name+"/start", "")
		if got := <-ended; got != one.want {
			t.Errorf("%s: wait: %s, want %s", one.name, got, one.want)
		}
		k.must(t, 204, "DELETE", "/containers/"+one.name+"?force=true", "")
	}

	// With the vendor's program before it, a command that ends well ends nothing.
	k.must(t, 201, "POST", "/containers/create?name=goes-on", fmt.Sprintf(`{"Image":%q,"Cmd":["sh","-c","true"]}`, image("a/e", []string{"/sandbox"}, nil)))
	k.must(t, 204, "POST", "/containers/goes-on/start", "")
	deadline := time.Now().Add(patience)
	for k.process(t) != "" {
		if time.Now().After(deadline) {
			t.Fatal("nobody has noticed the end of the command")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if c := k.inspect(t, "goes-on"); !c.State.Running {
		t.Errorf("it is %+v", c.State)
	}
	k.must(t, 204, "DELETE", "/containers/goes-on?force=true", "")

	// A signal ends a command, and the container with it.
	k.must(t, 201, "POST", "/containers/create?name=killed", fmt.Sprintf(`{"Image":%q}`, image("a/f", nil, []string{"sleep", "600"})))
	k.must(t, 204, "POST", "/containers/killed/start", "")
	ended := k.wait(t, "killed/wait")
	k.must(t, 204, "POST", "/containers/killed/kill", "")
	if got := <-ended; got != `200 {"StatusCode":137}` {
		t.Errorf("wait: %s", got)
	}
}

// process is the id of the command of the only container, as it is kept.
func (k *docks) process(t *testing.T) string {
	t.Helper()
	var kept struct {
		Process string `json:"process"`
	}
	if err := json.Unmarshal([]byte(k.box(t).Metadata["cloudflare.container"]), &kept); err != nil {
		t.Fatal(err)
	}
	return kept.Process
}

func TestAnotherServer(t *testing.T) {
	k := newDocks(t, false)
	n, err := docker.TemplateName("app")
	if err != nil {
		t.Fatal(err)
	}
	k.images.programs[n] = [2][]string{{"/sandbox"}, {"sleep", "600"}}
	port := k.sidecar(t, name)
	k.must(t, 201, "POST", "/containers/create?name="+name, fmt.Sprintf(`{"Image":"app","HostConfig":{"NetworkMode":"container:%s-proxy"}}`, name))
	k.must(t, 204, "POST", "/containers/"+name+"/start", "")
	put(t, port, "/egress", `{"port":4711,"dns":{"allowHostnames":["*.example"]},"internet":{"enabled":false}}`, 204)
	id := k.box(t).ID

	k.end()
	k.open(t)
	if c := k.inspect(t, name); !c.State.Running {
		t.Fatalf("it is %+v", c.State)
	}
	if got := k.inspect(t, name+"-proxy").NetworkSettings.Ports["39001/tcp"][0].HostPort; got != port {
		t.Errorf("the sidecar listens at %s, it was %s", got, port)
	}
	if known, served := k.egress.Name(id, "a.example"); !known || !served {
		t.Error("the names that are served were forgotten")
	}
	if known, _ := k.egress.Name(id, "example.com"); known {
		t.Error("the internet is open again")
	}
	if status, body := get(t, port, "127.0.0.1:3000", "/x"); status != 200 || body != string(id)+" serves /x" {
		t.Errorf("the way in: %d %s", status, body)
	}
	ended := k.wait(t, name+"/wait")
	if err := k.Engine.Signal(sandbox.WithCaller(t.Context(), sandbox.Operator()), string(id), k.process(t), "SIGKILL"); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; got != `200 {"StatusCode":137}` {
		t.Errorf("wait: %s", got)
	}
}

// TestFromElsewhere ends a container by verbs that know nothing of it.
func TestFromElsewhere(t *testing.T) {
	k := newDocks(t, false)
	k.sidecar(t, name)
	k.create(t, name, vendorRef)
	ctx := sandbox.WithCaller(t.Context(), sandbox.Operator())
	if _, err := k.Engine.Pause(ctx, string(k.box(t).ID)); err != nil {
		t.Fatal(err)
	}
	if c := k.inspect(t, name); !c.State.Running { // a call wakes it
		t.Fatalf("it is %+v", c.State)
	}
	ended := k.wait(t, name+"/wait")
	if _, err := k.Engine.Stop(ctx, string(k.box(t).ID)); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; got != `200 {"StatusCode":137}` {
		t.Errorf("wait: %s", got)
	}
	ended = k.wait(t, name+"/wait?condition=removed")
	k.must(t, 200, "GET", "/containers/"+name+"/json", "")
	if err := k.Engine.Remove(ctx, string(k.box(t).ID)); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; got != `200 {"StatusCode":137}` && !strings.HasPrefix(got, "404 ") {
		t.Errorf("wait: %s", got)
	}
}
