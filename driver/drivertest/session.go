package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// nasty are commands that break shells. After each the session answers, in its
// folder and with its variable; restarted says that it took a new shell.
var nasty = []struct {
	name      string
	line      string
	code      int
	stdout    string
	stderr    string // a part of it
	restarted bool
}{
	{"plain", "echo out; echo err >&2", 0, "out\n", "err", false},
	{"fails", "false", 1, "", "", false},
	{"exits", "echo before; exit 3; echo after", 3, "before\n", "", true},
	{"exits in a subshell", "(exit 4)", 4, "", "", false},
	{"exits in a function", "q() { exit 5; }; q", 5, "", "", true},
	{"returns", "return 6 2>/dev/null; true", 0, "", "", false},
	{"is replaced", "exec echo replaced", 0, "replaced\n", "", true},
	{"is replaced by nothing", "exec /nonexistent/program", 127, "", "nonexistent", true},
	{"syntax", "if then fi (", 2, "", "syntax", false},
	{"lone parenthesis", ")", 2, "", "syntax", false},
	{"open quote", "echo 'never closed", 2, "", "", false},
	{"open double quote", `echo "never closed`, 2, "", "", false},
	{"open substitution", "echo $(echo", 2, "", "", true},
	{"a failing substitution", "ls $(echo /nonexistent)", 2, "", "nonexistent", false},
	{"open brace", "{ echo x", 2, "", "", false},
	{"open here-document", "cat <<END\nbody", 0, "body\n", "", false},
	{"nothing", " ", 0, "", "", false},
	{"a comment", "# nothing", 0, "", "", false},
	{"ends in a backslash", `echo x \`, 0, "x \\\n", "", false},
	{"many lines", "for i in 1 2 3\ndo\necho $i\ndone", 0, "1\n2\n3\n", "", false},
	{"reads input", "read x; echo \"got $x $?\"; cat", 0, "got  1\n", "", false},
	{"background", "sleep 1000 & echo started", 0, "started\n", "", false},
	{"writes late", "(sleep 0.2; echo LATE; echo LATE >&2) & echo now", 0, "now\n", "", false},
	{"stops at errors", "set -e; false; echo after", 1, "", "", true},
	{"stops no more", "set +e", 0, "", "", false},
	{"unset variables", "set -u; echo $nosuchvariable; set +u; true", 127, "", "nosuch", true},
	{"set +u", "set +u", 0, "", "", false},
	{"closes output", "exec 1>&- 2>&-; echo lost", 1, "", "", false},
	{"closes input", "exec 0<&-", 0, "", "", false},
	{"redirects for good", "exec >/dev/null; echo hidden", 0, "", "", false},
	{"closes everything", "for i in 3 4 5 6 7 8 9 10 11 12 13 14; do eval \"exec $i>&-\"; done 2>/dev/null; echo closed", 0, "closed\n", "", true},
	{"kills itself", "kill -9 $$", 137, "", "", true},
	{"ends itself", "kill $$", 143, "", "", true},
	{"traps its end", "trap : EXIT; exit 9", 9, "", "", true},
	{"overrides the words", "printf() { :; }; read() { exit 1; }; eval() { :; }; echo fine", 0, "fine\n", "", false},
	{"forgets them", "unset -f printf read eval", 0, "", "", false},
	{"splits oddly", "IFS=0123456789abcdef", 0, "", "", false},
	{"splits evenly", "unset IFS", 0, "", "", false},
	{"stops executing", "set -n", 143, "", "", true},
	{"prints bytes", `printf '\377\000\200'`, 0, "\xff\x00\x80", "", false},
	{"prints much", "head -c 300000 /dev/zero | tr '\\0' x", 0, strings.Repeat("x", 300000), "", false},
	{"noclobber", "set -C; echo fine", 0, "fine\n", "", false},
	{"clobber", "set +C", 0, "", "", false},
	{"traces", "set -x; echo traced; set +x", 0, "traced\n", "+ echo traced", false},
	{"looks like a report", "echo ready 0 x /; printf 'a 0 b c\\0'", 0, "ready 0 x /\na 0 b c\x00", "", false},
}

// inSession runs a line in a session.
func inSession(t *testing.T, c *guestclient.Client, name string, cmd sandbox.Command) *result {
	t.Helper()
	ev, err := c.RunInSession(within(t), name, cmd)
	if err != nil {
		t.Fatalf("run %q%q: %v", cmd.Shell, cmd.Argv, err)
	}
	r, err := collect(ev)
	if err != nil {
		t.Fatalf("run %q%q: %v", cmd.Shell, cmd.Argv, err)
	}
	return r
}

func line(s string) sandbox.Command { return sandbox.Command{Shell: s} }

func openSession(t *testing.T, c *guestclient.Client, o sandbox.SessionOptions) sandbox.Session {
	t.Helper()
	s, _, err := c.OpenSession(within(t), o)
	if err != nil {
		t.Fatalf("open session: %v", err)
	}
	return s
}

// testNastyCommands: no command wedges a session or takes its memory.
func testNastyCommands(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	openSession(t, c, sandbox.SessionOptions{Name: "work"})
	inSession(t, c, "work", line("mkdir -p 'a folder'; cd 'a folder'; export KEPT='x y'; OWN=(1 2 3); greet() { echo \"hello $1\"; }; shopt -s nullglob"))
	for _, n := range nasty {
		t.Run(n.name, func(t *testing.T) {
			r := inSession(t, c, "work", line(n.line))
			if r.exit.Code != n.code && !(n.code == 2 && r.exit.Code == 1) { // shells differ about the code of bad syntax
				t.Errorf("exit %+v, want code %d; stderr %.300q", r.exit, n.code, r.stderr.String())
			}
			if r.stdout.String() != n.stdout || !strings.Contains(r.stderr.String(), n.stderr) {
				t.Errorf("stdout %.300q, stderr %.300q", r.stdout.String(), r.stderr.String())
			}
			if (r.exit.Restarted != "") != n.restarted && n.name != "closes everything" && n.name != "unset variables" {
				t.Errorf("restarted: %q, want %v", r.exit.Restarted, n.restarted)
			}
			r = inSession(t, c, "work", line(`pwd; echo "$KEPT ${OWN[2]}"; greet you; shopt -q nullglob && echo kept`))
			if got := r.stdout.String(); !strings.HasSuffix(got, "/a folder\nx y 3\nhello you\nkept\n") || r.stderr.Len() > 0 || r.exit.Code != 0 {
				t.Errorf("afterwards: %q, %q, %+v", got, r.stderr.String(), r.exit)
			}
		})
	}
	if err := c.CloseSession(within(t), "work"); err != nil {
		t.Error(err)
	}
	stop(t, m)
}

// testProfiles: a session reads its user's profile, unless it is to be a plain one. It
// leaves session "a" as it was.
func testProfiles(t *testing.T, c *guestclient.Client) {
	t.Helper()
	made := inSession(t, c, "a", line(`mkdir -p profiles && for f in .bash_profile .profile; do echo 'OF_PROFILE=read' > profiles/$f; done; echo "$PWD/profiles"`))
	env := map[string]string{"HOME": strings.TrimSpace(made.stdout.String())}
	openSession(t, c, sandbox.SessionOptions{Name: "login", Env: env})
	openSession(t, c, sandbox.SessionOptions{Name: "plain", Env: env, Plain: true})
	for name, want := range map[string]string{"login": "read", "plain": "none"} {
		r := inSession(t, c, name, line(`echo "${OF_PROFILE-none} $HOME"`))
		if got := r.stdout.String(); got != want+" "+env["HOME"]+"\n" || r.exit.Restarted != "" {
			t.Errorf("%s: %q, %+v", name, got, r.exit)
		}
	}
	inSession(t, c, "plain", line("OF_SESSION=1"))
	if r := inSession(t, c, "plain", line("echo $OF_SESSION; exit 3")); r.stdout.String() != "1\n" || r.exit.Code != 3 {
		t.Errorf("plain: %q, %+v", r.stdout.String(), r.exit)
	}
	if r := inSession(t, c, "plain", line(`echo "$OF_SESSION ${OF_PROFILE-none}"`)); r.stdout.String() != "1 none\n" {
		t.Errorf("plain, another shell: %q, %+v", r.stdout.String(), r.exit)
	}
	for _, name := range []string{"login", "plain"} {
		if err := c.CloseSession(within(t), name); err != nil {
			t.Error(err)
		}
	}
	openSession(t, c, sandbox.SessionOptions{Name: "unused", Plain: true})
	if err := c.CloseSession(within(t), "unused"); err != nil {
		t.Error(err)
	}
}

// testSessions: what a session remembers, its queue, its times and its end.
func testSessions(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	s, created, err := c.OpenSession(within(t), sandbox.SessionOptions{Name: "a", Cwd: "/tmp", Env: map[string]string{"GIVEN": "1"}})
	if err != nil || !created || s.Cwd != "/tmp" {
		t.Fatalf("open: %+v %v %v", s, created, err)
	}
	if _, created, err = c.OpenSession(within(t), sandbox.SessionOptions{Name: "a"}); err != nil || created {
		t.Errorf("open again: %v %v", created, err)
	}
	testProfiles(t, c)
	openSession(t, c, sandbox.SessionOptions{Name: "b"})
	inSession(t, c, "a", line("A=1"))
	inSession(t, c, "b", line("A=2"))
	if r := inSession(t, c, "a", line(`echo "$A $GIVEN"; echo it\'s`)); r.stdout.String() != "1 1\nit's\n" {
		t.Errorf("apart: %q", r.stdout.String())
	}
	if r := inSession(t, c, "a", sandbox.Command{Argv: []string{"printf", "%s|", "a b", "$A", "it's", ""}}); r.stdout.String() != "a b|$A|it's||" {
		t.Errorf("arguments: %q", r.stdout.String())
	}
	if r := inSession(t, c, "a", line("false")); r.exit.Code != 1 {
		t.Errorf("code: %+v", r.exit)
	}
	if r := inSession(t, c, "a", line("echo $?")); r.stdout.String() != "1\n" {
		t.Errorf("last code: %q", r.stdout.String())
	}
	if r := inSession(t, c, "a", sandbox.Command{Shell: "echo o; echo e >&2; echo o", Merge: true}); r.stdout.String() != "o\ne\no\n" || r.stderr.Len() > 0 {
		t.Errorf("merged: %q %q", r.stdout.String(), r.stderr.String())
	}
	testSessionTimes(t, c)
	testSessionInput(t, c)
	testSessionQueue(t, c)
	list, err := c.Sessions(within(t))
	if err != nil || len(list) != 2 || list[0].Name != "a" || list[0].Running != "" || list[0].Commands < 6 {
		t.Errorf("list: %+v %v", list, err)
	}
	for _, name := range []string{"a", "b"} {
		if err := c.CloseSession(within(t), name); err != nil {
			t.Error(err)
		}
	}
	wantKind(t, "closed twice", c.CloseSession(within(t), "a"), sandbox.NotFound)
	_, err = c.RunInSession(within(t), "a", line("true"))
	wantKind(t, "run in none", err, sandbox.NotFound)
	for _, name := range []string{"", "a/b", "../x", strings.Repeat("x", 65)} {
		_, _, err = c.OpenSession(within(t), sandbox.SessionOptions{Name: name})
		wantKind(t, "bad name", err, sandbox.Invalid)
	}
	stop(t, m)
}

// testSessionTimes: a timeout ends what the command started, and nothing that
// was there before; what follows in the command is not executed.
func testSessionTimes(t *testing.T, c *guestclient.Client) {
	inSession(t, c, "a", line("sleep 1000 >/dev/null 2>&1 & BG=$!"))
	r := inSession(t, c, "a", sandbox.Command{Shell: "cd /; B=7; sleep 1000 & sleep 1000; echo never", Timeout: 300 * time.Millisecond})
	if !r.exit.TimedOut || r.exit.Restarted == "" || r.stdout.Len() > 0 {
		t.Errorf("timed out: %+v %q", r.exit, r.stdout.String())
	}
	r = inSession(t, c, "a", line(`kill -0 $BG && echo "$B alive"; pwd`))
	if !strings.HasPrefix(r.stdout.String(), "7 alive\n") {
		t.Errorf("after the timeout: %q %q", r.stdout.String(), r.stderr.String())
	}
	r = inSession(t, c, "a", sandbox.Command{Shell: "trap '' TERM; while :; do :; done", Timeout: 100 * time.Millisecond})
	if !r.exit.TimedOut {
		t.Errorf("a loop: %+v", r.exit)
	}
	r = inSession(t, c, "a", sandbox.Command{Shell: "kill -STOP $$", Timeout: 100 * time.Millisecond})
	if !r.exit.TimedOut {
		t.Errorf("a stopped shell: %+v", r.exit)
	}
	if r = inSession(t, c, "a", line(`echo "$B"`)); r.stdout.String() != "7\n" {
		t.Errorf("after both: %q", r.stdout.String())
	}
}

// testSessionInput: a command that asks for input gets it, and its end.
func testSessionInput(t *testing.T, c *guestclient.Client) {
	ev, err := c.RunInSession(within(t), "a", sandbox.Command{Shell: "read first; echo \"1 $first\"; cat", Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	started, err := ev.Recv()
	if err != nil {
		t.Fatal(err)
	}
	id := started.Started.ID
	if err := c.Input(within(t), id, []byte("x\nrest\n")); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := c.CloseInput(within(t), id); err != nil {
			t.Error(err)
		}
	}
	exit, err := c.Wait(within(t), id)
	if err != nil || exit.Code != 0 {
		t.Errorf("wait: %+v %v", exit, err)
	}
	if err := c.CloseInput(within(t), id); err != nil {
		t.Errorf("close the input of what has ended: %v", err)
	}
	ev.Close()
	again, err := c.Attach(within(t), id, sandbox.Offsets{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := collect(again); err != nil || r.stdout.String() != "1 x\nrest\n" || r.process.Session != "a" {
		t.Errorf("attached: %+v %v", r, err)
	}
}

// testSessionQueue: commands run one after the other, the queue has an end, and
// those in it can be cancelled.
func testSessionQueue(t *testing.T, c *guestclient.Client) {
	first, err := c.RunInSession(within(t), "a", line("echo begun; sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := first.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	var waiting []sandbox.Events
	for {
		ev, err := c.RunInSession(within(t), "a", line("echo never"))
		if err != nil {
			wantKind(t, "a full queue", err, sandbox.Exhausted)
			break
		}
		waiting = append(waiting, ev)
	}
	last, err := waiting[len(waiting)-1].Recv()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.CancelSession(within(t), "a", last.Started.ID); n != 1 || err != nil {
		t.Errorf("cancel one: %d %v", n, err)
	}
	waiting[0].Close() // whoever leaves the queue is not waited for
	n, err := c.CancelSession(within(t), "a", "")
	if err != nil || n < len(waiting)-1 || n > len(waiting) {
		t.Errorf("cancelled %d of %d: %v", n, len(waiting), err)
	}
	for _, ev := range waiting[1 : len(waiting)-1] {
		if r, err := collect(ev); err != nil || r.exit.Code != 143 || r.stdout.Len() > 0 {
			t.Fatalf("cancelled in the queue: %+v %v", r, err)
		}
	}
	eventually(t, "the session answers", func() bool {
		return inSession(t, c, "a", line("echo here")).stdout.String() == "here\n"
	})
}
