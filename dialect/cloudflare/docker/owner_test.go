package docker_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// makerVariable has this program be a maker of containers: another process, which makes
// the calls that it is told, line by line, of the socket that the variable names.
const makerVariable = "BERTH_TEST_MAKER"

func TestMain(m *testing.M) {
	if socket := os.Getenv(makerVariable); socket != "" {
		makeCalls(socket)
		return
	}
	os.Exit(m.Run())
}

func makeCalls(socket string) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.SplitN(lines.Text(), " ", 3)
		r, err := http.NewRequest(words[0], "http://localhost"+words[1], strings.NewReader(words[2]))
		if err != nil {
			fmt.Println(err)
			continue
		}
		resp, err := client.Do(r)
		if err != nil {
			fmt.Println(err)
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
}

// maker starts such a process; its parent is no process of the test's.
func (k *docks) maker(t *testing.T) (call func(want, line string), end func()) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `"$0"; :`, program)
	cmd.Env = append(os.Environ(), makerVariable+"="+k.socket)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	call = func(want, line string) {
		t.Helper()
		if _, err := fmt.Fprintln(in, line); err != nil {
			t.Fatal(err)
		}
		if !said.Scan() || said.Text() != want {
			t.Fatalf("%s: %q, want %s", line, said.Text(), want)
		}
	}
	return call, func() {
		t.Helper()
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// eventually waits until the sandboxes there are fit.
func (k *docks) eventually(t *testing.T, what string, fit func([]sandbox.Sandbox) bool) {
	t.Helper()
	ctx := sandbox.WithCaller(t.Context(), sandbox.Operator())
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		page, err := k.Engine.List(ctx, sandbox.ListQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if fit(page.Sandboxes) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: there is %+v", what, page.Sandboxes)
		}
	}
}

// TestMakerGone has the process end, without a word, that has containers run: that of a
// session goes, and another one sleeps until somebody comes to it.
func TestMakerGone(t *testing.T) {
	k := newDocks(t, false)
	k.end()
	k.orphan = time.Nanosecond
	k.open(t)

	call, end := k.maker(t)
	label := `"Labels":{"dev.workerd.session":"1"}`
	call("201", "POST /containers/create?name="+name+"-proxy {\"Image\":\"p\",\"Cmd\":[\"--http-ingress-address\",\"x\"],"+label+"}")
	call("204", "POST /containers/"+name+"-proxy/start ")
	call("201", fmt.Sprintf(`POST /containers/create?name=%s {"Image":%q,%s,"HostConfig":{"NetworkMode":"container:%s-proxy"}}`, name, vendorRef, label, name))
	call("204", "POST /containers/"+name+"/start ")
	k.box(t)
	end()
	k.eventually(t, "the session is over", func(all []sandbox.Sandbox) bool { return len(all) == 0 })
	k.must(t, 404, "GET", "/containers/"+name+"-proxy/json", "")

	call, end = k.maker(t)
	call("201", "POST /containers/create?name="+name+"-proxy {\"Image\":\"p\",\"Cmd\":[\"--http-ingress-address\",\"x\"]}")
	call("204", "POST /containers/"+name+"-proxy/start ")
	call("201", fmt.Sprintf(`POST /containers/create?name=%s {"Image":%q,"HostConfig":{"NetworkMode":"container:%s-proxy"}}`, name, vendorRef, name))
	call("204", "POST /containers/"+name+"/start ")
	first := k.box(t)
	end()
	k.eventually(t, "it sleeps", func(all []sandbox.Sandbox) bool { return len(all) == 1 && all[0].State == sandbox.Paused })
	if c := k.inspect(t, name); !c.State.Running {
		t.Errorf("it seems to be %+v", c.State)
	}
	ended := k.wait(t, name+"/wait") // the next workerd has it run
	port := k.inspect(t, name+"-proxy").NetworkSettings.Ports["39001/tcp"][0].HostPort
	if status, text := get(t, port, "127.0.0.1:3000", "/x"); status != 200 || !strings.Contains(text, string(first.ID)) {
		t.Fatalf("called: %d %s", status, text)
	}
	k.must(t, 204, "POST", "/containers/"+name+"/kill?signal=SIGTERM", "")
	if got := <-ended; got != `200 {"StatusCode":0}` {
		t.Errorf("wait: %s", got)
	}
}

// TestSessionOver has a session end whose container sleeps, and was removed by workerd:
// it is listed and removed with the others of the session, and nothing of it stays.
func TestSessionOver(t *testing.T) {
	k := newDocks(t, false)
	labels := `"Labels":{"dev.workerd.session":"1"}`
	k.must(t, 201, "POST", "/containers/create?name="+name, fmt.Sprintf(`{"Image":%q,%s}`, vendorRef, labels))
	k.must(t, 204, "POST", "/containers/"+name+"/start", "")
	id := k.inspect(t, name).ID
	k.must(t, 204, "POST", "/containers/"+name+"/kill?signal=SIGTERM", "")
	k.must(t, 204, "DELETE", "/containers/"+name+"?force=true", "")
	if got := k.must(t, 200, "GET", "/containers/json?all=1", ""); strings.Contains(got, name) {
		t.Errorf("it is among %s", got)
	}
	ofSession := "/containers/json?all=1&filters=%7B%22label%22%3A%5B%22dev.workerd.session%3D1%22%5D%7D"
	if got := k.must(t, 200, "GET", ofSession, ""); !strings.Contains(got, id) {
		t.Fatalf("of the session there is %s", got)
	}
	k.must(t, 204, "DELETE", "/containers/"+id+"?force=1", "")
	if got := k.must(t, 200, "GET", ofSession, ""); strings.TrimSpace(got) != "[]" {
		t.Errorf("of the session there is still %s", got)
	}
	k.eventually(t, "nothing stays", func(all []sandbox.Sandbox) bool { return len(all) == 0 })
}
