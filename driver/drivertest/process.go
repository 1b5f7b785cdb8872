package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// testExec: programs run as they are asked to, and say how they ended.
func testExec(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)

	r := run(t, c, sh("printf out; printf err >&2; exit 7"))
	if r.stdout.String() != "out" || r.stderr.String() != "err" || r.exit.Code != 7 || r.exit.Signal != "" {
		t.Errorf("streams and code: %q %q %+v", &r.stdout, &r.stderr, r.exit)
	}
	if r.process.ID == "" || r.process.PID < 2 || r.process.Cwd != sandbox.DefaultWorkdir {
		t.Errorf("description: %+v", r.process)
	}
	r = run(t, c, sandbox.Command{Argv: []string{"sh", "-c", "echo a; echo b >&2; echo c"}, Merge: true})
	if r.stdout.String() != "a\nb\nc\n" || r.stderr.Len() != 0 {
		t.Errorf("merged: %q %q", &r.stdout, &r.stderr)
	}
	r = run(t, c, sandbox.Command{Shell: "for i in 1 2 3; do echo $i; done; false"})
	if r.stdout.String() != "1\n2\n3\n" || r.exit.Code != 1 {
		t.Errorf("shell: %q %+v", &r.stdout, r.exit)
	}
	r = run(t, c, sandbox.Command{Argv: []string{"sh", "-c", `printf '%s|' "$A" "$B" "$HOME" "$PATH"`}, Env: map[string]string{"A": "x y\n\xff", "B": ""}})
	got := strings.Split(r.stdout.String(), "|")
	if len(got) != 5 || got[0] != "x y\n\xff" || got[1] != "" || got[2] == "" || got[3] == "" {
		t.Errorf("environment: %q", got)
	}
	r = run(t, c, sandbox.Command{Argv: []string{"sh", "-c", "pwd"}, Cwd: "/tmp"})
	if !strings.HasSuffix(r.stdout.String(), "/tmp\n") || r.process.Cwd != "/tmp" {
		t.Errorf("folder: %q %q", &r.stdout, r.process.Cwd)
	}
	r = run(t, c, sh("kill -9 $$"))
	if r.exit.Code != 137 || r.exit.Signal != "SIGKILL" {
		t.Errorf("killed: %+v", r.exit)
	}
	r = run(t, c, sandbox.Command{Argv: []string{"printf", `\377\000\200`}})
	if r.stdout.String() != "\xff\x00\x80" {
		t.Errorf("bytes: %q", &r.stdout)
	}

	for what, want := range map[string]struct {
		cmd  sandbox.Command
		kind sandbox.Kind
	}{
		"no program":     {sandbox.Command{Argv: []string{"nonesuch-program"}}, sandbox.NotFound},
		"no such path":   {sandbox.Command{Argv: []string{"/nonesuch/program"}}, sandbox.NotFound},
		"no such folder": {sandbox.Command{Argv: []string{"true"}, Cwd: "/nonesuch"}, sandbox.NotFound},
		"relative cwd":   {sandbox.Command{Argv: []string{"true"}, Cwd: "tmp"}, sandbox.Invalid},
		"a folder":       {sandbox.Command{Argv: []string{"/usr"}}, sandbox.Invalid},
		"nothing":        {sandbox.Command{}, sandbox.Invalid},
	} {
		_, err := c.Start(within(t), want.cmd)
		wantKind(t, what, err, want.kind)
	}
	stop(t, m)
}

// testInput: input arrives whole, and its end too.
func testInput(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	data := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB, more than any pipe holds
	ev, err := c.Start(within(t), sandbox.Command{Argv: []string{"cat"}, Stdin: true, Lossless: true})
	if err != nil {
		t.Fatal(err)
	}
	started, err := ev.Recv()
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		err := c.Input(within(t), started.Started.ID, []byte(data))
		if err == nil {
			err = c.CloseInput(within(t), started.Started.ID)
		}
		sent <- err
	}()
	var got strings.Builder
	var exit *sandbox.Exit
	for exit == nil {
		e, err := ev.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got.Write(e.Data)
		exit = e.Exit
	}
	if err := <-sent; err != nil {
		t.Errorf("input: %v", err)
	}
	if got.String() != data || exit.Code != 0 {
		t.Errorf("%d of %d bytes came back, exit %+v", got.Len(), len(data), exit)
	}
	if r := run(t, c, sandbox.Command{Argv: []string{"cat"}}); r.stdout.Len() != 0 || r.exit.Code != 0 {
		t.Errorf("without input: %q %+v", &r.stdout, r.exit)
	}
	wantKind(t, "input to what has ended", c.Input(within(t), started.Started.ID, []byte("x")), sandbox.Conflict)
	wantKind(t, "input to none", c.Input(within(t), "p999999", []byte("x")), sandbox.NotFound)
	stop(t, m)
}

// testTrees: timeouts, signals and the end of a stream reach the whole tree.
func testTrees(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)

	tree := "sh -c 'echo $$ > child; exec sleep 1000' & setsid sleep 1000 & sleep 1000"
	r := run(t, c, sandbox.Command{Argv: []string{"sh", "-c", tree}, Timeout: 300 * time.Millisecond})
	if !r.exit.TimedOut || r.exit.Signal != "SIGKILL" {
		t.Errorf("timed out: %+v", r.exit)
	}
	// A zombie that nobody has collected yet is gone.
	gone := `s=$(sed 's/.*) \(.\).*/\1/' /proc/$(cat child)/stat 2>/dev/null); case "$s" in ""|Z|X) echo gone;; *) echo there;; esac`
	eventually(t, "the child ends at the timeout", func() bool { return output(t, c, gone) == "gone\n" })

	// One that leaves its parents and their session at once.
	tree = "(setsid sh -c 'sh -c \"echo \\$\\$ > child; exec sleep 1000\" & exit' &); sleep 1000"
	if r := run(t, c, sandbox.Command{Argv: []string{"sh", "-c", tree}, Timeout: time.Second}); !r.exit.TimedOut {
		t.Errorf("timed out: %+v", r.exit)
	}
	eventually(t, "what forked twice ends at the timeout", func() bool { return output(t, c, gone) == "gone\n" })

	ev, err := c.Start(within(t), sh("echo $$ > child; echo ready; sleep 1000; :"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := ev.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	ev.Close()
	eventually(t, "the tree ends with its stream", func() bool { return output(t, c, gone) == "gone\n" })

	ev, err = c.Start(within(t), sandbox.Command{Argv: []string{"sh", "-c", "trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.02; done"}, Detach: true, Name: "trapper"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := ev.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	ev.Close()
	if err := c.Signal(within(t), "trapper", "SIGUSR1"); err != nil {
		t.Fatal(err)
	}
	exit, err := c.Wait(within(t), "trapper")
	if err != nil || exit.Code != 5 {
		t.Errorf("wait: %+v %v", exit, err)
	}
	ev, err = c.Attach(within(t), "trapper", sandbox.Offsets{Stdout: int64(len("ready\n"))})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := collect(ev); err != nil || r.stdout.String() != "caught\n" {
		t.Errorf("attach: %q %v", &r.stdout, err)
	}
	wantKind(t, "signal to what has ended", c.Signal(within(t), "trapper", "TERM"), sandbox.Conflict)
	wantKind(t, "no signal", c.Signal(within(t), "trapper", "SIGNOTHING"), sandbox.Invalid)

	list, err := c.Processes(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.Exit == nil {
			t.Errorf("process %s %q still lives", p.ID, p.Argv)
		}
	}
	stop(t, m)
}

// testStrangers: a process inside that finds the guest's port gets nothing.
func testStrangers(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	// Every listening port, from the system's own table; "none" where the guest is
	// reached another way.
	script := `command -v python3 >/dev/null || { echo none; exit 0; }
exec python3 - <<'P'
import socket
ports = set()
for f in ("/proc/net/tcp", "/proc/net/tcp6"):
    try:
        for line in open(f).read().split("\n")[1:]:
            w = line.split()
            if len(w) > 3 and w[3] == "0A": ports.add(int(w[1].split(":")[1], 16))
    except OSError: pass
hosts = {"127.0.0.1", socket.gethostname()}
try: hosts |= {a[4][0] for a in socket.getaddrinfo(socket.gethostname(), None)}
except OSError: pass
for h in sorted(hosts):
    for p in sorted(ports | {1}):
        try:
            s = socket.create_connection((h, p), 2); s.settimeout(10)
            s.sendall(b"berth/1\n" + b"\0" * 32 + b"GET /files?path=/ HTTP/1.1\r\nHost: x\r\n\r\n")
            print("got", h, p, s.recv(100))
        except OSError as e: pass
print("none")
P`
	if h.Driver.Class() == "fake" {
		t.Log("the fake's processes share the host's network: nothing to try")
		stop(t, m)
		return
	}
	if got := output(t, c, script); !strings.HasSuffix(got, "none\n") || strings.Contains(strings.ReplaceAll(got, "b''", ""), "b'") {
		t.Errorf("a stranger got: %q", got)
	}
	stop(t, m)
}
