package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver/gvisor/runsc/called"
	"github.com/berth-dev/berth/sandbox"
)

// inGroup makes this test binary do something inside a group, in place of tests.
const inGroup = "BERTH_TEST_IN_GROUP"

// InGroup does what a test asked of the process that it started; TestMain calls
// it.
func InGroup() {
	what, ok := os.LookupEnv(inGroup)
	if !ok {
		return
	}
	for _, procs := range strings.Split(os.Getenv(called.CgroupsVar), ":") {
		if err := os.WriteFile(procs, []byte("0"), 0); err != nil {
			panic(err)
		}
	}
	switch what {
	case "eat":
		hold(1 << 30)
	case "spin":
		for begin := time.Now(); time.Since(begin) < time.Second; {
		}
	case "wait":
		b := hold(1 << 20)
		time.Sleep(time.Hour)
		runtime.KeepAlive(b)
	}
	os.Exit(0)
}

func hold(bytes int) []byte {
	b := make([]byte, bytes)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return b
}

// TestGroup holds the machine's cgroups, of whatever version, to what the driver
// asks of them.
func TestGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: cgroups need root")
	}
	all, err := findCgroups("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("cgroups of version %s", all.version())
	g := all.group("group")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	t.Cleanup(func() {
		if err := g.destroy(context.Background()); err != nil {
			t.Error(err)
		}
		all.remove()
	})
	if err := g.make(wall(sandbox.Limits{MemoryBytes: 64 << 20})); err != nil {
		t.Fatal(err)
	}
	start := func(what string) *exec.Cmd {
		c := exec.Command(os.Args[0], "-test.run=^$")
		c.Env = []string{inGroup + "=" + what, called.CgroupsVar + "=" + strings.Join(g.procsFiles(), ":")}
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c
	}

	if err := start("eat").Wait(); err == nil {
		t.Error("1 GiB fitted into a group of 64 MiB and its reserve")
	}
	if g.oomKills() == 0 {
		t.Error("the kill for want of memory is not seen")
	}

	if err := g.setCPU(100); err != nil {
		t.Fatal(err)
	}
	if err := start("spin").Wait(); err != nil {
		t.Error(err)
	}
	stat, err := readStat(g.dir(all.cpu) + "/cpu.stat")
	if err != nil || stat["nr_throttled"] == 0 {
		t.Errorf("a tenth of a core was never enforced: %v, %v", stat, err)
	}
	if used, err := g.cpuUse(); err != nil || used == 0 || used > time.Minute {
		t.Errorf("processor time used is %v, %v", used, err)
	}

	for _, idle := range []bool{true, false} {
		if err := g.setIdle(idle); err != nil {
			t.Fatal(err)
		}
		n, err := readInt(g.dir(all.cpu) + "/cpu.idle")
		if errors.Is(err, fs.ErrNotExist) {
			t.Log("this kernel has no idle groups: theirs is the least weight")
		} else if err != nil || n != map[bool]int64{true: 1, false: 0}[idle] {
			t.Errorf("the group is idle %v: %d, %v", idle, n, err)
		}
	}

	undo, err := g.lift()
	if err != nil {
		t.Fatal(err)
	}
	if err := start("eat").Wait(); err != nil {
		t.Errorf("with the limits lifted: %v", err)
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	if err := start("eat").Wait(); err == nil {
		t.Error("the limits that were lifted are not back")
	}

	// What waits in the group ends with it, however much there is.
	for range 20 {
		c := start("wait")
		go c.Wait()
	}
	for {
		pids, err := g.processes()
		if err != nil {
			t.Fatal(err)
		}
		n, err := g.memoryUse()
		if err != nil {
			t.Fatal(err)
		}
		if len(pids) == 20 && n > 20<<20 {
			break
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			t.Fatalf("%d of 20 processes are there and use %d bytes: %v", len(pids), n, err)
		}
	}
	if err := g.destroy(ctx); err != nil {
		t.Fatal(err)
	}
	for _, d := range g.dirs() {
		if _, err := os.Stat(d); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", d, err)
		}
	}
	if ids, err := all.ids(); err != nil || len(ids) > 0 {
		t.Errorf("groups left: %q, %v", ids, err)
	}
}

func TestParseMount(t *testing.T) {
	for line, want := range map[string][3]string{
		"30 24 0:26 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory":             {"/sys/fs/cgroup/memory", "cgroup", "rw,memory"},
		"30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate":                       {"/sys/fs/cgroup", "cgroup2", "rw,nsdelegate"},
		"31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 master:2 - cgroup cgroup rw,cpu,cpuacct": {"/sys/fs/cgroup/cpu,cpuacct", "cgroup", "rw,cpu,cpuacct"},
		"":              {},
		"- cgroup":      {},
		"1 2 3 4 - a b": {},
	} {
		if m, k, o := parseMount(line); [3]string{m, k, o} != want {
			t.Errorf("%q: %q %q %q, want %q", line, m, k, o, want)
		}
	}
}

// TestGroupIsRenamed gives a group with a process in it another id.
func TestGroupIsRenamed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: cgroups need root")
	}
	all, err := findCgroups("test-rename")
	if err != nil {
		t.Fatal(err)
	}
	from, to := all.group("from"), all.group("to")
	t.Cleanup(func() {
		if err := errors.Join(from.destroy(context.Background()), to.destroy(context.Background())); err != nil {
			t.Error(err)
		}
		all.remove()
	})
	const memory = 128 << 20
	if err := from.make(memory); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{inGroup + "=wait", called.CgroupsVar + "=" + strings.Join(from.procsFiles(), ":")}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() // killed with its group
	defer cmd.Process.Kill()
	// It is in all of the group's folders once it holds something.
	for n := int64(0); n < 1<<20; {
		if n, err = from.memoryUse(); err != nil {
			t.Fatal(err)
		}
		if err := sleep(t.Context(), 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	want, err := from.limits()
	if err != nil {
		t.Fatal(err)
	}
	if err := from.rename("to", memory); err != nil {
		t.Fatal(err)
	}
	if pids, err := to.processes(); err != nil || len(pids) != 1 || pids[0] != cmd.Process.Pid {
		t.Errorf("in it are %v, %v; want %d", pids, err, cmd.Process.Pid)
	}
	got, err := to.limits()
	if err != nil || len(got) != len(want) {
		t.Fatalf("its limits are %v, and were %v: %v", got, want, err)
	}
	for i := range got {
		if got[i].Name != want[i].Name || got[i].Text != want[i].Text {
			t.Errorf("%s is %s, and was %s", got[i].Name, got[i].Text, want[i].Text)
		}
	}
	if ids, err := all.ids(); err != nil || len(ids) != 1 || ids[0] != "to" {
		t.Errorf("there are %q, %v", ids, err)
	}
}

func TestParentsFirst(t *testing.T) {
	parent := exec.CommandContext(t.Context(), "sh", "-c", "sleep 1000 & echo $!; wait")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Kill(child, unix.SIGKILL)
		parent.Process.Kill()
		parent.Wait()
	})
	const gone = 1 << 30
	pid := parent.Process.Pid
	for _, pids := range [][]int{{child, pid, gone}, {gone, pid, child}, {pid, child, gone}} {
		if got := parentsFirst(pids); len(got) != 3 || got[2] != child {
			t.Errorf("%v in the order %v; %d is the child of %d", pids, got, child, pid)
		}
	}
}
