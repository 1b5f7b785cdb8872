package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// The test program is the guest too: it starts itself in new namespaces, lays
// out a small system there and becomes PID 1 of it.
const (
	stageVariable = "BERTH_GUEST_TEST_STAGE"
	stageRoot     = "root"  // in new namespaces: lay out the system, then execute as the guest
	stageGuest    = "guest" // be the guest
)

func TestMain(m *testing.M) {
	switch os.Getenv(stageVariable) {
	case stageRoot:
		if err := enterRoot(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "enter root:", err)
			os.Exit(1)
		}
	case stageGuest:
		os.Args = os.Args[:1]
		main()
		return
	}
	os.Exit(m.Run())
}

// enterRoot makes dir the root of a small system and executes the guest in it.
func enterRoot(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755") },
		func() error { return layOut(dir) },
		func() error { return bind("/usr", dir+"/usr") },
		func() error { return bind("/dev/null", dir+"/dev/null") },
		func() error { return bind(self, dir+"/guest") },
		func() error { return unix.Mount("proc", dir+"/proc", "proc", 0, "") },
		func() error { return unix.Chroot(dir) },
		func() error { return os.Chdir("/") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return syscall.Exec("/guest", []string{"/guest"}, []string{stageVariable + "=" + stageGuest})
}

func layOut(dir string) error {
	for _, d := range []string{"usr", "proc", "dev", "etc"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	for _, l := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+l, filepath.Join(dir, l)); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"dev/null": "", "guest": "",
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\nother:x:1001:1001::/nonexistent:\n",
		"etc/group":  "root:x:0:\nuser:x:1000:\nother:x:1001:\nsudo:x:27:user\nstaff:x:50:other,user\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func bind(from, to string) error { return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "") }

// boot starts a guest as PID 1 and returns a client of it and its process.
func boot(t *testing.T) (*guestclient.Client, *exec.Cmd) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: making a PID namespace needs root; nothing of PID 1 is tested")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	var secret guestapi.Secret
	rand.Read(secret[:])
	cmd := launch(t, guestapi.Boot{SandboxID: "abcdefghijklmnopqrst", Secret: secret[:],
		Listen: l.Addr().String(), Peer: "127.0.0.1", Hostname: "berth-test"})
	c := guestclient.New(func(ctx context.Context) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
		if err == nil {
			err = guestapi.WritePreface(conn, secret)
		}
		return conn, err
	})
	t.Cleanup(func() { c.Close() })
	deadline := time.Now().Add(time.Minute)
	for {
		h, err := c.Hello(t.Context())
		if err == nil {
			if h.PID != 1 {
				t.Fatalf("the guest has pid %d", h.PID)
			}
			return c, cmd
		}
		if time.Now().After(deadline) {
			t.Fatalf("the guest does not answer: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// launch starts a guest as PID 1 of a small system.
func launch(t *testing.T, b guestapi.Boot) *exec.Cmd {
	t.Helper()
	doc, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", t.TempDir())
	cmd.Env = []string{stageVariable + "=" + stageRoot}
	cmd.Stdin, cmd.Stderr = bytes.NewReader(doc), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// do runs a command and returns its standard output and exit.
func do(ctx context.Context, c *guestclient.Client, cmd sandbox.Command) (string, sandbox.Exit, error) {
	cmd.Merge = true
	ev, err := c.Start(ctx, cmd)
	if err != nil {
		return "", sandbox.Exit{}, err
	}
	defer ev.Close()
	var out strings.Builder
	var exit sandbox.Exit
	for {
		e, err := ev.Recv()
		if errors.Is(err, io.EOF) {
			return out.String(), exit, nil
		}
		if err != nil {
			return out.String(), exit, err
		}
		out.Write(e.Data)
		if e.Exit != nil {
			exit = *e.Exit
		}
	}
}

func want(t *testing.T, c *guestclient.Client, cmd sandbox.Command, output string) {
	t.Helper()
	got, exit, err := do(t.Context(), c, cmd)
	if err != nil || got != output || exit.Code != 0 {
		t.Errorf("%q%s: %q %+v %v, want %q", cmd.Argv, cmd.Shell, got, exit, err, output)
	}
}

func sh(line string) sandbox.Command { return sandbox.Command{Argv: []string{"sh", "-c", line}} }

func TestTheSystemAroundIt(t *testing.T) {
	c, _ := boot(t)
	want(t, c, sh("cat /etc/hostname; grep -c berth-test /etc/hosts"), "berth-test\n1\n")
	want(t, c, sh("stat -c '%n %a %u' /tmp /workspace /home/user"), "/tmp 1777 0\n/workspace 755 1000\n/home/user 755 1000\n")
	want(t, c, sh("pwd; umask; ls /proc/self/fd | wc -l"), "/workspace\n0022\n4\n") // 0, 1, 2 and the folder itself
	for _, set := range []string{"SigBlk", "SigIgn"} {
		got, _, err := do(t.Context(), c, sh("grep "+set+" /proc/self/status"))
		mask, perr := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(got, set+":")), 16, 64)
		// 32 to 34 are the C library's: what the test itself was started with stays.
		if err != nil || perr != nil || mask&^(7<<31) != 0 {
			t.Errorf("%s is %q, %v", set, got, err)
		}
	}
	want(t, c, sandbox.Command{Argv: []string{"readlink", "/proc/1/fd/0"}, User: "root"}, "/dev/null\n")
}

func TestUsers(t *testing.T) {
	c, _ := boot(t)
	want(t, c, sh("id; echo $HOME $USER $LOGNAME $SHELL"), "uid=1000(user) gid=1000(user) groups=1000(user),27(sudo),50(staff)\n/home/user user user /bin/bash\n")
	as := func(user, line string) sandbox.Command {
		return sandbox.Command{Argv: []string{"sh", "-c", line}, User: user}
	}
	want(t, c, as("root", "id -u; id -G"), "0\n0\n")
	want(t, c, as("1001", "id -un; echo $SHELL"), "other\n/bin/sh\n")
	want(t, c, as("4711:50", "id -u; id -G"), "4711\n50\n")
	_, _, err := do(t.Context(), c, as("nobody-of-that-name", "true"))
	if sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("unknown user: %v", err)
	}
	_, _, err = do(t.Context(), c, sandbox.Command{Argv: []string{"true"}, Cwd: "/root-only"})
	if sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("unknown folder: %v", err)
	}
	want(t, c, as("root", "mkdir -m 700 /secret; printf x > /plain"), "")
	if _, _, err = do(t.Context(), c, sandbox.Command{Argv: []string{"true"}, Cwd: "/secret"}); sandbox.KindOf(err) != sandbox.Forbidden {
		t.Errorf("a folder that is closed to the user: %v", err)
	}
	if _, _, err = do(t.Context(), c, sandbox.Command{Argv: []string{"/plain"}}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("a file that is no program: %v", err)
	}
	info, err := c.WriteFile(t.Context(), "/made/by/api", sandbox.WriteOptions{Parents: true}, strings.NewReader("x"))
	if err != nil || info.Owner != "user" || info.Group != "user" {
		t.Errorf("write: %+v %v", info, err)
	}
	want(t, c, sh("stat -c %U:%G /made /made/by"), "user:user\nuser:user\n")
	if info, err = c.WriteFile(t.Context(), "/plain", sandbox.WriteOptions{User: "other"}, strings.NewReader("y")); err != nil || info.UID != 0 {
		t.Errorf("a file that is there keeps its owner: %+v %v", info, err)
	}
}

// TestNothingInsideEndsIt sends every signal to PID 1, from inside and as root.
func TestNothingInsideEndsIt(t *testing.T) {
	c, _ := boot(t)
	line := "for s in 1 2 3 4 5 6 7 8 10 11 12 13 14 15 16 18 20 21 22 24 25 26 27 28 29 30 31 40 64 9 19; do kill -$s 1; done; echo sent"
	want(t, c, sandbox.Command{Argv: []string{"sh", "-c", line}, User: "root"}, "sent\n")
	want(t, c, sh("echo alive"), "alive\n")
}

// TestOrphansAreReaped leaves processes without a parent and statuses that must
// not be mixed up meanwhile.
func TestOrphansAreReaped(t *testing.T) {
	c, _ := boot(t)
	var wg sync.WaitGroup
	for n := range 40 {
		wg.Go(func() {
			out, exit, err := do(t.Context(), c, sh(fmt.Sprintf("for i in 1 2 3; do (sh -c 'exit 99' &) ; done; exit %d", n)))
			if err != nil || exit.Code != n || out != "" {
				t.Errorf("%d: %q %+v %v", n, out, exit, err)
			}
		})
	}
	wg.Wait()
	deadline := time.Now().Add(time.Minute)
	for {
		out, _, err := do(t.Context(), c, sh("grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l"))
		if err != nil {
			t.Fatal(err)
		}
		if out == "0\n" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s zombies stay", strings.TrimSpace(out))
		}
	}
}

func TestAThousandAtOnce(t *testing.T) {
	c, cmd := boot(t)
	t.Logf("idle: %s", resident(t, cmd.Process.Pid))
	var wg sync.WaitGroup
	for n := range 1000 {
		wg.Go(func() {
			out, exit, err := do(t.Context(), c, sh(fmt.Sprintf("echo %d; exit %d", n, n%200)))
			if err != nil || exit.Code != n%200 || out != fmt.Sprintln(n) {
				t.Errorf("%d: %q %+v %v", n, out, exit, err)
			}
		})
	}
	wg.Wait()
	list, err := c.Processes(t.Context())
	if err != nil || len(list) != 256 {
		t.Errorf("%d processes are remembered: %v", len(list), err)
	}
	t.Logf("after: %s", resident(t, cmd.Process.Pid))
}

// resident is the line of a process's resident memory.
func resident(t *testing.T, pid int) string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func TestBootDocument(t *testing.T) {
	good := guestapi.Boot{SandboxID: "x", Secret: make([]byte, guestapi.SecretLen), Listen: "127.0.0.1:1", Peer: "10.0.0.1"}
	for what, spoil := range map[string]func(*guestapi.Boot){
		"no secret":    func(b *guestapi.Boot) { b.Secret = nil },
		"short secret": func(b *guestapi.Boot) { b.Secret = b.Secret[:31] },
		"no peer":      func(b *guestapi.Boot) { b.Peer = "" },
		"no listener":  func(b *guestapi.Boot) { b.Listen = "" },
		"no life":      func(b *guestapi.Boot) { b.LifeSeconds = -1 },
		"a long life":  func(b *guestapi.Boot) { b.LifeSeconds = guestapi.MaxLifeSeconds + 1 },
	} {
		b := good
		spoil(&b)
		doc, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readBoot(bytes.NewReader(doc)); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	for what, doc := range map[string]string{
		"empty": "", "text": "hello", "huge": strings.Repeat(" ", guestapi.MaxBoot) + "{}", "list": "[]",
	} {
		if _, err := readBoot(strings.NewReader(doc)); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	doc, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readBoot(bytes.NewReader(doc)); err != nil {
		t.Error(err)
	}
}

func FuzzBootDocument(f *testing.F) {
	f.Add([]byte(`{"secret":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","listen":"127.0.0.1:1","peer":"::1"}`))
	f.Add([]byte(`{"secret":1}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		b, err := readBoot(bytes.NewReader(doc))
		if err == nil && (len(b.Secret) != guestapi.SecretLen || net.ParseIP(b.Peer) == nil) {
			t.Errorf("took %q", doc)
		}
	})
}

// TestALifeEnds: who is to live for so long ends by itself.
func TestALifeEnds(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: making a PID namespace needs root; nothing of PID 1 is tested")
	}
	cmd := launch(t, guestapi.Boot{SandboxID: "abcdefghijklmnopqrst", Secret: make([]byte, guestapi.SecretLen),
		Listen: "127.0.0.1:0", Peer: "127.0.0.1", Hostname: "berth-test", LifeSeconds: 1})
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// TestABootThatFails ends with one line and the code that says so.
func TestABootThatFails(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{stageVariable + "=" + stageGuest}
	cmd.Stdin = strings.NewReader("no document")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if cmd.ProcessState.ExitCode() != exitBoot || strings.Count(stderr.String(), "\n") != 1 || !strings.HasPrefix(stderr.String(), "berth-guest: ") {
		t.Errorf("%v, %q", err, &stderr)
	}
}
