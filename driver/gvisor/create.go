package gvisor

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor/runsc"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/netgw"
	"github.com/berth-dev/berth/sandbox"
)

// undoTime bounds the undoing of a failed create, which goes on when the
// caller's context has ended.
const undoTime = 30 * time.Second

// bootTime bounds the start of one engine.
const bootTime = 60 * time.Second

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Machine, error) {
	if err := check(spec); err != nil {
		return nil, fault("create", spec.ID, err)
	}
	if err := d.hold(spec.ID); err != nil {
		return nil, fault("create", spec.ID, err)
	}
	m, err := d.create(ctx, spec)
	if err != nil {
		d.forget(spec.ID)
		return nil, fault("create", spec.ID, err)
	}
	d.adopt(m)
	return m, nil
}

func check(spec driver.Spec) error {
	if _, err := sandbox.ParseID(string(spec.ID)); err != nil {
		return err
	}
	if err := spec.Limits.Check(); err != nil {
		return err
	}
	if !strings.HasPrefix(spec.Root, "/") {
		return sandbox.Errorf("check root", sandbox.Invalid, "path %q is not absolute", spec.Root)
	}
	if _, err := os.Stat(spec.Root); err != nil {
		return &sandbox.Error{Op: "check root", Kind: sandbox.NotFound, Err: err}
	}
	return nil
}

// create makes the machine step by step; whatever fails, destroy removes all
// that is there.
func (d *Driver) create(ctx context.Context, spec driver.Spec) (m *machine, err error) {
	guestImage, err := d.guestImage(ctx)
	if err != nil {
		return nil, err
	}
	p := d.place(spec.ID)
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, sandbox.Errorf("make folder", sandbox.Conflict, "the machine is there already")
		}
		return nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		err = errors.Join(err, d.destroy(undo, spec.ID))
	}()
	group := d.groups.group(string(spec.ID))
	if err := group.make(spec.Limits.MemoryBytes); err != nil {
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	ns, err := netgw.NewNamespace()
	if err != nil {
		return nil, fmt.Errorf("make namespace: %w", err)
	}
	defer ns.Close()
	if err := writeBundle(p, spec, guestImage, ns.Path()); err != nil {
		return nil, fmt.Errorf("write bundle: %w", err)
	}
	var s state
	if s, err = d.boot(ctx, p, spec, group); err != nil {
		return nil, err
	}
	if m, err = d.attach(spec.ID, s, ns); err != nil {
		return nil, err
	}
	// Late, since a start within the share would take several times as long.
	if err := group.setCPU(spec.Limits.CPUMilli); err != nil {
		m.release()
		return nil, fmt.Errorf("limit processor time: %w", err)
	}
	return m, nil
}

// boot starts the engine and returns when the guest has said that it listens.
func (d *Driver) boot(ctx context.Context, p place, spec driver.Spec, g *group) (state, error) {
	s := state{Version: stateVersion}
	rand.Read(s.Secret[:])
	in, err := bootPipe(spec, s.Secret)
	if err != nil {
		return s, err
	}
	defer in.Close()
	out, outside, err := os.Pipe()
	if err != nil {
		return s, err
	}
	defer out.Close()
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.exe, append(flags(p), "run", "--detach", "--bundle="+p.bundle(), "--pid-file="+p.pidFile(), string(spec.ID))...)
	cmd.Args[0] = runsc.Name
	cmd.Env = []string{runsc.CgroupsVar + "=" + strings.Join(g.procsFiles(), ":")}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, outside, outside
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a signal to the daemon's group is not theirs
	err = cmd.Start()
	outside.Close()
	if err != nil {
		return s, fmt.Errorf("start engine: %w", err)
	}
	if err := await(ctx, cmd, out, spec.ID); err != nil {
		return s, bootError(ctx, err, p)
	}
	return s, s.find(p)
}

// await waits for the guest's word, then for the end of the command that
// started the engine, which follows at once. The context's end ends both waits.
func await(ctx context.Context, cmd *exec.Cmd, out *os.File, id sandbox.ID) error {
	stop := context.AfterFunc(ctx, func() { out.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err := readReady(out, id)
	if err != nil {
		cmd.Process.Kill()
	}
	return errors.Join(err, cmd.Wait())
}

// bootError adds what the engine wrote to its logs.
func bootError(ctx context.Context, err error, p place) error {
	if ctx.Err() != nil {
		return fmt.Errorf("start guest: %w", ctx.Err())
	}
	for _, file := range []string{p.log(), p.panicLog()} {
		if b, _ := os.ReadFile(file); len(b) > 0 {
			err = fmt.Errorf("%w: %s", err, tail(b, 600))
		}
	}
	return err
}

// find fills in what the engine's process shows of the machine.
func (s *state) find(p place) error {
	b, err := os.ReadFile(p.pidFile())
	if err != nil {
		return fmt.Errorf("read engine's process id: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return fmt.Errorf("read engine's process id: %w", err)
	}
	if s.Process, err = identify(pid); err != nil {
		return fmt.Errorf("identify engine: %w", err)
	}
	s.DiskFD, err = diskFD(pid, p)
	return err
}

// bootPipe returns the end to read of a pipe that holds the boot document.
func bootPipe(spec driver.Spec, secret guestapi.Secret) (*os.File, error) {
	b, err := json.Marshal(guestapi.Boot{
		SandboxID:  string(spec.ID),
		Secret:     secret[:],
		Listen:     fmt.Sprintf("%s:%d", netgw.GuestAddr, guestapi.Port),
		Peer:       netgw.GatewayAddr.String(),
		Hostname:   spec.Hostname,
		Drop:       guestOnly,
		Nameserver: netgw.GatewayAddr.String(),
	})
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if _, err := w.Write(b); err != nil { // far less than a pipe holds
		r.Close()
		return nil, err
	}
	return r, nil
}
