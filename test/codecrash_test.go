package test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

// TestCodeOutlivesAKill kills the server at moments spread over each verb of code
// contexts. They are in the sandbox alone: whatever was acknowledged is so for the next
// server, what was not is done or not, and doing it again does it.
func TestCodeOutlivesAKill(t *testing.T) {
	s := rig.Start(t)
	s.CodeTemplate(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	box, err := s.Create(ctx, sandbox.CreateRequest{Name: "box", Template: sandbox.CodeTemplate})
	if err != nil {
		t.Fatal(err)
	}
	c := &coder{s, ctx, string(box.ID)}
	c.run(t, sandbox.CodeRun{Code: "x = 41"})
	events, err := c.RunCode(ctx, c.id, sandbox.CodeRun{Code: "import os, time\nwhile not os.path.exists('/tmp/go'): time.sleep(0.1)\nprint('went', x)", Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	first, err := events.Recv()
	if err != nil || first.Run == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	events.Close()
	for _, verb := range []struct {
		name string
		do   func(context.Context, *client.Client) error
	}{
		{"create", func(ctx context.Context, c *client.Client) error {
			_, err := c.CreateCodeContext(ctx, "box", sandbox.CodeOptions{Name: "other", Language: "bash"})
			return unlessConflict(err)
		}},
		{"restart", func(ctx context.Context, c *client.Client) error {
			_, err := c.RestartCodeContext(ctx, "box", "other")
			return err
		}},
		{"remove", func(ctx context.Context, c *client.Client) error {
			err := c.RemoveCodeContext(ctx, "box", "other")
			if sandbox.KindOf(err) == sandbox.NotFound {
				return nil
			}
			return err
		}},
	} {
		for _, after := range []time.Duration{0, 20 * time.Millisecond, 300 * time.Millisecond} {
			c.killed(t, verb.name, after, verb.do)
		}
	}
	// The run that was under way all the time waits for its turn to end, and x is there.
	if _, err := c.WriteFile(ctx, c.id, "/tmp/go", sandbox.WriteOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	again, err := c.AttachCode(ctx, c.id, first.Run, 0)
	if err != nil {
		t.Fatal(err)
	}
	if out := gather(t, again); out.stdout != "went 41\n" || out.end.Status != sandbox.CodeOK {
		t.Errorf("the run that began before: %+v", out)
	}
	if got := c.value(t, "python", "x + 1"); got != "42" {
		t.Errorf("x + 1 is %q", got)
	}
}

func unlessConflict(err error) error {
	if sandbox.KindOf(err) == sandbox.Conflict {
		return nil
	}
	return err
}

// killed does something with a context while the server is killed, and does it again
// with the next one.
func (c *coder) killed(t *testing.T, name string, after time.Duration, do func(context.Context, *client.Client) error) {
	t.Helper()
	done := make(chan error, 1)
	go func(old *client.Client) { done <- do(c.ctx, old) }(c.Client)
	time.Sleep(after) // the moment is what is tested
	c.Restart(t, os.Kill)
	first := <-done
	if err := do(c.ctx, c.Client); err != nil {
		t.Fatalf("%s, killed after %v (then: %v): again: %v", name, after, first, err)
	}
	all, err := c.CodeContexts(c.ctx, c.id)
	if err != nil {
		t.Fatal(err)
	}
	there := 0
	for _, one := range all {
		if one.Name == "other" {
			there++
		}
	}
	if want := map[bool]int{true: 0, false: 1}[name == "remove"]; there != want {
		t.Fatalf("%s, killed after %v: %d contexts of the name", name, after, there)
	}
	if there == 1 {
		if out := c.run(t, sandbox.CodeRun{Context: "other", Code: "echo usable"}); out.stdout != "usable\n" {
			t.Fatalf("%s, killed after %v: it says %+v", name, after, out)
		}
	}
}
