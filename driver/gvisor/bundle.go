package gvisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// guestDir is where the guest's image is mounted inside, read-only.
const (
	guestDir  = "/.berth"
	guestName = "berth-guest"
)

// Capabilities of capability.h that the guest alone has: it must go on when the
// sandbox is at its limit of processes, and name the machine anew after a fork.
const (
	capSysAdmin    = 21
	capSysResource = 24
)

var guestOnly = []uint{capSysAdmin, capSysResource}

// capabilities are those that root inside has: what a server needs, nothing
// that changes mounts, limits or the network's set-up.
var capabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID",
	"CAP_KILL", "CAP_LEASE", "CAP_MKNOD", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID",
	"CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT", "CAP_SYS_NICE", "CAP_SYS_PTRACE",
}

// place is where the files of one machine lie.
type place struct{ dir string }

func (p place) bundle() string    { return filepath.Join(p.dir, "bundle") }
func (p place) emptyRoot() string { return filepath.Join(p.dir, "bundle", "root") }
func (p place) upper() string     { return filepath.Join(p.dir, "upper") }
func (p place) layer() string     { return filepath.Join(p.upper(), "layer") } // the name is the engine's edit
func (p place) saved() string     { return filepath.Join(p.dir, "saved") }
func (p place) engine() string    { return filepath.Join(p.dir, "engine") }
func (p place) pidFile() string   { return filepath.Join(p.dir, "pid") }
func (p place) panicLog() string  { return filepath.Join(p.dir, "panic.log") }
func (p place) log() string       { return filepath.Join(p.dir, "engine.log") }

// writeBundle lays out the folders of a machine and the engine's description
// of it (OCI runtime specification 1.2).
func writeBundle(p place, spec driver.Spec, guestImage, netns string) error {
	for _, d := range []string{p.emptyRoot(), p.upper(), p.engine()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	b, err := json.Marshal(ociSpec(p, spec, guestImage, netns))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.bundle(), "config.json"), b, 0o600)
}

// rootAnnotation has the path of the root's image.
const rootAnnotation = "dev.gvisor.spec.rootfs.source"

// optionsAnnotation has the size of the writable layer, and how many files it may
// hold: "size=BYTES/FILES".
const optionsAnnotation = "dev.gvisor.spec.rootfs.options"

func ociSpec(p place, spec driver.Spec, guestImage, netns string) *specs.Spec {
	caps := append([]string{"CAP_SYS_ADMIN", "CAP_SYS_RESOURCE"}, capabilities...)
	l := spec.Limits
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: spec.Hostname,
		Root:     &specs.Root{Path: p.emptyRoot()},
		Process: &specs.Process{
			Args: []string{guestDir + "/" + guestName},
			Cwd:  "/",
			Env:  []string{"PATH=" + sandbox.DefaultPath},
			Capabilities: &specs.LinuxCapabilities{
				Bounding: caps, Effective: caps, Permitted: caps,
			},
			OOMScoreAdj: new(int), // see runsc.confine
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Hard: uint64(l.OpenFiles), Soft: uint64(l.OpenFiles)},
				{Type: "RLIMIT_NPROC", Hard: uint64(l.Processes), Soft: uint64(l.Processes)},
			},
		},
		Mounts: append([]specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}},
			// Filling a tmpfs must meet its own end before the sandbox's. It is a share
			// of the memory that the sandbox has then (an edit).
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "mode=1777", "size=25%"}},
			{Destination: guestDir, Type: "erofs", Source: guestImage, Options: []string{"ro"}},
		}, bindMounts(spec.Mounts)...),
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace, Path: netns},
			},
			Resources: &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &l.MemoryBytes}},
		},
		Annotations: map[string]string{
			"dev.gvisor.spec.rootfs.type": "erofs",
			rootAnnotation:                spec.Root,
			// The folder itself is in the flags: the annotations of a machine and
			// of its copies must be equal.
			"dev.gvisor.spec.rootfs.overlay": "dir=/layer",
			optionsAnnotation:                layerOptions(l),
		},
	}
}

// layerOptions is what optionsAnnotation says.
func layerOptions(l sandbox.Limits) string {
	if l.Files == 0 {
		return fmt.Sprintf("size=%d", l.DiskBytes)
	}
	return fmt.Sprintf("size=%d/%d", l.DiskBytes, l.Files)
}

// parseLayerOptions reads that back into limits.
func parseLayerOptions(s string, l *sandbox.Limits) error {
	size, files, bound := strings.Cut(strings.TrimPrefix(s, "size="), "/")
	var err error
	if l.DiskBytes, err = strconv.ParseInt(size, 10, 64); err != nil {
		return err
	}
	l.Files = 0
	if bound {
		l.Files, err = strconv.ParseInt(files, 10, 64)
	}
	return err
}

// flags are the engine's own, the same for every command on a machine.
func flags(p place) []string {
	return []string{
		"--root=" + p.engine(),
		"--log=" + p.log(),
		"--panic-log=" + p.panicLog(),
		"--platform=systrap",
		"--network=sandbox",
		"--overlay2=root:dir=" + p.upper(),
		"--ignore-cgroups",       // the driver's own: cgroup.go
		"--host-settings=ignore", // doctor looks at them, not every create
		"--net-raw",              // ping
		"--allow-suid",           // sudo
	}
}
