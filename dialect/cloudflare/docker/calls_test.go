package docker_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

func TestCalls(t *testing.T) {
	k := newDocks(t, false)
	for _, one := range []struct {
		method, path, body string
		status             int
		has                string
	}{
		{"GET", "/_ping", "", 200, "OK"},
		{"GET", "/v1.47/_ping", "", 200, "OK"},
		{"GET", "/version", "", 200, `"ApiVersion"`},
		{"GET", "/info", "", 200, `"SecurityOptions":[]`},
		{"GET", `/volumes?filters=%7B%22name%22%3A%5B%22workerd-snap-%22%5D%7D`, "", 200, `"Volumes":[]`},
		{"GET", "/networks/bridge", "", 200, `"Gateway":"127.0.0.1"`},
		{"GET", "/containers/json?all=1", "", 200, "[]"},
		{"GET", "/images/" + vendorRef + "/json", "", 200, `"Entrypoint":["/sandbox"]`},
		{"GET", "/images/no/such:1/json", "", 404, "No such image"},
		{"DELETE", "/images/no/such:1", "", 404, "No such image"},
		{"POST", "/containers/create?name=x", `{"Image":"no/such:1"}`, 404, "No such image: no/such:1"},
		{"POST", "/containers/create?name=x", `{"Image":""}`, 404, "No such image"},
		{"POST", "/containers/create?name=x", `{"Image":"../../etc/passwd"}`, 404, "No such image"},
		{"POST", "/containers/create?name=..%2Fx", `{"Image":"` + vendorRef + `"}`, 400, "not a container's name"},
		{"POST", "/containers/create?name=" + strings.Repeat("a", 600), `{"Image":"` + vendorRef + `"}`, 400, "not a container's name"},
		{"POST", "/containers/create?name=x%00y", `{"Image":"` + vendorRef + `"}`, 400, "not a container's name"},
		{"POST", "/containers/create?name=x", `{"Image"`, 400, "read request"},
		{"POST", "/containers/create?name=x", `[]`, 400, "read request"},
		{"POST", "/containers/create?name=x", `{"Image":"` + strings.Repeat("x", 2<<20) + `"}`, 400, "more than 1048576 bytes"},
		{"POST", "/containers/create?name=x", `{"Image":"` + vendorRef + `","Env":["no-equals"]}`, 400, "NAME=VALUE"},
		{"POST", "/containers/create?name=x", `{"Image":"` + vendorRef + `","WorkingDir":"relative"}`, 400, "not absolute"},
		{"POST", "/containers/create?name=x", `{"Image":"` + vendorRef + `","HostConfig":{"Binds":["/:/host"]}}`, 501, "not mounted"},
		{"POST", "/containers/create?name=x", `{"Image":"` + vendorRef + `","HostConfig":{"Mounts":[{"Type":"bind","Source":"/","Target":"/host"}]}}`, 501, "not mounted"},
		{"POST", "/containers/create?name=x", `{"Image":"` + vendorRef + `","HostConfig":{"Binds":["./here:/host:ro"]}}`, 501, "not mounted"},
		{"POST", "/containers/create?name=x", `{"Image":"` + vendorRef + `","HostConfig":{"Binds":["kept:/host"]}}`, 501, "keeps no volumes"},
		{"POST", "/containers/create?name=x", `{"Image":"` + vendorRef + `","HostConfig":{"Binds":["kept"]}}`, 400, "not absolute"},
		{"POST", "/containers/create?name=x", `{"Image":"` + vendorRef + `","HostConfig":{"Privileged":true}}`, 501, "privileges"},
		{"POST", "/containers/create?name=x", `{"Image":"` + vendorRef + `","HostConfig":{"Devices":[{}]}}`, 501, "devices"},
		{"POST", "/containers/create?name=x", `{"Image":"` + vendorRef + `","HostConfig":{"NetworkMode":"container:none"}}`, 404, "No such container"},
		{"POST", "/containers/x/start", "", 404, "No such container"},
		{"POST", "/containers/x/wait", "", 404, "No such container"},
		{"POST", "/containers/x/kill?signal=SIGTERM", "", 404, "No such container"},
		{"POST", "/containers/x/kill?signal=SIGNOTHING", "", 400, "no signal"},
		{"POST", "/containers/x/stop", "", 404, "No such container"},
		{"POST", "/containers/x/stop?t=soon", "", 400, "seconds"},
		{"DELETE", "/containers/x", "", 404, "No such container"},
		{"POST", "/containers/x/exec", `{"Cmd":["true"]}`, 404, "No such container"},
		{"GET", "/containers/x/archive?path=/", "", 404, "No such container"},
		{"PUT", "/containers/x/archive?path=/etc", "", 404, "No such container"},
		{"POST", "/exec/0000/start", "{}", 404, "No such exec instance"},
		{"GET", "/exec/0000/json", "", 404, "No such exec instance"},
		{"POST", "/commit?container=x&repo=r", "", 404, "No such container"},
		{"POST", "/volumes/create", `{"Name":"workerd-snap-1"}`, 501, "volume"},
		{"GET", "/volumes/workerd-snap-1", "", 501, "volume"},
		{"DELETE", "/volumes/workerd-snap-1", "", 501, "volume"},
		{"GET", "/volumes?filters=x", "", 400, "filters"},
		{"POST", "/containers/create?name=x", `{"Image":"` + vendorRef + `","HostConfig":{"Mounts":[{"Type":"volume","Target":"/host"}]}}`, 400, "names no volume"},
		{"POST", "/containers/create?name=x", `{"Image":"` + vendorRef + `","Entrypoint":[{}]}`, 400, "read request"},
		{"GET", "/swarm", "", 404, "page not found"},
		{"POST", "/build", "", 404, "page not found"},
	} {
		status, text := k.call(t, one.method, one.path, one.body)
		if status != one.status || !strings.Contains(text, one.has) {
			t.Errorf("%s %.80s %.60s: %d %.200s; want %d with %q", one.method, one.path, one.body, status, text, one.status, one.has)
		}
		if status >= 400 && !json.Valid([]byte(text)) {
			t.Errorf("%s %.80s: %s", one.method, one.path, text)
		}
	}
}

func TestArchive(t *testing.T) {
	k := newDocks(t, false)
	k.must(t, 201, "POST", "/containers/create?name=box", `{"Image":"`+vendorRef+`"}`)
	const dir = "/in" // of the sandbox
	ctx := sandbox.WithCaller(t.Context(), sandbox.Operator())
	if _, err := k.Engine.MakeDir(ctx, string(k.box(t).ID), dir, 0o755, "", true); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, one := range []struct{ name, text string }{{"certs/", ""}, {"certs/ca.crt", "PEM"}} {
		h := &tar.Header{Name: one.name, Mode: 0o755, Size: int64(len(one.text)), Typeflag: tar.TypeReg}
		if one.text == "" {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, one.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	k.must(t, 200, "PUT", "/containers/box/archive?path="+dir, b.String()) // before it runs, as workerd does
	k.must(t, 404, "PUT", "/containers/box/archive?path="+dir+"/none", b.String())
	k.must(t, 400, "PUT", "/containers/box/archive?path="+dir+"/certs/ca.crt", b.String())
	k.must(t, 400, "PUT", "/containers/box/archive?path="+dir, "this is no tar stream")

	for path, want := range map[string]string{
		dir + "/certs/.":      "ca.crt=PEM",
		dir + "/certs":        "certs/ca.crt=PEM",
		dir + "/certs/ca.crt": "ca.crt=PEM",
	} {
		files := []string{}
		in := tar.NewReader(strings.NewReader(k.must(t, 200, "GET", "/containers/box/archive?path="+path, "")))
		for {
			h, err := in.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			text, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				files = append(files, strings.TrimPrefix(h.Name, "./")+"="+string(text))
			}
		}
		if got := strings.Join(files, " "); got != want {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
	}
	k.must(t, 404, "GET", "/containers/box/archive?path="+dir+"/none", "")
}

func TestExec(t *testing.T) {
	k := newDocks(t, false)
	k.must(t, 201, "POST", "/containers/create?name=box", `{"Image":"`+vendorRef+`"}`)
	k.must(t, 409, "POST", "/containers/box/exec", `{"Cmd":["true"]}`)
	k.must(t, 204, "POST", "/containers/box/start", "")
	k.must(t, 400, "POST", "/containers/box/exec", `{"Cmd":[]}`)
	create := func(body string) string {
		var made struct{ Id string }
		if err := json.Unmarshal([]byte(k.must(t, 201, "POST", "/containers/box/exec", body)), &made); err != nil {
			t.Fatal(err)
		}
		return made.Id
	}

	id := create(`{"Cmd":["sh","-c","cat; echo $X >&2; exit 5"],"Env":["X=err"],"AttachStdin":true,"AttachStdout":true,"AttachStderr":true}`)
	c, in := k.upgrade(t, id, `{"Detach":false,"Tty":false}`)
	if _, err := io.WriteString(c, "to and fro"); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	out := map[byte]string{}
	for {
		var head [8]byte
		if _, err := io.ReadFull(in, head[:]); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, binary.BigEndian.Uint32(head[4:]))
		if _, err := io.ReadFull(in, b); err != nil {
			t.Fatal(err)
		}
		out[head[0]] += string(b)
	}
	if out[1] != "to and fro" || out[2] != "err\n" {
		t.Errorf("it wrote %q", out)
	}
	if got := k.must(t, 200, "GET", "/exec/"+id+"/json", ""); !strings.Contains(got, `"Running":false`) || !strings.Contains(got, `"ExitCode":5`) {
		t.Errorf("it is %s", got)
	}
	k.must(t, 409, "POST", "/exec/"+id+"/start", "{}")
	k.must(t, 409, "POST", "/exec/"+id+"/resize?h=10&w=20", "")

	id = create(`{"Cmd":["sh","-c","stty size; read x; stty size"],"Tty":true,"AttachStdin":true,"AttachStdout":true}`)
	c, in = k.upgrade(t, id, `{"Tty":true}`)
	line := func() string {
		text, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(text)
	}
	if got := line(); got != "24 80" {
		t.Errorf("the terminal is %q", got)
	}
	k.must(t, 200, "POST", "/exec/"+id+"/resize?h=10&w=20", "")
	if _, err := io.WriteString(c, "go\r"); err != nil {
		t.Fatal(err)
	}
	if got := line() + line(); !strings.HasSuffix(got, "10 20") {
		t.Errorf("the terminal is %q", got)
	}
	c.Close()

	id = create(`{"Cmd":["/no/such/program"],"AttachStdout":true}`)
	if status, text := k.call(t, "POST", "/exec/"+id+"/start", "{}"); status < 400 {
		t.Errorf("a program that is not there: %d %s", status, text)
	}
	mark := filepath.Join(t.TempDir(), "mark")
	id = create(fmt.Sprintf(`{"Cmd":["touch",%q]}`, mark))
	k.must(t, 200, "POST", "/exec/"+id+"/start", `{"Detach":true}`)
	deadline := time.Now().Add(patience)
	for !strings.Contains(k.must(t, 200, "GET", "/exec/"+id+"/json", ""), `"ExitCode":0`) {
		if time.Now().After(deadline) {
			t.Fatal("the command does not end")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Error(err)
	}
}

// upgrade starts a command and takes its connection over.
func (k *docks) upgrade(t *testing.T, id, body string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("unix", k.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST /exec/%s/start HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body)
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("start: %s", resp.Status)
	}
	return c, in
}
