package gvisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// hierarchy is where one controller's groups are made. On a machine of version
// 1 every controller has its own; on one of version 2 all share one; a hybrid
// machine may have both.
type hierarchy struct {
	mount   string // "/sys/fs/cgroup/memory"
	unified bool   // version 2
}

// cgroups knows where memory, processor time and its accounting are limited on
// this machine, and the folder in each that is this driver's own.
type cgroups struct {
	memory, cpu, account hierarchy
	parent               string // "berth/<tag>", beneath each mount
}

// findCgroups reads which hierarchies the machine has mounted.
func findCgroups(tag string) (*cgroups, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found := map[string]hierarchy{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		mount, kind, options := parseMount(lines.Text())
		switch kind {
		case "cgroup":
			for _, o := range strings.Split(options, ",") {
				found[o] = hierarchy{mount: mount}
			}
		case "cgroup2":
			b, err := os.ReadFile(filepath.Join(mount, "cgroup.controllers"))
			if err != nil {
				return nil, fmt.Errorf("read controllers: %w", err)
			}
			for _, c := range strings.Fields(string(b)) {
				found[c] = hierarchy{mount: mount, unified: true}
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	c := &cgroups{memory: found["memory"], cpu: found["cpu"], account: found["cpuacct"], parent: filepath.Join("berth", tag)}
	if c.cpu.unified {
		c.account = c.cpu
	}
	for name, h := range map[string]hierarchy{"memory": c.memory, "cpu": c.cpu, "cpuacct": c.account} {
		if h.mount == "" {
			return nil, fmt.Errorf("no cgroup controller %q is mounted", name)
		}
	}
	return c, nil
}

// parseMount takes a line of mountinfo (proc_pid_mountinfo(5)) apart.
func parseMount(line string) (mount, kind, options string) {
	before, after, ok := strings.Cut(line, " - ")
	if !ok {
		return "", "", ""
	}
	b, a := strings.Fields(before), strings.Fields(after)
	if len(b) < 5 || len(a) < 3 {
		return "", "", ""
	}
	return b[4], a[0], a[2]
}

// version says for people what was found.
func (c *cgroups) version() string {
	switch {
	case c.memory.unified && c.cpu.unified:
		return "v2"
	case c.memory.unified || c.cpu.unified:
		return "hybrid"
	}
	return "v1"
}

// group is the cgroup of one machine: a folder of one name in each hierarchy.
type group struct {
	of *cgroups
	id string
}

func (c *cgroups) group(id string) *group { return &group{of: c, id: id} }

func (g *group) dir(h hierarchy) string { return filepath.Join(h.mount, g.of.parent, g.id) }

// dirs lists the group's folders, each once.
func (g *group) dirs() []string {
	var all []string
	for _, h := range []hierarchy{g.of.memory, g.of.cpu, g.of.account} {
		d := g.dir(h)
		known := false
		for _, have := range all {
			known = known || have == d
		}
		if !known {
			all = append(all, d)
		}
	}
	return all
}

// make creates the group with a limit of memory. The limit of processor time is
// set apart, once the machine is up.
func (g *group) make(memory int64) error {
	for _, h := range []hierarchy{g.of.memory, g.of.cpu, g.of.account} {
		if h.unified {
			if err := delegate(h.mount, g.of.parent); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(g.dir(h), 0o755); err != nil {
			return err
		}
	}
	return g.setMemory(memory)
}

// rename gives the group, with all that is in it, another id. Where the kernel does
// not rename groups its processes move to one with a limit of memory; what they hold
// already is nobody's then.
func (g *group) rename(id string, memory int64) error {
	to := g.of.group(id)
	for _, h := range []hierarchy{g.of.memory, g.of.cpu, g.of.account} {
		if h.unified {
			continue
		}
		// Controllers that are mounted as one have one folder.
		if err := os.Rename(g.dir(h), to.dir(h)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if !g.of.memory.unified && !g.of.cpu.unified {
		return nil
	}
	if err := to.make(memory); err != nil {
		return err
	}
	for {
		pids, err := g.processes()
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return g.removeDirs()
		}
		for _, pid := range pids {
			for _, file := range to.procsFiles() {
				if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0); err != nil && !errors.Is(err, unix.ESRCH) {
					return err
				}
			}
		}
	}
}

// fileCost is what the engine itself holds for a file of the writable layer, in
// bytes: 2.9 KiB were measured for an empty one.
const fileCost = 3 << 10

// wall is the memory that a machine's group may hold: the sandbox's, a limit that
// the engine keeps, and what the engine itself may need beside it.
func wall(l sandbox.Limits) int64 {
	return l.MemoryBytes + 64<<20 + l.MemoryBytes/16 + l.Files*fileCost
}

// setMemory limits what the group may hold, swap included.
func (g *group) setMemory(memory int64) error {
	m := g.dir(g.of.memory)
	if g.of.memory.unified {
		return errors.Join(
			write(m, "memory.max", memory),
			writeIfThere(m, "memory.swap.max", 0),
			writeIfThere(m, "memory.oom.group", 0))
	}
	// The limit with swap must never be the lesser, so growing begins with it;
	// it is absent where swap is not accounted.
	grown := write(m, "memory.memsw.limit_in_bytes", memory)
	if err := write(m, "memory.limit_in_bytes", memory); err != nil {
		return err
	}
	if grown == nil {
		return nil
	}
	return writeIfThere(m, "memory.memsw.limit_in_bytes", memory)
}

// growMemory raises the group's limit of memory, if it has one.
func (g *group) growMemory(by int64) error {
	file := "memory.limit_in_bytes"
	if g.of.memory.unified {
		file = "memory.max"
	}
	b, err := os.ReadFile(filepath.Join(g.dir(g.of.memory), file))
	if err != nil {
		return err
	}
	now, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || now > math.MaxInt64-by {
		return nil // "max"
	}
	return g.setMemory(now + by)
}

// delegate lets the groups beneath parent use the controllers (version 2).
func delegate(mount, parent string) error {
	dir := mount
	for _, step := range append([]string{""}, strings.Split(parent, "/")...) {
		dir = filepath.Join(dir, step)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		file := filepath.Join(dir, "cgroup.subtree_control")
		have, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		offered, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for _, c := range []string{"memory", "cpu"} {
			if has(string(offered), c) && !has(string(have), c) {
				if err := os.WriteFile(file, []byte("+"+c), 0); err != nil {
					return fmt.Errorf("delegate %s: %w", c, err)
				}
			}
		}
	}
	return nil
}

func has(list, word string) bool {
	for _, w := range strings.Fields(list) {
		if w == word {
			return true
		}
	}
	return false
}

const cpuPeriod = 100_000 // µs

// setCPU limits the group to milli thousandths of a core and gives it a weight
// in the same proportion.
func (g *group) setCPU(milli int64) error {
	d := g.dir(g.of.cpu)
	quota := max(milli*cpuPeriod/1000, 1000)
	if g.of.cpu.unified {
		if err := writeText(d, "cpu.max", fmt.Sprintf("%d %d", quota, cpuPeriod)); err != nil {
			return err
		}
		return write(d, "cpu.weight", min(max(milli/10, 1), 10_000))
	}
	return errors.Join(
		write(d, "cpu.cfs_period_us", cpuPeriod),
		write(d, "cpu.cfs_quota_us", quota),
		write(d, "cpu.shares", max(milli*1024/1000, 2)))
}

// setIdle lets the group's processes run only where no others would, or like others
// again.
func (g *group) setIdle(idle bool) error {
	d := g.dir(g.of.cpu)
	text := map[bool]string{true: "1", false: "0"}[idle]
	if err := writeText(d, "cpu.idle", text); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	// Before Linux 5.15 there is no such file: the least weight is nearly that.
	if g.of.cpu.unified {
		return write(d, "cpu.weight", map[bool]int64{true: 1, false: 100}[idle])
	}
	return write(d, "cpu.shares", map[bool]int64{true: 2, false: 1024}[idle])
}

// procsFiles lists the files a process writes "0" to in order to join.
func (g *group) procsFiles() []string {
	files := g.dirs()
	for i := range files {
		files[i] = filepath.Join(files[i], "cgroup.procs")
	}
	return files
}

// processes lists the ids of all processes in any of the group's folders.
func (g *group) processes() ([]int, error) {
	seen := map[int]bool{}
	var all []int
	for _, file := range g.procsFiles() {
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, word := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if !seen[pid] {
				seen[pid] = true
				all = append(all, pid)
			}
		}
	}
	return all, nil
}

// destroy kills every process of the group, whatever it is doing, and removes
// the group. A group that is not there is no error.
func (g *group) destroy(ctx context.Context) error {
	for wait := 200 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		pids, err := g.processes()
		if err != nil {
			return err
		}
		for _, pid := range parentsFirst(pids) {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill %d: %w", pid, err)
			}
		}
		if len(pids) == 0 {
			err := g.removeDirs()
			if !errors.Is(err, unix.EBUSY) {
				return err
			}
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func (g *group) removeDirs() error {
	for _, d := range g.dirs() {
		if err := unix.Rmdir(d); err != nil && !errors.Is(err, unix.ENOENT) {
			return &fs.PathError{Op: "remove cgroup", Path: d, Err: err}
		}
	}
	return nil
}

// ids lists the machines that have a group in any hierarchy.
func (c *cgroups) ids() ([]string, error) {
	seen := map[string]bool{}
	var all []string
	for _, h := range []hierarchy{c.memory, c.cpu, c.account} {
		entries, err := os.ReadDir(filepath.Join(h.mount, c.parent))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() && !seen[e.Name()] {
				seen[e.Name()] = true
				all = append(all, e.Name())
			}
		}
	}
	return all, nil
}

// remove removes the driver's own folder from every hierarchy if it is empty.
func (c *cgroups) remove() {
	for _, h := range []hierarchy{c.memory, c.cpu, c.account} {
		unix.Rmdir(filepath.Join(h.mount, c.parent)) // others' machines may be beneath it
	}
}

// memoryUse is what the group's processes hold, without page cache.
func (g *group) memoryUse() (int64, error) {
	dir := g.dir(g.of.memory)
	fields := []string{"total_rss", "total_shmem"}
	if g.of.memory.unified {
		fields = []string{"anon", "shmem", "kernel_stack", "pagetables", "slab_unreclaimable"}
	}
	stat, err := readStat(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, f := range fields {
		sum += stat[f]
	}
	if g.of.memory.unified {
		return sum, nil
	}
	kernel, err := readInt(filepath.Join(dir, "memory.kmem.usage_in_bytes"))
	if errors.Is(err, fs.ErrNotExist) {
		return sum, nil
	}
	return sum + kernel, err
}

// cpuUse is the processor time that the group has used.
func (g *group) cpuUse() (time.Duration, error) {
	dir := g.dir(g.of.account)
	if g.of.account.unified {
		stat, err := readStat(filepath.Join(dir, "cpu.stat"))
		return time.Duration(stat["usage_usec"]) * time.Microsecond, err
	}
	n, err := readInt(filepath.Join(dir, "cpuacct.usage"))
	return time.Duration(n), err
}

// oomKills is how many of the group's processes were killed for want of memory.
func (g *group) oomKills() int64 {
	file := "memory.oom_control"
	if g.of.memory.unified {
		file = "memory.events"
	}
	stat, err := readStat(filepath.Join(g.dir(g.of.memory), file))
	if err != nil {
		return 0 // the group is gone: it can no longer be told
	}
	return stat["oom_kill"]
}

func readStat(file string) (map[string]int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	stat := map[string]int64{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			stat[name] = n
		}
	}
	return stat, nil
}

func readInt(file string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

func write(dir, file string, n int64) error { return writeText(dir, file, strconv.FormatInt(n, 10)) }

func writeText(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0)
}

func writeIfThere(dir, file string, n int64) error {
	err := write(dir, file, n)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
