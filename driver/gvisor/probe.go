package gvisor

import (
	"context"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// probeLife is after how long a probe's sandbox ends by itself, should this process be
// killed: some hundred times as long as a start takes.
const probeLife = 10 * time.Second

// Probe implements driver.Driver: it starts a sandbox with nothing in it but
// the guest.
func (d *Driver) Probe(ctx context.Context) (driver.Capabilities, error) {
	c := driver.Capabilities{
		Survives: true, Isolates: true,
		Details: map[string]string{"platform": "systrap", "cgroup": d.groups.version()},
	}
	if os.Geteuid() != 0 {
		return c, &sandbox.Error{Op: "probe gvisor", Kind: sandbox.Unsupported, Err: unix.EPERM, Hint: "run as root: sandboxes need namespaces, cgroups and a TAP"}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return c, &sandbox.Error{Op: "probe gvisor", Kind: sandbox.Unsupported, Err: err, Hint: "load the tun module: modprobe tun"}
	}
	root, err := d.probeImage(ctx)
	if err != nil {
		return c, fault("probe gvisor", "", err)
	}
	limits := sandbox.Limits{MemoryBytes: 128 << 20, DiskBytes: 16 << 20}.WithDefaults(sandbox.DefaultLimits())
	m, err := d.createFor(ctx, driver.Spec{ID: sandbox.NewID(), Root: root, Hostname: "probe", Limits: limits}, probeLife)
	if err != nil {
		return c, fault("probe gvisor", "", err)
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := m.Stop(undo); err != nil {
		return c, fault("probe gvisor", "", err)
	}
	c.Version = engineVersion
	c.Warnings = append(c.Warnings, d.warnings()...)
	return c, nil
}

// engineVersion is of the gVisor module that the program is built with.
const engineVersion = "gvisor 20260905.0-160fafc42237"

// warnings lists what makes sandboxes on this machine weaker than they could be.
func (d *Driver) warnings() []string {
	var w []string
	if b, err := os.ReadFile("/proc/swaps"); err == nil && strings.Count(string(b), "\n") > 1 && !d.groups.memory.unified {
		if _, err := os.Stat(d.groups.memory.mount + "/memory.memsw.limit_in_bytes"); err != nil {
			w = append(w, "swap is on and not accounted: a sandbox may swap beyond its memory; boot with swapaccount=1")
		}
	}
	return w
}
