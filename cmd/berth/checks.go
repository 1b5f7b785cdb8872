package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/sandbox"
)

// Below these a machine is of little use.
const (
	leastMemory = 1 << 30 // bytes available
	leastDisk   = 4 << 30 // bytes free for the data directory
	leastKernel = 5       // major version
)

// enginePatience bounds starting a real sandbox.
const enginePatience = 60 * time.Second

func one(check string, v verdict, remedy, format string, args ...any) []finding {
	return []finding{{Check: check, Verdict: v, Remedy: remedy, Found: fmt.Sprintf(format, args...)}}
}

func (x *examination) privilege(context.Context) []finding {
	if uid := os.Geteuid(); uid != 0 {
		return one("privilege", fail, "run the server as root: it makes namespaces, cgroups and network links", "uid %d", uid)
	}
	return one("privilege", good, "", "root")
}

func (x *examination) kernel(context.Context) []finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return one("kernel", fail, "", "%v", err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	major, _, _ := strings.Cut(release, ".")
	if n, err := strconv.Atoi(major); err == nil && n < leastKernel {
		return one("kernel", warn, "use Linux 5.10 or later", "Linux %s", release)
	}
	return one("kernel", good, "", "Linux %s, %s", release, unix.ByteSliceToString(u.Machine[:]))
}

// cgroups finds which version there is and which controllers it gives.
func (x *examination) cgroups(context.Context) []finding {
	wanted := []string{"cpu", "memory"}
	if b, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		given := strings.Fields(string(b))
		return cgroupFinding("v2", given, missing(wanted, given),
			"enable them: echo +cpu +memory > /sys/fs/cgroup/cgroup.subtree_control")
	}
	entries, err := os.ReadDir("/sys/fs/cgroup")
	if err != nil {
		return one("cgroups", fail, "mount them: mount -t cgroup2 none /sys/fs/cgroup", "%v", err)
	}
	var given []string
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", e.Name(), "cgroup.procs")); err == nil {
			given = append(given, e.Name())
		}
	}
	return cgroupFinding("v1", given, missing(wanted, given), "mount the missing controllers, or boot with cgroup v2")
}

func cgroupFinding(version string, given, lacking []string, remedy string) []finding {
	if len(lacking) > 0 {
		return one("cgroups", fail, remedy, "%s without %s: limits would not bite", version, strings.Join(lacking, " and "))
	}
	return one("cgroups", good, "", "%s with %s", version, strings.Join(given, " "))
}

func missing(wanted, given []string) (lacking []string) {
	all := " " + strings.ReplaceAll(strings.Join(given, " "), ",", " ") + " "
	for _, w := range wanted {
		if !strings.Contains(all, " "+w+" ") {
			lacking = append(lacking, w)
		}
	}
	return lacking
}

// tun opens the device: its file may be there without its driver.
func (x *examination) tun(context.Context) []finding {
	const remedy = "load it: modprobe tun; in a container, pass /dev/net/tun through"
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return one("tun", fail, remedy, "%v", err)
	}
	f.Close()
	return one("tun", good, "", "/dev/net/tun opens")
}

func (x *examination) programs(context.Context) []finding {
	var all []finding
	for _, p := range []struct {
		name, remedy string
		lacking      verdict
	}{
		{"mkfs.erofs", "install erofs-utils: without it no template can be built", fail},
		{"mmdebstrap", "installed by the first build of the template base, or: apt-get install mmdebstrap", warn},
	} {
		path, err := exec.LookPath(p.name)
		if err != nil {
			all = append(all, one(p.name, p.lacking, p.remedy, "not found in PATH")...)
			continue
		}
		all = append(all, one(p.name, good, "", "%s", path)...)
	}
	return all
}

func (x *examination) memory(context.Context) []finding {
	total, available, err := hostMemory()
	if err != nil {
		return one("memory", warn, "", "%v", err)
	}
	found := fmt.Sprintf("%s available of %s", size(available), size(total))
	if available < leastMemory {
		return one("memory", warn, "an idle sandbox takes about 20 MiB, a busy one up to its limit", "%s", found)
	}
	return one("memory", good, "", "%s", found)
}

// meminfo finds one line of /proc/meminfo, in bytes; 0 when it is not there.
func meminfo(text, name string) int64 {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == name+":" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0
			}
			return n * 1024
		}
	}
	return 0
}

// disk looks at the nearest directory above the data directory that exists.
func (x *examination) disk(context.Context) []finding {
	dir, err := filepath.Abs(x.data)
	if err != nil {
		return one("disk", fail, "choose another directory with --data", "%v", err)
	}
	var fsys unix.Statfs_t
	at := dir
	for err = unix.Statfs(at, &fsys); errors.Is(err, fs.ErrNotExist) && at != "/"; err = unix.Statfs(at, &fsys) {
		at = filepath.Dir(at)
	}
	if err != nil {
		return one("disk", fail, "choose another directory with --data", "%s: %v", at, err)
	}
	free := int64(fsys.Bavail) * fsys.Bsize
	found := fmt.Sprintf("%s free for %s; %s", size(free), dir, forkDisks(dir, at))
	reserve := roomOf(dir, &config.File{}).MustStay(int64(fsys.Blocks) * fsys.Bsize)
	found = fmt.Sprintf("%s; %s stay in reserve, unless room is configured otherwise", found, size(reserve))
	if free < reserve {
		return one("disk", warn, "below the reserve nothing begins that needs room: free some, or set room.free and room.percent of the configuration", "%s", found)
	}
	if free < leastDisk {
		return one("disk", warn, "a template takes about 1 GiB, a sandbox what it writes: free some, or choose another disk with --data", "%s", found)
	}
	return one("disk", good, "", "%s", found)
}

// forkDisks says what a fork does with the files that a sandbox has written, by
// where they lie or will lie.
func forkDisks(dir, at string) string {
	machines := filepath.Join(dir, machinesDir)
	if _, err := os.Stat(machines); err == nil {
		at = machines
	}
	if gvisor.Shares(at) {
		return "forks share what was written"
	}
	return "forks copy what was written, unless store.size is configured or it lies on XFS or Btrfs"
}

func (x *examination) port(ctx context.Context) []finding {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", x.listen)
	if errors.Is(err, unix.EADDRINUSE) {
		return one("port", warn, "if that is no Berth server, choose another address with --listen", "%s is in use", x.listen)
	}
	if err != nil {
		return one("port", fail, "choose another address with --listen", "%v", err)
	}
	l.Close()
	return one("port", good, "", "%s is free", x.listen)
}

// gvisor starts a real sandbox, as a server would.
func (x *examination) gvisor(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	found, err := probeGVisor(ctx)
	if err != nil {
		remedy := sandbox.HintOf(err)
		if remedy == "" {
			remedy = "see the message; the checks above may say more"
		}
		return one("gvisor", fail, remedy, "%v", err)
	}
	all := one("gvisor", good, "", "a sandbox started and answered (%s)", found.Version)
	for _, w := range found.Warnings {
		all = append(all, one("gvisor", warn, "", "%s", w)...)
	}
	return all
}

// kvm concerns the class vm, which is to come: nothing fails without it.
func (x *examination) kvm(ctx context.Context) []finding {
	const remedy = "not needed: the class gvisor does without; KVM will serve the class vm"
	err := probeKVM(ctx)
	if err == nil {
		return one("kvm", good, "", "a guest booted and answered")
	}
	cause := err.Error()
	if _, pvm := os.Stat("/sys/module/kvm_pvm"); pvm == nil {
		cause += " (this KVM is kvm_pvm, which cannot run an unmodified guest kernel)"
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		cause += "; no qemu-system-x86_64 either"
	}
	return one("kvm", warn, remedy, "%s", cause)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimPrefix(line, "berth: ")
}
