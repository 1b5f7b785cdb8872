package test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

// TestCodeAhead creates sandboxes whose interpreter was started before anybody asked for
// them, and shows that code cannot tell.
func TestCodeAhead(t *testing.T) {
	s := rig.Start(t)
	s.CodeTemplate(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := &coder{s, ctx, ""}
	first := c.ahead(t)
	c.id = first
	const look = "import os; print(os.getcwd(), os.environ['HOME'], os.environ.get('OWN'), _dh == [os.getcwd()])"
	env, err := c.CreateCodeContext(ctx, first, sandbox.CodeOptions{Name: "own", Cwd: "/tmp", Env: map[string]string{"OWN": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	out := c.run(t, sandbox.CodeRun{Context: env.ID, Code: look})
	if out.stdout != "/tmp /home/user 1 True\n" || out.end.Count != 1 {
		t.Errorf("in a context with a folder and a variable: %+v, %+v", out, out.err)
	}
	if got := c.value(t, "python", "import os; os.getcwd(), 'x' in globals(), os.environ.get('OWN')"); got != "('/workspace', False, None)" {
		t.Errorf("in the next one, whose interpreter is new: %s", got)
	}
	second := c.ahead(t)
	fork, err := s.Fork(ctx, second, sandbox.ForkRequest{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]bool{}
	for _, child := range fork.Children {
		if child.Err != nil {
			t.Fatal(child.Err)
		}
		c.id = string(child.Sandbox.ID)
		drawn[c.value(t, "", "import random; random.random()")] = true
		if pid := c.interpreters(t); len(pid) != 1 {
			t.Errorf("the fork has the interpreters %q", pid)
		}
	}
	if len(drawn) != 2 {
		t.Errorf("forks draw alike: %v", drawn)
	}
}

// ahead creates sandboxes until one has an interpreter already, and removes the others.
func (c *coder) ahead(t *testing.T) (id string) {
	t.Helper()
	for {
		box, err := c.Create(c.ctx, sandbox.CreateRequest{Template: sandbox.CodeTemplate})
		if err != nil {
			t.Fatal(err)
		}
		c.id = string(box.ID)
		if len(c.interpreters(t)) == 1 {
			return c.id
		}
		if err := c.Remove(c.ctx, c.id); err != nil {
			t.Fatal(err)
		}
		select {
		case <-time.After(time.Second):
		case <-c.ctx.Done():
			t.Fatal("no sandbox comes with an interpreter")
		}
	}
}

// interpreters are the processes of Python's kernels in the sandbox.
func (c *coder) interpreters(t *testing.T) []string {
	t.Helper()
	out := new(strings.Builder)
	events, err := c.Exec(c.ctx, c.id, sandbox.Command{Argv: []string{"pgrep", "-f", "ipykernel_launcher"}})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	for {
		e, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.Exit != nil {
			return strings.Fields(out.String())
		}
		out.Write(e.Data)
	}
}
