package gvisor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// soakBinary builds testdata/soak, for use inside.
func soakBinary(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "soak")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", file, "./testdata/soak").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// forker is a program that forks without executing another.
const forker = `
import os, sys, socket, hashlib
b = bytearray(os.urandom(1 << 20) * 24)
want = hashlib.sha1(b).digest()
l = socket.socket(socket.AF_UNIX); l.bind('/tmp/forker.sock'); l.listen()
print('forking', flush=True)
while True:
    c, _ = l.accept()
    pids = []
    for i in range(3):
        pid = os.fork()
        if pid == 0:
            ok = hashlib.sha1(b).digest() == want
            for o in range(i, len(b), 8192): b[o] ^= 0xff
            for o in range(i, len(b), 8192): b[o] ^= 0xff
            os._exit(0 if ok and hashlib.sha1(b).digest() == want else 1)
        pids.append(pid)
        for o in range(0, len(b), 40960): b[o] = b[o]
    ok = all(os.waitpid(p, 0)[1] == 0 for p in pids) and hashlib.sha1(b).digest() == want
    c.sendall(b'ok' if ok else b'broken'); c.close()
`

const askForker = `python3 -c "
import socket
s = socket.socket(socket.AF_UNIX); s.connect('/tmp/forker.sock')
r = s.recv(100); assert r == b'ok', r"`

// load puts the soak program into a machine and lets it hold so many MiB.
func (b box) load(t *testing.T, mib int) {
	t.Helper()
	put(t, b, soakBinary(t), "/tmp/soak")
	b.mustSh(t, "user", `setsid /tmp/soak hold `+strconv.Itoa(mib)+` >/tmp/soak.out 2>&1 & 
cat > /tmp/forker.py <<'END'`+forker+`END
setsid python3 /tmp/forker.py >/tmp/forker.out 2>&1 &
for i in $(seq 600); do grep -q holding /tmp/soak.out && grep -q forking /tmp/forker.out && exit 0; sleep 0.1; done; cat /tmp/*.out; exit 1`)
}

func put(t *testing.T, b box, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.guest.WriteFile(t.Context(), to, sandbox.WriteOptions{Mode: 0o755}, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
}

func (b box) ask(t *testing.T, cmds ...string) {
	t.Helper()
	if err := b.tryAsk(t, cmds...); err != nil {
		t.Fatal(err)
	}
}

// tryAsk may be called from any goroutine.
func (b box) tryAsk(t *testing.T, cmds ...string) error {
	for _, c := range cmds {
		line := "/tmp/soak ask " + c
		if c == "fork" {
			line = askForker
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		out, code, err := output(ctx, b.guest, line)
		if err != nil || code != 0 {
			more, _, _ := output(ctx, b.guest, "tail -n 30 /tmp/soak.out /tmp/forker.out")
			return fmt.Errorf("%s: exit %d, error %v: %s\n%s", c, code, err, out, more)
		}
	}
	return nil
}

// output runs a line as user and returns what it printed and its exit code.
func output(ctx context.Context, guest *guestclient.Client, line string) (string, int, error) {
	events, err := guest.Start(ctx, sandbox.Command{Argv: []string{"bash", "-c", line}, User: "user", Merge: true, Lossless: true})
	if err != nil {
		return "", 0, err
	}
	defer events.Close()
	var out strings.Builder
	for {
		e, err := events.Recv()
		if err != nil {
			return out.String(), 0, err
		}
		out.Write(e.Data)
		if e.Exit != nil {
			return out.String(), e.Exit.Code, nil
		}
	}
}

// own is how many bytes of memory a machine's engine has for itself: in what it
// may write to.
func own(t *testing.T, d *gvisor.Driver, id sandbox.ID) int64 {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", d.Engine(id))
	fds, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	seen := map[uint64]bool{}
	for _, fd := range fds {
		file := filepath.Join(dir, fd.Name())
		to, _ := os.Readlink(file)
		var st unix.Stat_t
		if strings.HasPrefix(to, "/memfd:runsc-memory") && writable(d.Engine(id), fd.Name()) && unix.Stat(file, &st) == nil && !seen[st.Ino] {
			seen[st.Ino] = true
			sum += st.Blocks * 512
		}
	}
	return sum
}

func writable(pid int, fd string) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	_, after, _ := strings.Cut(string(b), "flags:")
	flags, err := strconv.ParseInt(strings.Fields(after + " x")[0], 8, 64)
	return err == nil && flags&unix.O_ACCMODE == unix.O_RDWR
}

func pauseAndResume(t *testing.T, d *gvisor.Driver, b box, spec driver.Spec) box {
	t.Helper()
	saved, err := d.Pause(t.Context(), b.Machine, driver.KeepMemory)
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Resume(t.Context(), spec, saved)
	if err != nil {
		t.Fatal(err)
	}
	return client(t, m)
}

// TestMemoryComesBackWhenItIsUsed pauses and resumes a machine over and over.
// Memory that is not written is not copied.
func TestMemoryComesBackWhenItIsUsed(t *testing.T) {
	mib, rounds := 64, 3
	if os.Getenv("BERTH_SOAK") != "" {
		mib, rounds = 200, 20
	}
	d := newDriver(t, t.TempDir())
	spec := newSpec(t, func(l *sandbox.Limits) { l.MemoryBytes = 2 << 30 })
	b := create(t, d, spec)
	b.load(t, mib)
	b.ask(t, "verify", "churn", "fork")
	for round := range rounds {
		begun := time.Now()
		b = pauseAndResume(t, d, b, spec)
		b.ask(t, "peek")
		took := time.Since(begun)
		if n := own(t, d, b.ID()); n > int64(mib)<<19 {
			t.Errorf("round %d: a machine with %d MiB that wrote nothing has %d MiB of its own", round, mib, n>>20)
		} else {
			t.Logf("round %d: %v, %d MiB", round, took, n>>20)
		}
		switch round % 5 {
		case 0:
			b.ask(t, "verify", "some", "verify", "fork")
		case 1:
			b.ask(t, "fork", "churn", "verify")
		case 2:
			b.ask(t, "write", "fork", "churn")
		case 3:
			b.ask(t, "some")
		case 4: // again at once
		}
	}
	b.ask(t, "verify", "churn", "fork", "write", "verify")
}

// TestForksShareWhatTheyDoNotWrite forks a machine and its forks, all of whose
// programs go on writing, and looks at every byte of all of them.
func TestForksShareWhatTheyDoNotWrite(t *testing.T) {
	mib, children, rounds, generations := 32, 1, 1, 2
	if os.Getenv("BERTH_SOAK") != "" {
		mib, children, rounds, generations = 200, 3, 4, 5
	}
	d := newDriver(t, t.TempDir())
	memory := func(l *sandbox.Limits) { l.MemoryBytes = 2 << 30 }
	spec := newSpec(t, memory)
	parent := create(t, d, spec)
	parent.load(t, mib)
	for round := range rounds {
		all := []box{parent}
		for generation := range generations {
			from := all[len(all)-1]
			var specs []driver.Spec
			for range children {
				spec = newSpec(t, memory)
				specs = append(specs, spec)
			}
			begun := time.Now()
			f, err := d.Fork(t.Context(), from.Machine, specs)
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(begun)
			for _, one := range f.Each {
				if one.Err != nil {
					t.Fatal(one.Err)
				}
				all = append(all, client(t, one.Machine))
			}
			child := all[len(all)-1]
			child.ask(t, "peek")
			n := own(t, d, child.ID())
			if n > 28<<20 { // of which 18 are shared memory and what programs write
				t.Errorf("a fork of %d MiB that wrote nothing has %d MiB of its own", mib, n>>20)
			}
			t.Logf("round %d, generation %d: pause %v, fork %v, %d MiB", round, generation, f.Pause, took, n>>20)
			from.ask(t, "write", "fork")
			child.ask(t, "churn", "fork", "verify")
		}
		var group sync.WaitGroup
		for i, b := range all {
			group.Go(func() {
				if err := b.tryAsk(t, "verify", []string{"write", "some", "churn"}[i%3], "fork", "verify"); err != nil {
					t.Errorf("round %d, machine %d: %v", round, i, err)
				}
			})
		}
		group.Wait()
		for _, b := range all {
			b.ask(t, "verify")
		}
		// The last serves on, put aside for a moment while others read from it, and
		// then without those whom it came from.
		parent = all[len(all)-1]
		specs := []driver.Spec{newSpec(t, memory)}
		f, err := d.Fork(t.Context(), parent.Machine, specs)
		if err != nil || f.Each[0].Err != nil {
			t.Fatal(err, f.Each)
		}
		child := client(t, f.Each[0].Machine)
		parent.ask(t, "some")
		parent = pauseAndResume(t, d, parent, spec)
		parent.ask(t, "verify", "write", "fork", "churn")
		child.ask(t, "verify", "fork")
		for _, b := range all[:len(all)-1] {
			if err := b.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		parent.ask(t, "verify", "fork", "churn")
		child.ask(t, "verify", "write", "fork", "churn")
	}
}

// TestMemoryLimitCountsWhatIsWritten resumes a machine that fills most of its
// limit, whose memory then is shared, and lets it ask for more than there is.
func TestMemoryLimitCountsWhatIsWritten(t *testing.T) {
	d := newDriver(t, t.TempDir())
	spec := newSpec(t, func(l *sandbox.Limits) { l.MemoryBytes = 256 << 20 })
	b := create(t, d, spec)
	b.load(t, 64)
	b = pauseAndResume(t, d, b, spec)
	out, exit := b.sh(t, "user", `python3 -c "b = [bytearray(b'x') * (16 << 20) for i in range(64)]
print('had it all')"`)
	if exit.Code == 0 || strings.Contains(out, "had it all") {
		t.Errorf("1 GiB fitted into 256 MiB: exit %d, %q", exit.Code, out)
	}
	b.ask(t, "verify", "write", "fork", "verify")
	out, exit = b.sh(t, "user", `python3 -c "b = [bytearray(b'x') * (16 << 20) for i in range(64)]"`)
	if exit.Code == 0 {
		t.Errorf("1 GiB fitted into what 256 MiB leave: %q", out)
	}
	b.ask(t, "verify")
}

// TestMemoryWhereNothingMayBeRun keeps memory on a disk from which no program
// can be mapped: it is copied.
func TestMemoryWhereNothingMayBeRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: mounting a disk needs root")
	}
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1g"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	d := newDriver(t, t.TempDir())
	spec := newSpec(t)
	b := create(t, d, spec)
	b.load(t, 32)
	for _, can := range []struct{ written, read uintptr }{{0, unix.MS_NOEXEC}, {unix.MS_NOEXEC, unix.MS_NOEXEC}, {unix.MS_NOEXEC, 0}, {0, 0}} {
		dir := filepath.Join(disk, "captured")
		if err := errors.Join(unix.Mount("", disk, "", unix.MS_REMOUNT|can.written, "size=1g"), os.Mkdir(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		if err := d.Capture(t.Context(), b.Machine, driver.KeepMemory, dir); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("", disk, "", unix.MS_REMOUNT|can.read, "size=1g"); err != nil {
			t.Fatal(err)
		}
		m, err := d.Restore(t.Context(), newSpec(t), dir)
		if err != nil {
			t.Fatal(err)
		}
		b.ask(t, "verify", "some")
		b = client(t, m)
		n := own(t, d, b.ID())
		if can.read != 0 && n < 32<<20 || can.read|can.written == 0 && n >= 32<<20 {
			t.Errorf("written with %#x, read with %#x: %d MiB are its own", can.written, can.read, n>>20)
		}
		b.ask(t, "verify", "churn", "fork", "verify")
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatIsKeptForForksIsNotTheirParents forks a machine that uses half of its
// memory, lets it write all of that anew, and gives back what was kept.
func TestWhatIsKeptForForksIsNotTheirParents(t *testing.T) {
	d := newDriver(t, t.TempDir())
	limit := func(l *sandbox.Limits) { l.MemoryBytes = 320 << 20 }
	b := create(t, d, newSpec(t, limit))
	b.load(t, 120)
	var children []box
	for range 2 {
		f, err := d.Fork(t.Context(), b.Machine, []driver.Spec{newSpec(t, limit)})
		if err != nil || f.Each[0].Err != nil {
			t.Fatal(err, f.Each)
		}
		children = append(children, client(t, f.Each[0].Machine))
		b.ask(t, "write", "fork", "verify")
	}
	if n := own(t, d, b.ID()); n < 300<<20 {
		t.Errorf("only %d MiB are kept for the forks and the machine", n>>20)
	}
	out, exit := b.sh(t, "user", `python3 -c "b = [bytearray(b'x') * (16 << 20) for i in range(64)]"`)
	if exit.Code == 0 {
		t.Errorf("1 GiB fitted into what 320 MiB leave: %q", out)
	}
	for _, c := range children {
		c.ask(t, "verify", "write", "fork", "churn")
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.ask(t, "verify")
	for try := 1; own(t, d, b.ID()) > 220<<20; try++ {
		if try == 1200 {
			t.Fatalf("%d MiB are still its own", own(t, d, b.ID())>>20)
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.ask(t, "write", "fork", "churn")
}
