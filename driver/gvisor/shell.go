package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/urpc"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/netgw"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/timerslack"
)

// shell is an engine that has started, with all that is around it, and waits for
// what it is to run: a new guest, or the memory of an old one. Starting it takes
// longer than either, so it is done ahead where that can be (see shelf): then it has
// an id of its own, until a machine takes it.
type shell struct {
	d       *Driver
	id      sandbox.ID
	kind    kind
	place   place
	group   *group
	ns      *netgw.Namespace
	process process
	in, out *os.File // the host's ends of its standard input and output
}

// kind is what an engine is started with and cannot change.
type kind struct {
	root   string
	guest  string         // name of its image
	limits sandbox.Limits // of processor time and of FUSE mounts none
}

func kindOf(spec driver.Spec, guest string) kind {
	k := kind{root: spec.Root, guest: guest, limits: spec.Limits}
	k.limits.CPUMilli, k.limits.FuseMounts = 0, 0 // which the guest alone is told
	return k
}

// shellFor gives a machine that is to be an engine that waits: one from the shelf, or
// else a new one. The machine's folder is there. The caller undoes what a failure
// leaves.
func (d *Driver) shellFor(ctx context.Context, spec driver.Spec, guest string) (*shell, error) {
	sh, err := d.shelved(ctx, spec, guest)
	if sh == nil && err == nil {
		sh, err = d.soonest(ctx, spec, guest)
	}
	return sh, err
}

// shelved is shellFor if an engine waits already, and nil otherwise.
func (d *Driver) shelved(ctx context.Context, spec driver.Spec, guest string) (*shell, error) {
	return d.enlist(ctx, spec, guest, func(_ context.Context, k kind) (*shell, error) { return d.shelf.take(k), nil })
}

// joined is shellFor if an engine is being started ahead, and nil otherwise.
func (d *Driver) joined(ctx context.Context, spec driver.Spec, guest string) (*shell, error) {
	return d.enlist(ctx, spec, guest, d.shelf.join)
}

// soonest is shellFor when none waits.
func (d *Driver) soonest(ctx context.Context, spec driver.Spec, guest string) (*shell, error) {
	sh, err := d.joined(ctx, spec, guest)
	if sh == nil && err == nil {
		sh, err = d.newShell(ctx, spec, guest, nil)
	}
	return sh, err
}

// enlist gives a machine an engine that get finds on the shelf: nil if it finds none.
func (d *Driver) enlist(ctx context.Context, spec driver.Spec, guest string, get func(context.Context, kind) (*shell, error)) (*shell, error) {
	if len(spec.Mounts) > 0 {
		return nil, nil // they are the engine's from the start
	}
	k := kindOf(spec, guest)
	for {
		sh, err := get(ctx, k)
		if sh == nil || err != nil {
			return nil, err
		}
		err = sh.become(ctx, spec)
		if err == nil {
			return sh, nil
		}
		// It cannot serve, as when it was killed: another may, or a new one.
		if err := errors.Join(ctx.Err(), sh.discard(ctx, spec.ID)); err != nil {
			return nil, err
		}
	}
}

// newShell starts an engine in the folder of spec's machine. With st nobody waits for it
// yet.
func (d *Driver) newShell(ctx context.Context, spec driver.Spec, guest string, st *starting) (_ *shell, err error) {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	sh := &shell{d: d, id: spec.ID, kind: kindOf(spec, guest), place: d.place(spec.ID), group: d.groups.group(string(spec.ID))}
	defer func() {
		if err != nil {
			sh.close()
		}
	}()
	if err := sh.group.make(wall(spec.Limits)); err != nil {
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	if err := st.begin(sh.group); err != nil {
		return nil, fmt.Errorf("set its urgency: %w", err)
	}
	if sh.ns, err = netgw.NewNamespace(); err != nil {
		return nil, fmt.Errorf("make namespace: %w", err)
	}
	if err := writeBundle(sh.place, spec, filepath.Join(d.dir, guest), sh.ns.Path()); err != nil {
		return nil, fmt.Errorf("write bundle: %w", err)
	}
	s := state{Version: stateVersion, Guest: guest}
	if err := sh.place.noteState(s); err != nil {
		return nil, err
	}
	if err := sh.launch(ctx); err != nil {
		return nil, err
	}
	if err := s.find(sh.place); err != nil {
		return nil, err
	}
	sh.process = s.Process
	if err := timerslack.Watcher(s.Process.PID); err != nil {
		return nil, fmt.Errorf("give its watcher rest: %w", err)
	}
	return sh, nil
}

// newHeldShell is newShell for the shelf: a machine of its own, that is held.
func (d *Driver) newHeldShell(ctx context.Context, spec driver.Spec, guest string, st *starting) (*shell, error) {
	if _, err := os.Stat(spec.Root); err != nil {
		return nil, err // the template is gone
	}
	if err := os.Mkdir(d.place(spec.ID).dir, 0o700); err != nil {
		return nil, err
	}
	sh, err := d.newShell(ctx, spec, guest, st)
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		return nil, errors.Join(err, d.destroy(undo, spec.ID))
	}
	return sh, nil
}

// launch starts the engine's process and returns when it waits.
func (sh *shell) launch(ctx context.Context) (err error) {
	var inside, outside *os.File
	if inside, sh.in, err = os.Pipe(); err != nil {
		return err
	}
	defer inside.Close()
	if sh.out, outside, err = os.Pipe(); err != nil {
		return err
	}
	cmd, err := sh.d.command(ctx, sh.place, sh.group, "shell", "--bundle="+sh.place.bundle(), "--pid-file="+sh.place.pidFile(), string(sh.id))
	if err != nil {
		outside.Close()
		return err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inside, outside, outside
	err = cmd.Run()
	outside.Close()
	if err == nil {
		return nil
	}
	sh.out.SetReadDeadline(time.Now()) // the engine may hold the other end
	said, _ := io.ReadAll(io.LimitReader(sh.out, 600))
	return bootError(ctx, fmt.Errorf("start engine: %w: %s", err, bytes.TrimSpace(said)), sh.place)
}

// close lets go of what this process holds of a shell.
func (sh *shell) close() {
	for _, f := range []*os.File{sh.in, sh.out} {
		if f != nil {
			f.Close()
		}
	}
	if sh.ns != nil {
		sh.ns.Close()
	}
}

// discard ends a shell that was to be machine id, and leaves of that no more than
// there was.
func (sh *shell) discard(ctx context.Context, id sandbox.ID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	sh.close()
	p := sh.d.place(id)
	return errors.Join(
		sh.end(ctx),
		sh.d.groups.group(string(id)).destroy(ctx),
		removeAll(p.engine(), p.bundle(), p.pidFile(), p.log(), p.panicLog()))
}

// end ends a shell that has its own id yet, and lets the id go.
func (sh *shell) end(ctx context.Context) error {
	if err := sh.d.destroy(ctx, sh.own()); err != nil {
		return err // still held: nobody takes it for another's
	}
	sh.d.forget(sh.own())
	return nil
}

// own is the id that the shell had on the shelf.
func (sh *shell) own() sandbox.ID { return sandbox.ID(filepath.Base(sh.place.dir)) }

// become makes the shell that of a machine: what it has gets the machine's id, and
// the engine the machine's layer, which is made if it is not there.
func (sh *shell) become(ctx context.Context, spec driver.Spec) error {
	from, to := sh.place, sh.d.place(spec.ID)
	if !sh.process.lives() {
		return errGone
	}
	if err := sh.group.rename(string(spec.ID), wall(spec.Limits)); err != nil {
		return fmt.Errorf("rename cgroup: %w", err)
	}
	if err := from.move(to); err != nil {
		return err
	}
	layer, err := to.openLayer()
	if err != nil {
		return err
	}
	defer layer.Close()
	err = to.callCtx(ctx, spec.ID, "containerManager.Adopt", &adoptArgs{
		FilePayload: urpc.FilePayload{Files: []*os.File{layer}}, ID: string(spec.ID), Hostname: spec.Hostname,
	})
	if err != nil {
		return err
	}
	if err := os.RemoveAll(from.dir); err != nil {
		return err
	}
	sh.d.forget(sh.id)
	sh.id, sh.place, sh.group = spec.ID, to, sh.d.groups.group(string(spec.ID))
	return nil
}

// adoptArgs is the argument of the engine's call of that purpose.
type adoptArgs struct {
	urpc.FilePayload
	ID       string
	Hostname string
}

// move gives another machine the files of an engine, but the layer. What names the
// old machine in them names the other then.
func (p place) move(to place) error {
	if err := removeAll(to.engine(), to.bundle(), to.pidFile(), to.log(), to.panicLog()); err != nil {
		return err
	}
	was, is := filepath.Base(p.dir), filepath.Base(to.dir)
	for _, part := range []func(place) string{place.engine, place.bundle, place.pidFile, place.log, place.panicLog} {
		if err := os.Rename(part(p), part(to)); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	entries, err := os.ReadDir(to.engine())
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(to.engine(), strings.ReplaceAll(e.Name(), was, is))
		if err := os.Rename(filepath.Join(to.engine(), e.Name()), path); err != nil {
			return err
		}
		if filepath.Ext(path) != ".state" {
			continue
		}
		// Ids are of one length and occur nowhere by chance.
		b, err := os.ReadFile(path)
		if err == nil {
			err = writeWhole(path, bytes.ReplaceAll(b, []byte(was), []byte(is)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openLayer opens the layer's file, made if there is none.
func (p place) openLayer() (*os.File, error) {
	if err := os.MkdirAll(p.upper(), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(p.layer(), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
}

// start lets a new guest begin in the engine and returns when that listens.
func (sh *shell) start(ctx context.Context, spec driver.Spec, s state) error {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	b, err := bootDocument(spec, s)
	if err != nil {
		return err
	}
	if _, err := sh.in.Write(b); err != nil { // far less than a pipe holds
		return fmt.Errorf("write boot document: %w", err)
	}
	sh.in.Close()
	id := string(sh.id)
	if err := sh.place.callCtx(ctx, sh.id, "containerManager.StartRoot", &id); err != nil {
		return bootError(ctx, err, sh.place)
	}
	stop := context.AfterFunc(ctx, func() { sh.out.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := readReady(sh.out, sh.id); err != nil {
		return bootError(ctx, err, sh.place)
	}
	return sh.protect()
}

// protect takes the engine's process, and not those of the programs that it runs, out
// of what goes first when memory ends: see runsc.confine.
func (sh *shell) protect() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", sh.process.PID), []byte("0"), 0)
}

// load lets the engine load what it wrote to a folder, and returns when that runs,
// with most of its pages still where they were.
func (sh *shell) load(ctx context.Context, dir string) error {
	return sh.loadAs(ctx, dir, restoreArgs{})
}

// loadStill is load of what is not to run, ever.
func (sh *shell) loadStill(ctx context.Context, dir string) error {
	return sh.loadAs(ctx, dir, restoreArgs{Still: true})
}

// loadNoted is load, with a note of the moment from which on it runs.
func (sh *shell) loadNoted(ctx context.Context, dir string) error {
	return sh.loadAs(ctx, dir, restoreArgs{Begun: true})
}

func (sh *shell) loadAs(ctx context.Context, dir string, args restoreArgs) error {
	files, cold, err := openKept(dir)
	if err != nil {
		return err
	}
	defer func() { files.close() }()
	if args.Begun {
		note, err := sh.place.openBegun()
		if err != nil {
			return err
		}
		files = append(files, note)
	}
	if err := sh.giveBases(ctx); err != nil {
		return bootError(ctx, err, sh.place)
	}
	args.Files, args.HavePagesFile, args.ColdFiles, args.Background = files, true, cold, true
	if err := sh.place.callCtx(ctx, sh.id, "containerManager.Restore", &args); err != nil {
		return bootError(ctx, err, sh.place)
	}
	return sh.protect()
}

// restoreArgs is the argument of the engine's call of that purpose.
type restoreArgs struct {
	urpc.FilePayload
	HavePagesFile bool
	ColdFiles     int // how many of the files are of private memory
	Background    bool
	Still         bool // nothing of it is to run
	Begun         bool // the last of the files is the note of that name
}

// openKept opens what the engine has written to a folder, in the order in which it
// wants it back. The last of it is private memory, in one file or in several: see
// left.link.
func openKept(dir string) (f files, cold int, err error) {
	defer func() {
		if err != nil {
			f.close()
			err = notWhole(err)
		}
	}()
	for _, name := range []string{stateName, pagesMetaName, pagesName, coldIndexName} {
		one, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return f, 0, err
		}
		f = append(f, one)
	}
	for i := 0; ; i++ {
		path := filepath.Join(dir, coldFile(i))
		if _, err := os.Lstat(path); i > 0 && errors.Is(err, unix.ENOENT) {
			return f, len(f) - coldAt, nil
		}
		one, err := openCold(path)
		if err != nil {
			return f, 0, err // whoever was to keep it is gone
		}
		f = append(f, one)
	}
}

// openCold opens a file for reading; a pipe, which is nothing but kept, for writing,
// and for reading too, or it would wait for somebody who does.
func openCold(path string) (*os.File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Mode()&os.ModeNamedPipe != 0 {
		return os.OpenFile(path, os.O_RDWR, 0)
	}
	return os.Open(path)
}
