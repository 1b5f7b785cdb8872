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
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor/runsc/called"
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
	return d.createFor(ctx, spec, 0)
}

// createFor is Create of a machine that ends by itself after life, if that is not 0:
// then it does so too when this process is killed.
func (d *Driver) createFor(ctx context.Context, spec driver.Spec, life time.Duration) (driver.Machine, error) {
	if err := check(spec); err != nil {
		return nil, fault("create", spec.ID, err)
	}
	if err := d.hold(spec.ID); err != nil {
		return nil, fault("create", spec.ID, err)
	}
	defer d.shelf.yield()()
	m, err := d.create(ctx, spec, life)
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
	return checkMounts(spec.Mounts)
}

// create makes the machine step by step; whatever fails, destroy removes all
// that is there.
func (d *Driver) create(ctx context.Context, spec driver.Spec, life time.Duration) (m *machine, err error) {
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
	s := state{Version: stateVersion, Guest: filepath.Base(guestImage), life: life}
	sh, err := d.waiting(ctx, spec, s)
	if err != nil {
		return nil, err
	}
	if sh != nil {
		defer sh.close()
		return d.begin(ctx, sh, spec, s)
	}
	return d.launch(spec, s, func(g *group, s *state) error {
		return d.boot(ctx, p, spec, g, s)
	})
}

// waiting is an engine that waits for such a machine, or nil.
func (d *Driver) waiting(ctx context.Context, spec driver.Spec, s state) (*shell, error) {
	if s.life > 0 {
		return nil, nil // of which there is one alone
	}
	if sh, err := d.shelved(ctx, spec, s.Guest); sh != nil || err != nil {
		return sh, err
	}
	return d.joined(ctx, spec, s.Guest)
}

// begin makes an engine that waits a machine with a new guest.
func (d *Driver) begin(ctx context.Context, sh *shell, spec driver.Spec, s state) (*machine, error) {
	rand.Read(s.Secret[:])
	s.Process = sh.process
	if err := sh.place.noteState(s); err != nil {
		return nil, err
	}
	if err := sh.start(ctx, spec, s); err != nil {
		return nil, err
	}
	return d.settle(sh, spec, s)
}

// settle attaches to an engine whose guest runs.
func (d *Driver) settle(sh *shell, spec driver.Spec, s state) (*machine, error) {
	m, err := d.attach(spec.ID, s, sh.ns)
	if err != nil {
		return nil, err
	}
	// Late, since a start within the share would take several times as long.
	if err := sh.group.setCPU(spec.Limits.CPUMilli); err != nil {
		m.release()
		return nil, fmt.Errorf("limit processor time: %w", err)
	}
	return m, nil
}

// launch makes what a machine needs around its engine, lets start start that,
// and attaches to it. The caller undoes what a failure leaves.
func (d *Driver) launch(spec driver.Spec, s state, start func(*group, *state) error) (*machine, error) {
	p := d.place(spec.ID)
	group := d.groups.group(string(spec.ID))
	if err := group.make(wall(spec.Limits)); err != nil {
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	ns, err := netgw.NewNamespace()
	if err != nil {
		return nil, fmt.Errorf("make namespace: %w", err)
	}
	defer ns.Close()
	if err := writeBundle(p, spec, filepath.Join(d.dir, s.Guest), ns.Path()); err != nil {
		return nil, fmt.Errorf("write bundle: %w", err)
	}
	if err := start(group, &s); err != nil {
		return nil, err
	}
	if err := p.noteState(s); err != nil {
		return nil, err
	}
	m, err := d.attach(spec.ID, s, ns)
	if err != nil {
		return nil, err
	}
	// Late, since a start within the share would take several times as long.
	if err := group.setCPU(spec.Limits.CPUMilli); err != nil {
		m.release()
		return nil, fmt.Errorf("limit processor time: %w", err)
	}
	return m, nil
}

// boot starts the engine with a new guest and returns when that has said that
// it listens. more are arguments of the engine's run command.
func (d *Driver) boot(ctx context.Context, p place, spec driver.Spec, g *group, s *state, more ...string) error {
	rand.Read(s.Secret[:])
	s.Process = process{}
	if err := p.noteState(*s); err != nil {
		return err
	}
	in, err := bootPipe(spec, *s)
	if err != nil {
		return err
	}
	defer in.Close()
	out, outside, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	args := append([]string{"run", "--detach", "--bundle=" + p.bundle(), "--pid-file=" + p.pidFile()}, more...)
	cmd, err := d.command(ctx, p, g, append(args, string(spec.ID))...)
	if err != nil {
		outside.Close()
		return err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, outside, outside
	err = cmd.Start()
	outside.Close()
	if err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	if err := await(ctx, cmd, out, spec.ID); err != nil {
		return bootError(ctx, err, p)
	}
	return s.find(p)
}

// command is one of the engine's commands on a machine. With a group, it and
// all that it starts are in that.
func (d *Driver) command(ctx context.Context, p place, g *group, args ...string) (*exec.Cmd, error) {
	program, err := d.engineProgram()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, append(flags(p), args...)...)
	cmd.Args[0] = called.Name
	cmd.Env = []string{}
	if g != nil {
		cmd.Env = []string{called.CgroupsVar + "=" + strings.Join(g.procsFiles(), ":")}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a signal to the daemon's group is not theirs
	return cmd, nil
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
	if _, err := os.Stat(p.layer()); err != nil {
		return fmt.Errorf("the engine was built without its edits (make build does them): %w", err)
	}
	return nil
}

// bootDocument is what a new guest reads first.
func bootDocument(spec driver.Spec, s state) ([]byte, error) {
	return json.Marshal(guestapi.Boot{
		SandboxID:   string(spec.ID),
		Secret:      s.Secret[:],
		Listen:      fmt.Sprintf("%s:%d", netgw.GuestAddr, guestapi.Port),
		Peer:        netgw.GatewayAddr.String(),
		Hostname:    spec.Hostname,
		Drop:        guestOnly,
		Nameserver:  netgw.GatewayAddr.String(),
		LifeSeconds: int64(s.life / time.Second),
		FuseMounts:  spec.Limits.FuseMounts,
	})
}

// bootPipe returns the end to read of a pipe that holds the boot document.
func bootPipe(spec driver.Spec, s state) (*os.File, error) {
	b, err := bootDocument(spec, s)
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
