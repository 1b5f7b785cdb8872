package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

// TestCode runs code in every interpreter of the template code-interpreter, in one
// real sandbox.
func TestCode(t *testing.T) {
	s := rig.Start(t)
	s.CodeTemplate(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	limits := sandbox.Limits{MemoryBytes: 2 << 30}
	box, err := s.Create(ctx, sandbox.CreateRequest{Template: sandbox.CodeTemplate, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	c := &coder{s, ctx, string(box.ID)}
	t.Run("languages", c.languages)
	t.Run("python", c.python)
	t.Run("forms", c.forms)
	t.Run("charts", c.charts)
	t.Run("pictures", c.pictures)
	t.Run("frames", c.frames)
	t.Run("script", c.script)
	t.Run("bash", c.bash)
	t.Run("r", c.r)
	t.Run("java", c.java)
	t.Run("contexts", c.contexts)
	t.Run("interrupts", c.interrupts)
	t.Run("others' interrupts", c.interruptOthers)
	t.Run("deaths", c.deaths)
	t.Run("bounds", c.bounds)
	t.Run("attach", c.attach)
	t.Run("command", c.command)
	t.Run("fork", c.fork) // pauses it too
}

// coder runs code in one sandbox.
type coder struct {
	*rig.Server
	ctx context.Context
	id  string
}

// output is all that a run did.
type output struct {
	run, stdout, stderr string
	results             []sandbox.CodeResult
	err                 *sandbox.CodeError
	missed              int64
	end                 sandbox.CodeEnd
}

func (c *coder) run(t *testing.T, r sandbox.CodeRun) output {
	t.Helper()
	events, err := c.RunCode(c.ctx, c.id, r)
	if err != nil {
		t.Fatalf("run %q: %v", r.Code, err)
	}
	return gather(t, events)
}

func gather(t *testing.T, events sandbox.CodeEvents) (out output) {
	t.Helper()
	defer events.Close()
	for {
		e, err := events.Recv()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e.Type {
		case sandbox.CodeStarted:
			out.run = e.Run
		case sandbox.CodeStdout:
			out.stdout += e.Text
		case sandbox.CodeStderr:
			out.stderr += e.Text
		case sandbox.CodeShown:
			out.results = append(out.results, *e.Result)
		case sandbox.CodeRaised:
			out.err = e.Error
		case sandbox.CodeMissed:
			out.missed += e.Missed
		case sandbox.CodeEnded:
			out.end = *e.End
		}
	}
}

// value runs code that shows one value, and gives its text.
func (c *coder) value(t *testing.T, language, code string) string {
	t.Helper()
	out := c.run(t, sandbox.CodeRun{Language: language, Code: code})
	if out.end.Status != sandbox.CodeOK || len(out.results) != 1 || !out.results[0].Main {
		t.Fatalf("%q ends as %+v with %d results, %+v", code, out.end, len(out.results), out.err)
	}
	return out.results[0].Text
}

func (c *coder) languages(t *testing.T) {
	all, err := c.CodeLanguages(c.ctx, c.id)
	if want := []string{"bash", "java", "javascript", "python", "r", "typescript"}; err != nil || !slices.Equal(all, want) {
		t.Errorf("languages %q, %v", all, err)
	}
	_, err = c.RunCode(c.ctx, c.id, sandbox.CodeRun{Language: "cobol", Code: "x"})
	if sandbox.KindOf(err) != sandbox.Unsupported || !strings.Contains(sandbox.HintOf(err), "python") {
		t.Errorf("a language without kernel: %v (%s)", err, sandbox.HintOf(err))
	}
}

func (c *coder) python(t *testing.T) {
	out := c.run(t, sandbox.CodeRun{Code: "import sys\nx = 6*7\nprint('out')\nprint('err', file=sys.stderr)\nx"})
	if out.stdout != "out\n" || out.stderr != "err\n" || len(out.results) != 1 || out.results[0].Text != "42" || out.end.Status != sandbox.CodeOK || out.end.Count != 1 {
		t.Errorf("the first run: %+v", out)
	}
	if got := c.value(t, "python3", "x + 1"); got != "43" {
		t.Errorf("x + 1 is %q", got)
	}
	out = c.run(t, sandbox.CodeRun{Code: "print('a')\nraise ValueError('no')"})
	if out.end.Status != sandbox.CodeFailed || out.err == nil || out.err.Name != "ValueError" || out.err.Value != "no" || !strings.Contains(strings.Join(out.err.Traceback, "\n"), "line 2") {
		t.Errorf("an error: %+v, %+v", out, out.err)
	}
	if out = c.run(t, sandbox.CodeRun{Code: "input('name? ')"}); out.err == nil || out.err.Name != "StdinNotImplementedError" {
		t.Errorf("a run that asks for input: %+v", out)
	}
	out = c.run(t, sandbox.CodeRun{Code: "import os; print(os.environ['A'], os.environ['HOME'])", Env: map[string]string{"A": "it's", "HOME": "/x"}})
	if out.stdout != "it's /x\n" {
		t.Errorf("a run with variables: %+v", out)
	}
	if got := c.value(t, "", "os.environ.get('A'), os.environ['HOME'], os.getcwd()"); got != "(None, '/home/user', '/workspace')" {
		t.Errorf("after that run: %s", got)
	}
	if got := c.value(t, "", "import numpy, scipy, sklearn, seaborn, openpyxl, requests; await __import__('asyncio').sleep(0, 'awaited')"); got != "'awaited'" {
		t.Errorf("packages: %s", got)
	}
}

func (c *coder) forms(t *testing.T) {
	out := c.run(t, sandbox.CodeRun{Code: `
from IPython.display import *
display(HTML('<b>h</b>'), Markdown('*m*'), SVG('<svg xmlns="http://www.w3.org/2000/svg"/>'), Latex('$l$'), JSON({'j': [1]}), Javascript('j()'))
display({'application/x-own': 'own', 'application/vnd.own+json': {'a': 1}}, raw=True)
shown = display('first', display_id='d')
shown.update('second')
display(Image(b'\xff\xd8\xff\xe0 jpeg', format='jpeg'))
`})
	if len(out.results) != 10 {
		t.Fatalf("%d results: %+v", len(out.results), out)
	}
	r := out.results
	for i, ok := range []bool{r[0].HTML == "<b>h</b>", r[1].Markdown == "*m*", strings.HasPrefix(r[2].SVG, "<svg"), r[3].LaTeX == "$l$", string(r[4].JSON) == `{"j":[1]}`,
		r[5].JavaScript == "j()", string(r[6].Extra["application/x-own"]) == `"own"` && string(r[6].Extra["application/vnd.own+json"]) == `{"a":1}`,
		r[7].DisplayID == "d" && !r[7].Update, r[8].DisplayID == "d" && r[8].Update && r[8].Text == "'second'", strings.HasPrefix(r[9].JPEG, "/9j/4CBqcGVn")} {
		if !ok || r[i].Main {
			t.Errorf("result %d is %+v", i, r[i])
		}
	}
}

// chart is what the test looks at of a figure's numbers.
type chart struct {
	Type     string           `json:"type"`
	Title    string           `json:"title"`
	XLabel   string           `json:"x_label"`
	XUnit    string           `json:"x_unit"`
	XScale   string           `json:"x_scale"`
	XTicks   []any            `json:"x_ticks"`
	Elements []map[string]any `json:"elements"`
}

func (c *coder) charts(t *testing.T) {
	out := c.run(t, sandbox.CodeRun{Code: `
import matplotlib.pyplot as plt, pandas as pd, seaborn as sns
def fig(title):
    plt.title(title); plt.show()
plt.plot([1, 2], [3, 4], label='up'); plt.plot([1, 2], [4, 3]); plt.xlabel('time (s)'); fig('line')
plt.scatter([1, 2], [3, 4]); plt.xscale('log'); fig('scatter')
plt.bar(['a', 'b'], [1, 2.5]); fig('bar')
plt.pie([1, 3], labels=['u', 'v']); fig('pie')
plt.boxplot([[1, 2, 3, 4, 50], [2, 3]], tick_labels=['m', 'n']); fig('box')
sns.boxplot(x=['g', 'g', 'h'], y=[1, 3, 5]); fig('seaborn')
plt.plot(pd.to_datetime(['2024-01-01', '2024-01-03']), [1, 2]); fig('dates')
_, (a, b) = plt.subplots(1, 2); a.plot([1], [2]); b.bar(['k'], [3]); plt.suptitle('both'); plt.show()
plt.imshow([[1, 2], [3, 4]]); fig('image')
plt.barh(['a', 'b'], [1, 2]); plt.axvline(1); plt.ylabel('of a [kind]'); fig('across')
`})
	if len(out.results) != 10 || out.err != nil {
		t.Fatalf("%d results, %+v", len(out.results), out.err)
	}
	want := []struct{ kind, first string }{
		{"line", `{"label":"up","points":[[1,3],[2,4]]}`}, {"scatter", `{"label":"Scatter 0","points":[[1,3],[2,4]]}`},
		{"bar", `{"group":"Group 0","label":"a","value":1}`}, {"pie", `{"angle":90,"label":"u","radius":1}`},
		{"box_and_whisker", `{"first_quartile":2,"label":"m","max":4,"median":3,"min":1,"outliers":[50],"third_quartile":4}`},
		{"box_and_whisker", `{"first_quartile":1.5,"label":"g","max":3,"median":2,"min":1,"outliers":[],"third_quartile":2.5}`},
		{"line", `{"label":"Line 0","points":[["2024-01-01T00:00:00",1],["2024-01-03T00:00:00",2]]}`}, {"superchart", ""}, {"unknown", ""},
		{"bar", `{"group":"Group 0","label":"a","value":1}`},
	}
	var all []chart
	for i, r := range out.results {
		var got chart
		if err := json.Unmarshal(r.Chart, &got); err != nil || got.Type != want[i].kind || r.PNG == "" || r.Text == "" {
			t.Fatalf("figure %d: %s, %v", i, r.Chart, err)
		}
		if first, _ := json.Marshal(append(got.Elements, nil)[0]); want[i].first != "" && string(first) != want[i].first {
			t.Errorf("figure %d begins with %s, want %s", i, first, want[i].first)
		}
		all = append(all, got)
	}
	if l := all[0]; l.Title != "line" || l.XLabel != "time (s)" || l.XUnit != "s" || l.XScale != "linear" || len(l.XTicks) == 0 || len(l.Elements) != 2 {
		t.Errorf("the line chart: %+v", l)
	}
	if a := all[9]; a.XLabel != "of a [kind]" || a.XUnit != "kind" {
		t.Errorf("bars across: %+v", a)
	}
	if all[1].XScale != "log" || all[6].XScale != "datetime" || all[7].Title != "both" || len(all[7].Elements) != 2 {
		t.Errorf("scales %s and %s; %+v", all[1].XScale, all[6].XScale, all[7])
	}
}

// pictures are shown by show(), and by save() where that is asked for.
func (c *coder) pictures(t *testing.T) {
	out := c.run(t, sandbox.CodeRun{Code: `
from PIL import Image
one = Image.new('RGB', (2, 2)); one.show(); one.save('/tmp/one.png'); plt.figure(); plt.plot([1]); plt.savefig('/tmp/two.png'); plt.close()
os.environ['BERTH_SHOW_SAVED'] = '1'; one.save('/tmp/one.png'); plt.figure(); plt.savefig('/tmp/two.png'); plt.close(); del os.environ['BERTH_SHOW_SAVED']`})
	if len(out.results) != 2 || out.results[0].PNG == "" || out.results[0].PNG != out.results[1].PNG {
		t.Errorf("%d results, %+v", len(out.results), out.err)
	}
}

func (c *coder) frames(t *testing.T) {
	out := c.run(t, sandbox.CodeRun{Code: "df = pd.DataFrame({'n': [1, 2], 'f': [1.5, None], 's': ['a', None], 'd': pd.to_datetime(['2024-01-01', None])})\ndf"})
	const want = `{"n":[1,2],"f":[1.5,null],"s":["a",null],"d":["2024-01-01T00:00:00",null]}`
	if len(out.results) != 1 || string(out.results[0].Data) != want || !strings.Contains(out.results[0].HTML, "<table") || out.results[0].Text == "" {
		t.Errorf("a data frame: %+v, %+v", out.results, out.err)
	}
}

// script is JavaScript and TypeScript.
func (c *coder) script(t *testing.T) {
	out := c.run(t, sandbox.CodeRun{Language: "js", Code: "const a = [1, 2]; console.log('out'); console.error('err'); a.map(v => v * 2)"})
	if out.stdout != "out\n" || out.stderr != "err\n" || len(out.results) != 1 || out.results[0].Text != "[ 2, 4 ]" {
		t.Errorf("JavaScript: %+v", out)
	}
	if got := c.value(t, "javascript", "await Promise.resolve(a.length + 1)"); got != "3" {
		t.Errorf("a.length + 1 is %q", got)
	}
	out = c.run(t, sandbox.CodeRun{Language: "javascript", Code: "throw new TypeError('no')"})
	if out.end.Status != sandbox.CodeFailed || out.err == nil || out.err.Name != "TypeError" || !strings.Contains(out.err.Value, "no") {
		t.Errorf("an error: %+v, %+v", out, out.err)
	}
	if got := c.value(t, "ts", "interface P { n: number }\nconst p: P = { n: 5 };\np.n"); got != "5" {
		t.Errorf("TypeScript says %q", got)
	}
	out = c.run(t, sandbox.CodeRun{Language: "ts", Code: "console.log(process.env.A)", Env: map[string]string{"A": "it's"}})
	if out.stdout != "it's\n" {
		t.Errorf("a run with variables: %+v", out)
	}
	if out = c.run(t, sandbox.CodeRun{Language: "ts", Code: "console.log(process.env.A, typeof a)"}); out.stdout != "undefined undefined\n" {
		t.Errorf("after that run, without what JavaScript knows: %+v", out)
	}
	out = c.run(t, sandbox.CodeRun{Language: "ts", Code: "for (let i = 0; i < 3000; i++) console.log('line'); process.stdout.write('written'); 'value'"})
	if strings.Count(out.stdout, "line\n") != 3000 || !strings.HasSuffix(out.stdout, "written") || len(out.results) != 1 || out.results[0].Text != "\"value\"" {
		t.Errorf("of much that is printed come %d bytes, %+v, %+v", len(out.stdout), out.results, out.end)
	}
	ports, err := c.Ports(c.ctx, c.id)
	if err != nil || len(ports) != 0 {
		t.Errorf("ports that kernels listen on are told: %+v, %v", ports, err)
	}
}

func (c *coder) bash(t *testing.T) {
	out := c.run(t, sandbox.CodeRun{Language: "bash", Code: "cd /tmp; B=5; echo out; echo err >&2"})
	if !strings.Contains(out.stdout, "out\n") || out.end.Status != sandbox.CodeOK {
		t.Errorf("the first run: %+v", out)
	}
	if out = c.run(t, sandbox.CodeRun{Language: "sh", Code: "echo $B $PWD $A", Env: map[string]string{"A": "it's"}}); out.stdout != "5 /tmp it's\n" {
		t.Errorf("the second: %+v", out)
	}
	if out = c.run(t, sandbox.CodeRun{Language: "bash", Code: "echo \"<$A>\"; (exit 3)"}); out.stdout != "<>\n" || out.end.Status != sandbox.CodeFailed || out.err == nil {
		t.Errorf("a command that fails: %+v", out)
	}
}

func (c *coder) r(t *testing.T) {
	out := c.run(t, sandbox.CodeRun{Language: "R", Code: "x <- 6 * 7; print('out'); Sys.getenv('A')", Env: map[string]string{"A": "it's"}})
	if out.stdout != "[1] \"out\"\n" || len(out.results) != 1 || out.results[0].Text != "[1] \"it's\"" || out.end.Status != sandbox.CodeOK {
		t.Errorf("the first run: %+v", out)
	}
	out = c.run(t, sandbox.CodeRun{Language: "r", Code: "if (Sys.getenv('A') != '') stop('kept'); stop(x)"})
	if out.end.Status != sandbox.CodeFailed || out.err == nil || !strings.Contains(out.err.Value, "42") {
		t.Errorf("an error: %+v, %+v", out, out.err)
	}
}

func (c *coder) contexts(t *testing.T) {
	one, err := c.CreateCodeContext(c.ctx, c.id, sandbox.CodeOptions{Name: "one", Cwd: "/tmp", Env: map[string]string{"E": "5"}})
	if err != nil || one.State != sandbox.CodeIdle || one.Cwd != "/tmp" || one.Language != "python" || one.PID == 0 || one.User != "user" {
		t.Fatalf("%+v, %v", one, err)
	}
	if _, err := c.CreateCodeContext(c.ctx, c.id, sandbox.CodeOptions{Name: "one"}); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("the name twice: %v", err)
	}
	if _, err := c.CreateCodeContext(c.ctx, c.id, sandbox.CodeOptions{Cwd: "/nowhere"}); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a folder that is not there: %v", err)
	}
	if _, err := c.CreateCodeContext(c.ctx, c.id, sandbox.CodeOptions{Cwd: "/root"}); sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), `"/root"`) {
		t.Errorf("a folder of another's: %v", err)
	}
	out := c.run(t, sandbox.CodeRun{Context: "one", Code: "import os; y = 1; print(os.getcwd(), os.environ['E'], 'x' in globals())"})
	if out.stdout != "/tmp 5 False\n" {
		t.Errorf("in a context of its own: %+v", out)
	}
	if _, err := c.RunCode(c.ctx, c.id, sandbox.CodeRun{Context: "one", Language: "bash", Code: "x"}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("another language: %v", err)
	}
	if again, err := c.RestartCodeContext(c.ctx, c.id, one.ID); err != nil || again.ID != one.ID || again.PID == one.PID || again.Restarts != 1 {
		t.Errorf("restarted: %+v, %v", again, err)
	}
	if out = c.run(t, sandbox.CodeRun{Context: one.ID, Code: "y"}); out.err == nil || out.err.Name != "NameError" || out.end.Count != 1 {
		t.Errorf("after the restart: %+v", out)
	}
	all, err := c.CodeContexts(c.ctx, c.id)
	if names := contextNames(all); err != nil || !slices.Equal(names, []string{"python", "javascript", "typescript", "bash", "r", "java", "one"}) {
		t.Errorf("contexts %q, %v", names, err)
	}
	if err := c.RemoveCodeContext(c.ctx, c.id, "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CodeContext(c.ctx, c.id, "one"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("after its removal: %v", err)
	}
	if _, err := c.RunCode(c.ctx, c.id, sandbox.CodeRun{Context: "one", Code: "x"}); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a run after its removal: %v", err)
	}
}

func contextNames(all []sandbox.CodeContext) (names []string) {
	for _, c := range all {
		names = append(names, c.Name)
	}
	return names
}

// startRun begins a run and returns once it has printed a line.
func (c *coder) startRun(t *testing.T, ctx context.Context, r sandbox.CodeRun) (run string, events sandbox.CodeEvents) {
	t.Helper()
	events, err := c.RunCode(ctx, c.id, r)
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, err := events.Recv()
		if err != nil || e.End != nil {
			t.Fatalf("%+v, %v", e, err)
		}
		if e.Type == sandbox.CodeStarted {
			run = e.Run
		}
		if e.Type == sandbox.CodeStdout {
			return run, events
		}
	}
}

func (c *coder) interrupts(t *testing.T) {
	const forever = "import time\nprint('on', flush=True)\nwhile True: time.sleep(1)"
	_, events := c.startRun(t, c.ctx, sandbox.CodeRun{Code: forever})
	if err := c.InterruptCodeContext(c.ctx, c.id, "python"); err != nil {
		t.Fatal(err)
	}
	if out := gather(t, events); out.end.Status != sandbox.CodeInterrupted || out.err == nil || out.err.Name != "KeyboardInterrupt" {
		t.Errorf("an interrupted run: %+v", out)
	}
	ctx, leave := context.WithCancel(c.ctx) // the stream ends before the run
	run, events := c.startRun(t, ctx, sandbox.CodeRun{Code: forever})
	leave()
	events.Close()
	rest, err := c.AttachCode(c.ctx, c.id, run, 0)
	if err != nil {
		t.Fatal(err)
	}
	if out := gather(t, rest); out.end.Status != sandbox.CodeInterrupted || !strings.Contains(out.end.Reason, "stream") {
		t.Errorf("a run whose stream ended: %+v", out)
	}
	if out := c.run(t, sandbox.CodeRun{Code: forever, Timeout: time.Second}); out.end.Status != sandbox.CodeTimedOut {
		t.Errorf("a run whose time was up: %+v", out)
	}
	if got := c.value(t, "", "x"); got != "42" {
		t.Errorf("after all that x is %s", got)
	}
}

func (c *coder) deaths(t *testing.T) {
	if _, err := c.CreateCodeContext(c.ctx, c.id, sandbox.CodeOptions{Name: "mortal"}); err != nil {
		t.Fatal(err)
	}
	out := c.run(t, sandbox.CodeRun{Context: "mortal", Code: "z = 1\nprint('last', flush=True)\nimport os\nos._exit(3)"})
	if out.end.Status != sandbox.CodeDied || !strings.Contains(out.end.Reason, "exit code 3") {
		t.Errorf("a kernel that exits: %+v", out)
	}
	if out = c.run(t, sandbox.CodeRun{Context: "mortal", Code: "os.kill(os.getpid(), 9)"}); out.err == nil || out.err.Name != "NameError" {
		t.Errorf("the next run: %+v", out)
	}
	out = c.run(t, sandbox.CodeRun{Context: "mortal", Code: "import os; os.kill(os.getpid(), 9)"})
	if out.end.Status != sandbox.CodeDied || !strings.Contains(out.end.Reason, "SIGKILL") {
		t.Errorf("a kernel that is killed: %+v", out)
	}
	if err := c.RemoveCodeContext(c.ctx, c.id, "mortal"); err != nil {
		t.Fatal(err)
	}
}

func (c *coder) bounds(t *testing.T) {
	out := c.run(t, sandbox.CodeRun{Code: "from IPython.display import display\ndisplay({'text/html': 'x' * (17 << 20), 'text/plain': 'small'}, raw=True)"})
	if len(out.results) != 1 || out.results[0].Text != "small" || out.results[0].Omitted["text/html"] != 17<<20 {
		t.Errorf("a form that is too large: %d results", len(out.results))
	}
	out = c.run(t, sandbox.CodeRun{Code: "for i in range(4): print('y' * (1 << 20), flush=True)\nprint('end')"})
	if out.end.Status != sandbox.CodeOK || !strings.HasSuffix(out.stdout, "end\n") || len(out.stdout) != 4<<20+8 || out.missed != 0 {
		t.Errorf("4 MiB of output end as %+v, %d bytes", out.end, len(out.stdout))
	}
	if _, err := c.RunCode(c.ctx, c.id, sandbox.CodeRun{Code: strings.Repeat("#", sandbox.MaxCode+1)}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("code that is too long: %v", err)
	}
}

func (c *coder) attach(t *testing.T) {
	events, err := c.RunCode(c.ctx, c.id, sandbox.CodeRun{Code: "import time\nfor i in range(3):\n    print(i, flush=True); time.sleep(0.3)\n'done'", Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	first, err := events.Recv()
	if err != nil {
		t.Fatal(err)
	}
	events.Close()
	var mu sync.Mutex
	var all []output
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			events, err := c.AttachCode(c.ctx, c.id, first.Run, 0)
			if err != nil {
				t.Error(err)
				return
			}
			out := gather(t, events)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, out)
		})
	}
	wg.Wait()
	for _, out := range all {
		if out.stdout != "0\n1\n2\n" || len(out.results) != 1 || out.end.Status != sandbox.CodeOK {
			t.Errorf("a reader has %+v", out)
		}
	}
	events, err = c.AttachCode(c.ctx, c.id, first.Run, 1)
	if err != nil {
		t.Fatal(err)
	}
	if out := gather(t, events); strings.HasPrefix(out.stdout, "0") || !strings.HasSuffix(out.stdout, "2\n") {
		t.Errorf("behind the first event: %+v", out)
	}
	if _, err := c.AttachCode(c.ctx, c.id, "r99999", 0); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a run that is not there: %v", err)
	}
}

// command is the same from the command line.
func (c *coder) command(t *testing.T) {
	do := func(in string, args ...string) (out, errs string, code int) {
		cmd := exec.CommandContext(c.ctx, rig.Binary(t), args...)
		cmd.Env = []string{"BERTH_URL=" + c.URL, "BERTH_API_KEY=" + c.Key, "HOME=" + t.TempDir()}
		cmd.Stdin = strings.NewReader(in)
		var o, e bytes.Buffer
		cmd.Stdout, cmd.Stderr = &o, &e
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return o.String(), e.String(), cmd.ProcessState.ExitCode()
	}
	if out, errs, code := do("", "run", c.id, "print('out'); x"); out != "out\n42\n" || errs != "" || code != 0 {
		t.Errorf("run: %q, %q, %d", out, errs, code)
	}
	if out, errs, code := do("echo $B", "run", c.id, "--lang", "bash"); out != "5\n" || errs != "" || code != 0 {
		t.Errorf("code from standard input: %q, %q, %d", out, errs, code)
	}
	if out, errs, code := do("", "run", c.id, "1/0"); out != "" || !strings.Contains(errs, "ZeroDivisionError") || code != 1 {
		t.Errorf("an error: %q, %q, %d", out, errs, code)
	}
	out, _, code := do("", "run", c.id, "--json", "x")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `"type":"started"`) || !strings.Contains(lines[1], `"text":"42"`) || !strings.Contains(lines[2], `"status":"ok"`) || code != 0 {
		t.Errorf("events: %s, %d", out, code)
	}
	if out, _, code := do("", "context", "ls", c.id); !strings.Contains(out, "typescript") || code != 0 {
		t.Errorf("contexts: %s, %d", out, code)
	}
	if _, errs, code := do("", "run", c.id, "--timeout", "200ms", "while True: pass"); code != 124 {
		t.Errorf("a timeout: %s, %d", errs, code)
	}
}

// fork shows that what contexts remember is in every child, and after a pause.
func (c *coder) fork(t *testing.T) {
	c.run(t, sandbox.CodeRun{Code: "import os, random\ndf = pd.DataFrame({'n': range(1000)})\nrandom.seed()"})
	if _, err := c.Pause(c.ctx, c.id); err != nil {
		t.Fatal(err)
	}
	if got := c.value(t, "", "len(df)"); got != "1000" {
		t.Errorf("after a pause the frame has %s rows", got)
	}
	_, events := c.startRun(t, c.ctx, sandbox.CodeRun{Language: "ts", Code: "console.log('on'); await new Promise(r => setTimeout(r, 1500)); console.log('off')"})
	forked, err := c.Fork(c.ctx, c.id, sandbox.ForkRequest{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	if out := gather(t, events); out.stdout != "off\n" || out.end.Status != sandbox.CodeOK {
		t.Errorf("the parent's stream: %+v", out)
	}
	seen := map[string]bool{}
	for _, made := range forked.Children {
		if made.Err != nil {
			t.Fatal(made.Err)
		}
		child := &coder{c.Server, c.ctx, string(made.Sandbox.ID)}
		if got := child.value(t, "", "len(df)"); got != "1000" {
			t.Errorf("the child's frame has %s rows", got)
		}
		seen[child.value(t, "", "os.urandom(16)")] = true
		if got := child.value(t, "javascript", "a.length"); got != "2" {
			t.Errorf("the child's array has %s elements", got)
		}
		if out := child.run(t, sandbox.CodeRun{Language: "bash", Code: "echo $B"}); out.stdout != "5\n" {
			t.Errorf("the child's shell: %+v", out)
		}
		if out := child.run(t, sandbox.CodeRun{Language: "r", Code: "x"}); len(out.results) != 1 || out.results[0].Text != "[1] 42" {
			t.Errorf("the child's x: %+v", out)
		}
		if got := child.value(t, "java", "squares.get(3)"); got != "9" {
			t.Errorf("the child's square is %s", got)
		}
		if out := child.run(t, sandbox.CodeRun{Language: "ts", Code: "console.log(p.n)"}); out.stdout != "5\n" {
			t.Errorf("the child's context that was busy: %+v", out)
		}
	}
	if len(seen) != 2 {
		t.Errorf("the children draw %d random numbers", len(seen))
	}
}
