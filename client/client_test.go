package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/served"
)

var _ api.Engine = (*client.Client)(nil)

// both gives a test the same server from within and from without: what works on
// one works on the other.
func both(t *testing.T, f func(t *testing.T, verbs api.Engine)) {
	t.Run("local", func(t *testing.T) { f(t, served.Start(t).Engine) })
	t.Run("remote", func(t *testing.T) { f(t, remote(t)) })
}

func remote(t *testing.T) *client.Client {
	c := client.New(served.Start(t).URL, served.Key)
	t.Cleanup(func() { c.Close() })
	return c
}

func create(t *testing.T, v api.Engine) string {
	t.Helper()
	s, err := v.Create(asOperator(t), sandbox.CreateRequest{Metadata: map[string]string{"a b": "c&d"}})
	if err != nil {
		t.Fatal(err)
	}
	return string(s.ID)
}

func wantKind(t *testing.T, err error, kind sandbox.Kind) {
	t.Helper()
	if sandbox.KindOf(err) != kind {
		t.Fatalf("error of kind %q, want %q: %v", sandbox.KindOf(err), kind, err)
	}
}

func TestSandboxes(t *testing.T) {
	both(t, func(t *testing.T, v api.Engine) {
		id := create(t, v)
		other := create(t, v)
		if s, err := v.Get(asOperator(t), id); err != nil || s.State != sandbox.Running || s.Metadata["a b"] != "c&d" {
			t.Errorf("got %+v, %v", s, err)
		}
		q := sandbox.ListQuery{Limit: 1, States: []sandbox.State{sandbox.Running}, Template: "base", Metadata: map[string]string{"a b": "c&d"}}
		p, err := v.List(asOperator(t), q)
		if err != nil || len(p.Sandboxes) != 1 || string(p.Sandboxes[0].ID) != other {
			t.Fatalf("first page %+v, %v", p, err)
		}
		q.After = p.Next
		if p, err = v.List(asOperator(t), q); err != nil || len(p.Sandboxes) != 1 || string(p.Sandboxes[0].ID) != id || p.Next != "" {
			t.Fatalf("second page %+v, %v", p, err)
		}
		if st, err := v.Status(asOperator(t)); err != nil || st.Sandboxes[sandbox.Running] != 2 {
			t.Errorf("status %+v, %v", st, err)
		}
		if err := v.Remove(asOperator(t), id); err != nil {
			t.Fatal(err)
		}
		err = v.Remove(asOperator(t), id)
		wantKind(t, err, sandbox.NotFound)
		if !strings.Contains(sandbox.HintOf(err), "berth ls") || !strings.HasPrefix(err.Error(), "remove "+id+": ") {
			t.Errorf("error %q, hint %q", err, sandbox.HintOf(err))
		}
		_, err = v.Get(asOperator(t), "not/an/id")
		wantKind(t, err, sandbox.Invalid)
		_, err = v.Create(asOperator(t), sandbox.CreateRequest{Template: "nope"})
		wantKind(t, err, sandbox.NotFound)
	})
}

// outcome reads a stream to its end.
func outcome(t *testing.T, events sandbox.Events) (out, errs string, exit sandbox.Exit) {
	t.Helper()
	defer events.Close()
	for i := 0; ; i++ {
		e, err := events.Recv()
		if err == io.EOF {
			return out, errs, exit
		}
		switch {
		case err != nil:
			t.Fatal(err)
		case (i == 0) != (e.Started != nil):
			t.Fatalf("event %d is %+v", i, e)
		case e.Exit != nil:
			exit = *e.Exit
		case e.Stream == sandbox.Stdout:
			out += string(e.Data)
		case e.Stream == sandbox.Stderr:
			errs += string(e.Data)
		}
	}
}

func TestProcesses(t *testing.T) {
	both(t, func(t *testing.T, v api.Engine) {
		ctx, id := asOperator(t), create(t, v)
		events, err := v.Exec(ctx, id, sandbox.Command{Shell: "printf o; printf e >&2; exit 4"})
		if err != nil {
			t.Fatal(err)
		}
		if out, errs, exit := outcome(t, events); out != "o" || errs != "e" || exit.Code != 4 {
			t.Errorf("got %q, %q, %+v", out, errs, exit)
		}
		events, err = v.Exec(ctx, id, sandbox.Command{Argv: []string{"cat"}, Name: "my-cat", Stdin: true, Lossless: true})
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Repeat("0123456789abcde\n", 100_000)
		done := make(chan error, 1)
		go func() {
			done <- errors.Join(v.Input(ctx, id, "my-cat", strings.NewReader(text)), v.CloseInput(ctx, id, "my-cat"))
		}()
		out, _, exit := outcome(t, events)
		if err := <-done; err != nil || out != text || exit.Code != 0 {
			t.Errorf("cat gave %d bytes of %d, %+v, %v", len(out), len(text), exit, err)
		}
		all, err := v.Processes(ctx, id)
		if err != nil || len(all) != 2 {
			t.Fatalf("processes %+v, %v", all, err)
		}
		_, err = v.Exec(ctx, id, sandbox.Command{})
		wantKind(t, err, sandbox.Invalid)
		_, err = v.Exec(ctx, id, sandbox.Command{Argv: []string{"/no/such"}})
		wantKind(t, err, sandbox.NotFound)
	})
}

func TestAttachAndSignal(t *testing.T) {
	both(t, func(t *testing.T, v api.Engine) {
		ctx, id := asOperator(t), create(t, v)
		events, err := v.Exec(ctx, id, sandbox.Command{Shell: "echo 0123; exec sleep 1000", Detach: true})
		if err != nil {
			t.Fatal(err)
		}
		started, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := events.Recv(); err != nil { // its output: it is past the shell's start
			t.Fatal(err)
		}
		if err := errors.Join(events.Close(), events.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
		p := started.Started.ID
		again, err := v.Attach(ctx, id, p, sandbox.Offsets{Stdout: 2})
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Signal(ctx, id, p, "KILL"); err != nil {
			t.Fatal(err)
		}
		if out, _, exit := outcome(t, again); out != "23\n" || exit.Signal != "SIGKILL" {
			t.Errorf("attached: %q, %+v", out, exit)
		}
		if exit, err := v.WaitProcess(ctx, id, p); err != nil || exit.Code != 137 {
			t.Errorf("waited: %+v, %v", exit, err)
		}
		_, err = v.Attach(ctx, id, "nope", sandbox.Offsets{})
		wantKind(t, err, sandbox.NotFound)
		wantKind(t, v.Signal(ctx, id, p, ""), sandbox.Invalid)
	})
}

func TestStreamEndsWithItsContext(t *testing.T) {
	both(t, func(t *testing.T, v api.Engine) {
		id := create(t, v)
		ctx, cancel := context.WithCancel(asOperator(t))
		events, err := v.Exec(ctx, id, sandbox.Command{Argv: []string{"sleep", "1000"}})
		if err != nil {
			t.Fatal(err)
		}
		defer events.Close()
		started, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := events.Recv(); !errors.Is(err, context.Canceled) {
			t.Errorf("the stream ends with %v", err)
		}
		// Not detached, the process ends with its stream.
		if exit, err := v.WaitProcess(asOperator(t), id, started.Started.ID); err != nil || exit.Signal == "" {
			t.Errorf("waited: %+v, %v", exit, err)
		}
	})
}

func TestStreamOfARemovedSandbox(t *testing.T) {
	both(t, func(t *testing.T, v api.Engine) {
		id := create(t, v)
		events, err := v.Exec(asOperator(t), id, sandbox.Command{Argv: []string{"sleep", "1000"}})
		if err != nil {
			t.Fatal(err)
		}
		defer events.Close()
		if _, err := events.Recv(); err != nil {
			t.Fatal(err)
		}
		if err := v.Remove(asOperator(t), id); err != nil {
			t.Fatal(err)
		}
		for err == nil {
			var e sandbox.Event
			if e, err = events.Recv(); e.Exit != nil {
				return // the guest had the time to say how it ended
			}
		}
		wantKind(t, err, sandbox.NotFound)
	})
}

func TestFiles(t *testing.T) {
	both(t, func(t *testing.T, v api.Engine) {
		ctx, id := asOperator(t), create(t, v)
		const path = "/dir/ü %2F?&#.bin"
		data := bytes.Repeat([]byte{0, 1, 2, 0xff}, 1<<20)
		fi, err := v.WriteFile(ctx, id, path, sandbox.WriteOptions{Mode: 0o640, Parents: true}, bytes.NewReader(data))
		if err != nil || fi.Size != int64(len(data)) || fi.Mode != 0o640 {
			t.Fatalf("written %+v, %v", fi, err)
		}
		for r, want := range map[sandbox.ReadRange][]byte{{}: data, {Offset: 2, Length: 3}: data[2:5], {Offset: int64(len(data)) - 1}: data[len(data)-1:]} {
			body, fi, err := v.ReadFile(ctx, id, path, r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(body)
			body.Close()
			if err != nil || !bytes.Equal(got, want) || fi.Path != path || fi.Size != int64(len(data)) {
				t.Errorf("%+v: %d bytes of %+v, %v", r, len(got), fi, err)
			}
		}
		if fi, err := v.MakeDir(ctx, id, "/dir/sub", 0, "", false); err != nil || fi.Mode != 0o755 {
			t.Errorf("made %+v, %v", fi, err)
		}
		if all, more, err := v.ListDir(ctx, id, "/dir", 1, 1, ""); err != nil || len(all) != 1 || !more {
			t.Errorf("listed %+v, %v, %v", all, more, err)
		} else if rest, more, err := v.ListDir(ctx, id, "/dir", 1, 0, all[0].Path); err != nil || len(rest) != 1 || more {
			t.Errorf("listed the rest %+v, %v, %v", rest, more, err)
		}
		if err := v.Move(ctx, id, path, "/dir/sub/x", false); err != nil {
			t.Error(err)
		}
		if fi, err := v.Stat(ctx, id, "/dir/sub/x", true); err != nil || fi.Type != sandbox.TypeFile {
			t.Errorf("stat %+v, %v", fi, err)
		}
		wantKind(t, v.RemoveFile(ctx, id, "/dir", false), sandbox.Conflict)
		if err := v.RemoveFile(ctx, id, "/dir", true); err != nil {
			t.Error(err)
		}
		_, _, err = v.ReadFile(ctx, id, "/dir/sub/x", sandbox.ReadRange{})
		wantKind(t, err, sandbox.NotFound)
		_, err = v.Stat(ctx, id, "relative", false)
		wantKind(t, err, sandbox.Invalid)
		if _, err := v.WriteFile(ctx, id, "/empty", sandbox.WriteOptions{}, strings.NewReader("")); err != nil {
			t.Error(err)
		}
	})
}

// cable is a source that breaks.
type cable struct{ err error }

func (c cable) Read(b []byte) (int, error) { return 0, c.err }

func TestUploadWhoseSourceBreaks(t *testing.T) {
	both(t, func(t *testing.T, v api.Engine) {
		id := create(t, v)
		out := errors.New("the cable is out")
		_, err := v.WriteFile(asOperator(t), id, "/f", sandbox.WriteOptions{}, io.MultiReader(strings.NewReader("part"), cable{out}))
		if !errors.Is(err, out) {
			t.Errorf("got %v", err)
		}
		_, err = v.Stat(asOperator(t), id, "/f", false)
		wantKind(t, err, sandbox.NotFound)
	})
}

func TestTemplates(t *testing.T) {
	both(t, func(t *testing.T, v api.Engine) {
		ctx := asOperator(t)
		var steps []string
		got, err := v.BuildTemplate(ctx, sandbox.BuildRequest{Name: "mine", From: "oci:example"}, func(p sandbox.Progress) { steps = append(steps, p.Step) })
		if err != nil || got.Name != "mine" || strings.Join(steps, " ") != "download pack" {
			t.Fatalf("built %+v in %v, %v", got, steps, err)
		}
		_, err = v.BuildTemplate(ctx, sandbox.BuildRequest{Name: "bad", From: "oci:broken"}, nil)
		wantKind(t, err, sandbox.Invalid)
		if !strings.Contains(err.Error(), "it is not an image") {
			t.Errorf("text: %v", err)
		}
		if all, err := v.Templates(ctx); err != nil || len(all) != 2 {
			t.Errorf("listed %+v, %v", all, err)
		}
		if one, err := v.Template(ctx, "mine"); err != nil || one.Digest != got.Digest {
			t.Errorf("got %+v, %v", one, err)
		}
		if err := v.RemoveTemplate(ctx, "mine"); err != nil {
			t.Error(err)
		}
		wantKind(t, v.RemoveTemplate(ctx, "mine"), sandbox.NotFound)
		stopped, cancel := context.WithCancel(ctx)
		_, err = v.BuildTemplate(stopped, sandbox.BuildRequest{Name: "mine", From: "oci:endless"}, func(sandbox.Progress) { cancel() })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a build that was stopped: %v", err)
		}
	})
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = client.New("http://"+l.Addr().String(), "k").Status(asOperator(t))
	wantKind(t, err, sandbox.Unavailable)
	if sandbox.HintOf(err) != "start a server with: berth serve" {
		t.Errorf("hint %q", sandbox.HintOf(err))
	}
	for _, u := range []string{"127.0.0.1:7070", "ftp://x", "http://", "::"} {
		_, err := client.New(u, "k").Status(asOperator(t))
		wantKind(t, err, sandbox.Invalid)
	}
	_, err = client.New(served.Start(t).URL, "berth_wrong").Status(asOperator(t))
	wantKind(t, err, sandbox.Unauthorized)
}

func TestAnotherServer(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	_, err := client.New(s.URL, "k").Status(asOperator(t))
	wantKind(t, err, sandbox.Unavailable)
	if !strings.Contains(err.Error(), "404") {
		t.Errorf("text: %v", err)
	}
}
