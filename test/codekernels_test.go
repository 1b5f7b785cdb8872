package test

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// java is Java as JShell has it. What it remembers c.fork looks for.
func (c *coder) java(t *testing.T) {
	out := c.run(t, sandbox.CodeRun{Language: "java", Code: "var squares = new HashMap<Integer, Integer>();\nfor (int i = 0; i < 4; i++) {\n  squares.put(i, i * i);\n}\nSystem.out.println(\"out\"); System.err.println(\"err\");\nsquares.size()"})
	if out.stdout != "out\n" || out.stderr != "err\n" || len(out.results) != 1 || out.results[0].Text != "4" || out.end.Status != sandbox.CodeOK {
		t.Errorf("the first run: %+v, %+v", out, out.err)
	}
	if got := c.value(t, "java", "int twice(int n) { return 2 * n; }\nrecord P(int x, String s) {}\nnew P(twice(4), \"ä😀\")"); got != `P[x=8, s=ä😀]` {
		t.Errorf("a record is %q", got)
	}
	out = c.run(t, sandbox.CodeRun{Language: "java", Code: "System.getProperty(\"A\") + System.getProperty(\"user.dir\")", Env: map[string]string{"A": "it's \"1\" "}})
	if len(out.results) != 1 || out.results[0].Text != `"it's \"1\" /workspace"` {
		t.Errorf("a run with variables: %+v, %+v", out, out.err)
	}
	if got := c.value(t, "java", "System.getProperty(\"A\", \"gone\") + System.getProperty(\"HOME\")"); got != `"gone/home/user"` {
		t.Errorf("after that run: %s", got)
	}
	for code, want := range map[string]string{"throw new IllegalStateException(\"no\")": "java.lang.IllegalStateException: no", "int n = \"text\";": "CompilationError: incompatible types"} {
		out = c.run(t, sandbox.CodeRun{Language: "java", Code: code})
		if out.end.Status != sandbox.CodeFailed || out.err == nil || !strings.HasPrefix(out.err.Name+": "+out.err.Value, want) {
			t.Errorf("%s: %+v, %+v", code, out, out.err)
		}
	}
	if _, err := c.CreateCodeContext(c.ctx, c.id, sandbox.CodeOptions{Name: "mortal", Language: "java"}); err != nil {
		t.Fatal(err)
	}
	if out = c.run(t, sandbox.CodeRun{Context: "mortal", Code: "System.exit(3);"}); out.end.Status != sandbox.CodeDied || !strings.Contains(out.end.Reason, "exit code 3") {
		t.Errorf("a program that exits: %+v", out)
	}
	if err := c.RemoveCodeContext(c.ctx, c.id, "mortal"); err != nil {
		t.Fatal(err)
	}
}

// interruptOthers breaks off what runs in languages whose interpreters are asked each in
// its own way: what they remember stays, and nothing of the run is in the next.
func (c *coder) interruptOthers(t *testing.T) {
	for _, of := range []struct{ language, forever, ask, want string }{
		{"bash", "echo on; while true; do /bin/true; done", "echo $B", "5\n"},
		{"bash", "echo on\nsleep 1000\nB=6", "echo $B", "5\n"},
		{"java", "System.out.println(\"on\");\nwhile (true);", "System.out.println(squares.get(3));", "9\n"},
		{"java", "System.out.println(\"on\");\nwhile (true) Thread.sleep(1);", "System.out.println(squares.get(3));", "9\n"},
		{"r", "cat('on\\n'); while (TRUE) {}", "cat(x, '\\n', sep = '')", "42\n"},
	} {
		events, err := c.RunCode(c.ctx, c.id, sandbox.CodeRun{Language: of.language, Code: of.forever})
		if err != nil {
			t.Fatal(err)
		}
		for e := (sandbox.CodeEvent{}); e.Type != sandbox.CodeStdout; {
			if e, err = events.Recv(); err != nil || e.Type == sandbox.CodeEnded {
				t.Fatalf("%s in %s does not begin: %+v, %v", of.forever, of.language, e, err)
			}
		}
		if err := c.InterruptCodeContext(c.ctx, c.id, of.language); err != nil {
			t.Fatal(err)
		}
		if out := gather(t, events); out.end.Status != sandbox.CodeInterrupted {
			t.Errorf("%s in %s: %+v, %+v", of.forever, of.language, out, out.err)
		}
		if out := c.run(t, sandbox.CodeRun{Language: of.language, Code: of.ask}); out.stdout != of.want || out.end.Status != sandbox.CodeOK {
			t.Errorf("after %s in %s: %+v, %+v", of.forever, of.language, out, out.err)
		}
	}
	out := c.run(t, sandbox.CodeRun{Language: "bash", Code: "cat <<END"})
	if out.end.Status != sandbox.CodeFailed || out.err == nil || !strings.Contains(out.err.Value, "not complete") {
		t.Errorf("a command that goes on: %+v, %+v", out, out.err)
	}
	if out = c.run(t, sandbox.CodeRun{Language: "bash", Code: "echo $B"}); out.stdout != "5\n" {
		t.Errorf("after it: %+v", out)
	}
}
