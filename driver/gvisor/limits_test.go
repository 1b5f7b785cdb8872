package gvisor_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/sandbox"
)

func TestMemoryLimitEndsOneProcess(t *testing.T) {
	d := newDriver(t, t.TempDir())
	b := create(t, d, newSpec(t, func(l *sandbox.Limits) { l.MemoryBytes = 256 << 20 }))

	kb, err := strconv.Atoi(b.mustSh(t, "user", "awk '/MemTotal/{print $2}' /proc/meminfo"))
	if err != nil || kb > 256<<10 || kb < 200<<10 {
		t.Errorf("MemTotal is %d kB, %v: want the limit of 256 MiB", kb, err)
	}
	keep := b.mustSh(t, "user", "sleep 1000 >/dev/null 2>&1 & echo $!")
	for _, eat := range []string{
		"b = [bytearray(16 << 20) for i in range(64)]",
		"b = bytearray(400 << 20); [b.__setitem__(i, 1) for i in range(0, len(b), 4096)]",
		"import mmap; m = mmap.mmap(-1, 1 << 30); [m.write(b'x' * (1 << 20)) for i in range(1024)]",
		"import os; [os.fork() for i in range(3)]; b = b'x' * (100 << 20); b += b'y'",
	} {
		out, _ := b.sh(t, "user", `python3 -c "`+eat+`
print('had it all')"`)
		if strings.Count(out, "had it all") > 2 {
			t.Fatalf("1 GiB fitted into 256 MiB: %s: %q", eat, out)
		}
	}
	// The sandbox and its other processes live on. Its memory is free again once the last of
	// them has ended: copies of the last one eat on for a moment, and any program may be ended
	// for that.
	for try := 1; ; try++ {
		out, exit := b.sh(t, "user", "python3 -c 'print(1)' && kill -0 "+keep)
		if exit.Code == 0 {
			return
		}
		if try == 1200 {
			t.Fatalf("the memory is not given back, or another process has ended: exit %d: %s", exit.Code, out)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestTheEngineIsTheLastToGo looks at whom the kernel would kill first.
func TestTheEngineIsTheLastToGo(t *testing.T) {
	d := newDriver(t, t.TempDir())
	spec := newSpec(t)
	b := create(t, d, spec)
	look := func() {
		t.Helper()
		b.mustSh(t, "user", "sleep 1000 >/dev/null 2>&1 & echo")
		sentry, others, err := d.OOMScores(b.ID())
		if err != nil {
			t.Fatal(err)
		}
		if sentry != 0 || len(others) == 0 {
			t.Errorf("the sentry's oom_score_adj is %d, beside %d others: want 0 beside some", sentry, len(others))
		}
		for _, n := range others {
			if n != 1000 {
				t.Errorf("a process of the sandbox has oom_score_adj %d, want 1000", n)
			}
		}
	}
	look()
	saved, err := d.Pause(t.Context(), b.Machine, driver.KeepMemory)
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Resume(t.Context(), spec, saved)
	if err != nil {
		t.Fatal(err)
	}
	b = client(t, m)
	look()
}

func TestFillingSharedMemoryEndsNothing(t *testing.T) {
	d := newDriver(t, t.TempDir())
	b := create(t, d, newSpec(t, func(l *sandbox.Limits) { l.MemoryBytes = 256 << 20 }))
	out, exit := b.sh(t, "root", "dd if=/dev/zero of=/dev/shm/fill bs=1M count=1000")
	if exit.Code == 0 || !strings.Contains(out, "No space left") {
		t.Errorf("filled /dev/shm with 1000 MiB: exit %d %s", exit.Code, out)
	}
	b.mustSh(t, "user", "echo alive")
}

func TestDiskLimitIsENOSPCInside(t *testing.T) {
	d := newDriver(t, t.TempDir())
	// More disk than memory: what is written lies on disk.
	b := create(t, d, newSpec(t, func(l *sandbox.Limits) { l.MemoryBytes = 256 << 20; l.DiskBytes = 600 << 20 }))
	for _, dir := range []string{"/workspace", "/tmp", "/var/tmp"} {
		out, exit := b.sh(t, "user", "dd if=/dev/zero of="+dir+"/fill bs=1M count=2000; r=$?; stat -c %s "+dir+"/fill; exit $r")
		if exit.Code == 0 || !strings.Contains(out, "No space left") {
			t.Fatalf("%s took 2000 MiB: exit %d %s", dir, exit.Code, out)
		}
		u, err := b.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if u.DiskBytes < 500<<20 || u.DiskBytes > 700<<20 {
			t.Errorf("%s full: %d bytes on the host's disk, want about 600 MiB", dir, u.DiskBytes)
		}
		if u.MemoryBytes > 200<<20 {
			t.Errorf("%s full: %d bytes of memory, the layer should be on disk", dir, u.MemoryBytes)
		}
		b.mustSh(t, "user", "rm "+dir+"/fill; echo ok > "+dir+"/small; cat "+dir+"/small")
	}
	// The engine gives space back a moment after a file is gone.
	for range 1200 {
		u, err := b.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if u.DiskBytes < 100<<20 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("the space of removed files is not given back to the host's disk")
}

func TestProcessLimitHoldsForRootToo(t *testing.T) {
	d := newDriver(t, t.TempDir())
	bomb := `python3 - <<'E'
import os, time
n = 0
for uid in (%s):
    for i in range(300):
        try:
            pid = os.fork()
        except OSError as e:
            break
        if pid == 0:
            try: os.setuid(uid)
            except OSError: pass
            time.sleep(600); os._exit(0)
        n += 1
print(n)
E`
	for _, c := range []struct{ user, uids string }{{"user", "1000,"}, {"root", "0, 1, 2, 2000, 3000"}} {
		b := create(t, d, newSpec(t, func(l *sandbox.Limits) { l.Processes = 100 }))
		n, err := strconv.Atoi(b.mustSh(t, c.user, strings.Replace(bomb, "%s", c.uids, 1)))
		if err != nil || n > 100 || n < 20 {
			t.Errorf("%s started %d processes, %v: at most 100 are allowed", c.user, n, err)
		}
		// The guest goes on at the limit: it can be asked to end them.
		if _, err := b.guest.Processes(t.Context()); err != nil {
			t.Fatalf("at the limit the guest does not answer: %v", err)
		}
	}
}

func throttled(t *testing.T, d *gvisor.Driver, id sandbox.ID) int64 {
	t.Helper()
	n, err := d.Throttled(id)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRootInsideCannotRaiseItsLimits(t *testing.T) {
	d := newDriver(t, t.TempDir())
	b := create(t, d, newSpec(t, func(l *sandbox.Limits) { l.Processes = 200; l.OpenFiles = 500 }))
	for _, line := range []string{"ulimit -Hu 100000", "ulimit -Hn 100000", "mount -t tmpfs none /mnt", "ip addr add 10.200.0.1/32 dev lo", "hostname other"} {
		if out, exit := b.sh(t, "root", line); exit.Code == 0 {
			t.Errorf("%s: root inside may: %s", line, out)
		}
	}
	if n := b.mustSh(t, "root", "ulimit -n; ulimit -u"); n != "500\n200" {
		t.Errorf("limits are %q, want 500 and 200", n)
	}
	for _, set := range []string{"CapBnd", "CapEff", "CapPrm"} {
		caps, err := strconv.ParseUint(b.mustSh(t, "root", "awk '/"+set+"/{print $2}' /proc/self/status"), 16, 64)
		if err != nil || caps&(1<<21|1<<24|1<<12|1<<16) != 0 {
			t.Errorf("%s is %x, %v: holds SYS_ADMIN, SYS_RESOURCE, NET_ADMIN or SYS_MODULE", set, caps, err)
		}
	}
	b.mustSh(t, "user", "sudo -n id -u | grep -qx 0")
}

func TestProcessorShareIsEnforced(t *testing.T) {
	d := newDriver(t, t.TempDir())
	b := create(t, d, newSpec(t, func(l *sandbox.Limits) { l.CPUMilli = 100 }))
	b.mustSh(t, "user", "timeout 2 sh -c 'while :; do :; done' || true")
	if n := throttled(t, d, b.ID()); n == 0 {
		t.Error("a loop without end was never throttled at a tenth of a core")
	}
}
