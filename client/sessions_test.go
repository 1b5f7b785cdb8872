package client_test

import (
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/sandbox"
)

func TestSessions(t *testing.T) {
	both(t, func(t *testing.T, v api.Engine) {
		ctx, id := asOperator(t), create(t, v)
		s, created, err := v.OpenSession(ctx, id, sandbox.SessionOptions{Name: "work", Cwd: "/tmp"})
		if err != nil || !created || s.Cwd != "/tmp" {
			t.Fatalf("open: %+v %v %v", s, created, err)
		}
		if _, created, err = v.OpenSession(ctx, id, sandbox.SessionOptions{Name: "work"}); err != nil || created {
			t.Errorf("again: %v %v", created, err)
		}
		run := func(cmd sandbox.Command) (string, sandbox.Exit) {
			t.Helper()
			events, err := v.RunInSession(ctx, id, "work", cmd)
			if err != nil {
				t.Fatal(err)
			}
			out, _, exit := outcome(t, events)
			return out, exit
		}
		if _, exit := run(sandbox.Command{Shell: "A=1; exit 3"}); exit.Code != 3 || exit.Restarted == "" {
			t.Errorf("exit: %+v", exit)
		}
		if out, _ := run(sandbox.Command{Argv: []string{"eval", "echo $A"}}); out != "1\n" {
			t.Errorf("kept: %q", out)
		}
		_, err = v.RunInSession(ctx, id, "work", sandbox.Command{Shell: "x", Cwd: "/"})
		wantKind(t, err, sandbox.Invalid)
		_, err = v.RunInSession(ctx, id, "none", sandbox.Command{Shell: "x"})
		wantKind(t, err, sandbox.NotFound)

		// Whoever leaves a command's stream ends the command.
		events, err := v.RunInSession(ctx, id, "work", sandbox.Command{Shell: "echo begun; sleep 1000"})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := events.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		if err := events.Close(); err != nil {
			t.Error(err)
		}
		if out, _ := run(sandbox.Command{Shell: "echo $A"}); out != "1\n" {
			t.Errorf("kept: %q", out)
		}
		events, err = v.RunInSession(ctx, id, "work", sandbox.Command{Shell: "sleep 1000", Detach: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := events.Close(); err != nil {
			t.Error(err)
		}
		if n, err := v.CancelSession(ctx, id, "work", ""); err != nil || n != 1 {
			t.Errorf("cancelled %d, %v", n, err)
		}
		if all, err := v.Sessions(ctx, id); err != nil || len(all) != 1 || all[0].Name != "work" {
			t.Errorf("list: %+v %v", all, err)
		}
		if err := v.CloseSession(ctx, id, "work"); err != nil {
			t.Error(err)
		}
		wantKind(t, v.CloseSession(ctx, id, "work"), sandbox.NotFound)
	})
}

func TestBackground(t *testing.T) {
	both(t, func(t *testing.T, v api.Engine) {
		ctx, id := asOperator(t), create(t, v)
		p, err := v.StartProcess(ctx, id, sandbox.Command{Shell: "echo listening; sleep 1000", Name: "bg"})
		if err != nil {
			t.Fatal(err)
		}
		if l, err := v.WaitLine(ctx, id, "bg", sandbox.LineWait{Regexp: "^list", Stream: sandbox.Stdout}); err != nil || l.Text != "listening" {
			t.Errorf("line: %+v %v", l, err)
		}
		_, err = v.WaitPort(ctx, id, p.ID, sandbox.PortWait{Port: 1, Timeout: 20 * time.Millisecond})
		wantKind(t, err, sandbox.Timeout)
		if u, err := v.Usage(ctx, id); err != nil || u.Processes == 0 || u.MemoryBytes == 0 {
			t.Errorf("usage: %+v %v", u, err)
		}
		if exit, err := v.RemoveProcess(ctx, id, p.ID); err != nil || exit.Signal != "SIGKILL" {
			t.Errorf("removed: %+v %v", exit, err)
		}
		_, err = v.WaitProcess(ctx, id, p.ID)
		wantKind(t, err, sandbox.NotFound)
		p, err = v.StartProcess(ctx, id, sandbox.Command{Argv: []string{"true"}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = v.WaitLine(ctx, id, p.ID, sandbox.LineWait{Text: "x"})
		wantKind(t, err, sandbox.Conflict)
		_, err = v.StartProcess(ctx, id, sandbox.Command{})
		wantKind(t, err, sandbox.Invalid)
	})
}
