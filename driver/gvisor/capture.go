package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/checkpoint"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/pkg/urpc"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// Names of the engine's files.
const (
	stateName     = checkpointfiles.StateFileName
	pagesMetaName = checkpointfiles.PagesMetadataFileName
	pagesName     = checkpointfiles.PagesFileName
	coldIndexName = "cold.idx" // the last two are of the private memory
	coldName      = "cold.img"
)

// holdTime is how long commands outlive their streams in a copy that nobody has
// given an identity yet, and in the machine itself if this process ends.
const holdTime = time.Minute

var _ driver.Snapshotter = (*Driver)(nil)

// Capture implements driver.Snapshotter.
func (d *Driver) Capture(ctx context.Context, dm driver.Machine, keep driver.Keep, dir string) error {
	const op = "capture"
	m, err := d.own(dm)
	if err != nil {
		return &sandbox.Error{Op: op, Err: err}
	}
	if keep != driver.KeepMemory && keep != driver.KeepDisk {
		return &sandbox.Error{Op: op, Kind: sandbox.Invalid, ID: m.id, Err: fmt.Errorf("%q cannot be kept", keep)}
	}
	return fault(op, m.id, m.capture(ctx, keep, dir))
}

// own is a machine of this driver, which lives.
func (d *Driver) own(dm driver.Machine) (*machine, error) {
	m, ok := dm.(*machine)
	if !ok || m.driver != d {
		return nil, sandbox.Errorf("", sandbox.Invalid, "the machine is of another driver")
	}
	select {
	case <-m.over:
		return nil, sandbox.Errorf("", sandbox.Unavailable, "the machine has ended")
	default:
		return m, nil
	}
}

func (m *machine) capture(ctx context.Context, keep driver.Keep, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if keep == driver.KeepMemory {
		if err := m.whole(ctx); err != nil {
			return err
		}
	}
	img, err := m.driver.describe(m.place, m.state, keep)
	if err != nil {
		return err
	}
	in := imageIn(dir)
	img.engine, img.layer = in.engine, in.layer
	if err := m.room(dir, keep); err != nil {
		return err
	}
	if _, err := m.shoot(ctx, &img, newStages()); err != nil {
		return err
	}
	if err := img.gather(); err != nil {
		return err
	}
	if err := img.measure(); err != nil {
		return err
	}
	if keep == driver.KeepMemory {
		if err := cloneFile(in.guest, img.guest); err != nil {
			return err
		}
	}
	return img.write(dir)
}

// CaptureSaved implements driver.Snapshotter.
func (d *Driver) CaptureSaved(ctx context.Context, id sandbox.ID, saved []byte, dir string) error {
	const op = "capture"
	release, img, err := d.savedImage(id, saved)
	if err != nil {
		return fault(op, id, err)
	}
	defer release()
	if err := ctx.Err(); err != nil {
		return fault(op, id, err)
	}
	in := imageIn(dir)
	err = errors.Join(cloneFolder(in.engine, img.engine), cloneFile(in.layer, img.layer))
	if err == nil {
		err = gather(in.layer, img.bases)
	}
	if err == nil && img.about.Keep == driver.KeepMemory {
		err = cloneFile(in.guest, img.guest)
	}
	if err == nil {
		err = img.write(dir)
	}
	return fault(op, id, err)
}

// savedImage is the image that a pause has left in a machine's folder. Until
// release nobody takes the machine up.
func (d *Driver) savedImage(id sandbox.ID, b []byte) (release func(), img image, err error) {
	if _, err := sandbox.ParseID(string(id)); err != nil {
		return nil, img, err
	}
	s, err := readSaved(b)
	if err != nil {
		return nil, img, err
	}
	if err := d.hold(id); err != nil {
		return nil, img, err
	}
	defer func() {
		if err != nil {
			d.forget(id)
		}
	}()
	p := d.place(id)
	if _, err := os.Stat(p.saved()); err != nil {
		return nil, img, &sandbox.Error{Op: "find what was saved", Kind: sandbox.NotFound, Err: err}
	}
	if err := s.check(p); err != nil {
		return nil, img, err
	}
	if img, err = d.describe(p, s.State, s.Keep); err != nil {
		return nil, img, err
	}
	img.engine, img.layer = p.saved(), p.layer()
	if img.bases, err = p.bases(); err != nil {
		return nil, img, err
	}
	img.about.Taken = time.Now().UTC()
	if err := img.measure(); err != nil {
		return nil, img, err
	}
	return func() { d.forget(id) }, img, nil
}

// readSaved reads the bytes of Pause.
func readSaved(b []byte) (saved, error) {
	var s saved
	if err := json.Unmarshal(b, &s); err != nil {
		return s, &sandbox.Error{Op: "read what was saved", Kind: sandbox.Unsupported, Err: err}
	}
	if s.Version != stateVersion || (s.Keep != driver.KeepMemory && s.Keep != driver.KeepDisk) {
		return s, &sandbox.Error{Op: "read what was saved", Kind: sandbox.Unsupported, Err: fmt.Errorf("version %d, keep %q are unknown", s.Version, s.Keep),
			Hint: "start the version of berth that paused it"}
	}
	return s, nil
}

// shoot lets the machine stand still for as long as it takes to write what its
// image keeps to the image's places. It returns how long that was.
func (m *machine) shoot(ctx context.Context, img *image, st *stages) (pause time.Duration, err error) {
	a, err := m.aim(ctx, img, st)
	if err != nil {
		return 0, err
	}
	pause, err = a.shoot(ctx, img, func() {})
	return pause, errors.Join(err, a.rest())
}

// writeBoth writes the layer of a machine that stands still, and what else is kept of
// it, to an image's places.
func (m *machine) writeBoth(img *image, freeze *freezing, f files, st *stages) (err error) {
	end := st.step("freeze layer")
	err = freeze.do()
	end()
	if err != nil {
		return err
	}
	if img.bases, err = m.place.bases(); err != nil {
		return err
	}
	var both errgroup.Group
	both.Go(func() error {
		defer st.step("clone layer")()
		return cloneFile(img.layer, m.place.layer())
	})
	both.Go(func() error {
		defer st.step("save")()
		return m.write(f, img.about.Keep)
	})
	return both.Wait()
}

// finish lets the engine write the private memory, as it was while the machine
// stood still. What the machine changes meanwhile is copied first.
func (m *machine) finish(f files) error {
	if err := makeRoom(f[len(f)-1], 0); err != nil {
		return err
	}
	return m.place.call(m.id, "containerManager.FinishCold", &struct{}{})
}

// ifAlive passes over what cannot be done to a machine that has ended meanwhile:
// whoever waits for that is told.
func (m *machine) ifAlive(err error) error {
	select {
	case <-m.over:
		return nil
	default:
		return err
	}
}

// files are those that the engine writes.
type files []*os.File

func (f files) close() error {
	var errs []error
	for _, one := range f {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// openFiles makes the files of an image in the order in which the engine wants
// them. What is written while the machine stands still gets its room at once:
// pages that the engine would make itself were charged to its sandbox, and take
// time.
func (m *machine) openFiles(img *image) (f files, err error) {
	if err := os.MkdirAll(img.engine, 0o700); err != nil {
		return nil, err
	}
	names := []string{stateName, pagesMetaName, pagesName, coldIndexName}
	if img.left == nil {
		names = append(names, coldName)
	}
	if img.about.Keep == driver.KeepDisk {
		names = []string{checkpointfiles.FSCheckpointManifestFileName, checkpointfiles.FSCheckpointMultiTarFileName, pagesMetaName, pagesName}
	}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	for _, name := range names {
		one, err := os.OpenFile(filepath.Join(img.engine, name), os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return f, err
		}
		f = append(f, one)
	}
	if img.about.Keep == driver.KeepDisk {
		return f, nil
	}
	for _, one := range f[:coldAt] {
		if err := makeRoom(one, noteRoom); err != nil {
			return f, err
		}
	}
	if img.left != nil {
		return append(f, img.left.lease), img.left.link(img.engine)
	}
	return f, nil
}

// coldAt is the index of the first file of private memory.
const coldAt = 3

// makeRoom gives a file the room of so many bytes, or of its size if that is
// more.
func makeRoom(f *os.File, room int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	room = max(room, st.Size())
	if room == 0 {
		return nil
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, room); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("make room: %w", err)
	}
	return nil
}

// noteRoom is made for each of the engine's files that are not pages.
const noteRoom = 2 << 20

// write lets the engine write what is kept of a machine that stands still.
func (m *machine) write(f files, keep driver.Keep) error {
	if keep == driver.KeepDisk {
		return m.place.call(m.id, "containerManager.FSSave", &saveTree{FilePayload: urpc.FilePayload{Files: f}, Paths: []checkpoint.ResourceID{{Path: "/"}}})
	}
	err := m.place.call(m.id, "containerManager.Checkpoint", &control.SaveOpts{
		Metadata: statefile.CompressionLevelNone.ToMetadata(), HavePagesFile: true, Resume: true,
		FilePayload: urpc.FilePayload{Files: f},
	})
	if err != nil {
		return err
	}
	for _, one := range f[:coldAt] { // gives back the room that was not needed
		st, err := one.Stat()
		if err == nil {
			err = one.Truncate(st.Size())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// saveTree is the argument of the engine's call of that purpose.
type saveTree struct {
	urpc.FilePayload
	Paths []checkpoint.ResourceID `json:"paths"`
}
