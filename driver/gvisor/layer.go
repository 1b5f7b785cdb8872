package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/urpc"
)

// What a machine has written lies in its layer's file and in bases: files that
// nobody writes any more, which machines that were made of one another share by hard
// links. A layer is frozen when it is copied and large: its file becomes a base, and
// the engine goes on in a new one. So where the disk cannot share files
// copy-on-write, a fork copies no more than what is below freezeFrom.
//
// The engine counts the pages of all these files alike, so that the same file is a
// whole layer again if the parts of its bases that hold data are copied into it.

const (
	// freezeFrom is from how many bytes on a layer is frozen rather than copied.
	freezeFrom = 32 << 20

	// maxBases is how many bases a layer may have; with more it is copied.
	maxBases = 16

	basePrefix = "base."
	nextName   = "layer.next" // what the layer goes on in, until it has its name
)

// basePath is the i-th base in the folder of a layer.
func (p place) basePath(i int) string {
	return filepath.Join(p.upper(), fmt.Sprintf("%s%02d", basePrefix, i))
}

func (p place) nextLayer() string { return filepath.Join(p.upper(), nextName) }

// bases lists a machine's bases in the order in which they were frozen.
func (p place) bases() ([]string, error) {
	found, err := filepath.Glob(filepath.Join(p.upper(), basePrefix+"[0-9][0-9]"))
	slices.Sort(found)
	return found, err
}

// newBase is the name of the next base. It is "" if there are too many already.
func (p place) newBase() (string, error) {
	have, err := p.bases()
	if err != nil || len(have) >= maxBases {
		return "", err
	}
	return p.basePath(len(have)), nil
}

// stored is how many bytes of the disk files occupy. Such as are not there count
// nothing.
func stored(paths ...string) (sum int64, err error) {
	for _, path := range paths {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			return sum, &fs.PathError{Op: "stat", Path: path, Err: err}
		}
		sum += st.Blocks * 512
	}
	return sum, nil
}

// written is how many bytes of the disk a machine's layer and its bases occupy.
func (p place) written() (int64, error) {
	bases, err := p.bases()
	if err != nil {
		return 0, err
	}
	return stored(append(bases, p.layer())...)
}

// linkBases gives a machine bases that are other files of theirs.
func (p place) linkBases(bases []string) error {
	for i, from := range bases {
		err := os.Link(from, p.basePath(i))
		if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EMLINK) || errors.Is(err, unix.EPERM) {
			err = cloneFile(p.basePath(i), from)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// gather makes the image's layer one file.
func (i *image) gather() error {
	err := gather(i.layer, i.bases)
	i.bases = nil
	return err
}

// gather makes a layer's file hold what lies in bases too.
func gather(layer string, bases []string) error {
	if len(bases) == 0 {
		return nil
	}
	dst, err := os.OpenFile(layer, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	for _, base := range bases {
		if err = addSparse(dst, base); err != nil {
			break
		}
	}
	return errors.Join(err, dst.Close())
}

// addSparse copies the parts of a file that hold data into dst, which keeps the rest.
func addSparse(dst *os.File, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	st, err := src.Stat()
	if err != nil {
		return err
	}
	have, err := dst.Stat()
	if err != nil {
		return err
	}
	if have.Size() < st.Size() {
		if err := dst.Truncate(st.Size()); err != nil {
			return err
		}
	}
	return copyData(dst, src, st.Size())
}

// gatherBases makes the layer of a machine that was put aside one file. Done again
// after it was cut short, it comes to the same.
func (p place) gatherBases() error {
	bases, err := p.bases()
	if err != nil || len(bases) == 0 {
		return err
	}
	if err := gather(p.layer(), bases); err != nil {
		return err
	}
	if err := syncFile(p.layer()); err != nil {
		return err
	}
	return removeAll(bases...)
}

// freezing is a layer that is about to become a base.
type freezing struct {
	m    *machine
	base string
	next *os.File
}

// prepareFreeze makes what freezing a machine's layer needs; nil if that is to be
// copied: it is small, or the disk shares what it holds.
func (m *machine) prepareFreeze() (_ *freezing, err error) {
	if m.driver.clones {
		return nil, nil
	}
	size, err := stored(m.place.layer())
	if err != nil || size < freezeFrom {
		return nil, err
	}
	// An engine of an earlier build cannot.
	if ino, err := m.layerInode(); err != nil || !isFile(m.place.layer(), ino) {
		return nil, nil
	}
	z := &freezing{m: m}
	if z.base, err = m.place.newBase(); err != nil || z.base == "" {
		return nil, err
	}
	if z.next, err = os.OpenFile(m.place.nextLayer(), os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600); err != nil {
		return nil, err
	}
	if err := os.Link(m.place.layer(), z.base); err != nil {
		return nil, errors.Join(err, z.drop())
	}
	return z, nil
}

// do lets the engine of a machine that stands still go on in the new file.
func (z *freezing) do() error {
	if z == nil {
		return nil
	}
	var out struct{ Unthawed string }
	err := z.m.place.callFor(z.m.id, "containerManager.FreezeLayer", &layerArgs{urpc.FilePayload{Files: []*os.File{z.next}}}, &out)
	if err == nil && out.Unthawed != "" {
		err = fmt.Errorf("files that are mapped: %.300s", out.Unthawed)
	}
	if err != nil {
		err = fmt.Errorf("freeze layer: %w", err)
		if strings.Contains(err.Error(), unix.ENOSPC.Error()) { // what the engine says is text
			err = fmt.Errorf("%w (%w)", err, unix.ENOSPC)
		}
	}
	return errors.Join(err, z.m.ifAlive(z.m.settleLayer()))
}

// drop removes what prepareFreeze has made and was not used.
func (z *freezing) drop() error {
	if z == nil {
		return nil
	}
	return errors.Join(z.next.Close(), z.m.ifAlive(z.m.settleLayer()))
}

// layerArgs is the argument of the engine's calls of that purpose.
type layerArgs struct{ urpc.FilePayload }

// settleLayer finishes or takes back what was being frozen when an earlier process of
// this program ended: the engine says in which file it writes.
func (m *machine) settleLayer() error {
	p := m.place
	var next, layer unix.Stat_t
	if err := unix.Stat(p.nextLayer(), &next); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return p.dropOpenBase()
		}
		return &fs.PathError{Op: "stat", Path: p.nextLayer(), Err: err}
	}
	if err := unix.Stat(p.layer(), &layer); err != nil {
		return &fs.PathError{Op: "stat", Path: p.layer(), Err: err}
	}
	ino, err := m.layerInode()
	if err != nil {
		return err
	}
	switch ino {
	case next.Ino:
		return os.Rename(p.nextLayer(), p.layer())
	case layer.Ino:
		return errors.Join(removeAll(p.nextLayer()), p.dropOpenBase())
	}
	return fmt.Errorf("look at its layer: file %d is not known", ino)
}

// layerInode is the number of the file that the engine writes the layer to.
func (m *machine) layerInode() (uint64, error) {
	var out struct{ Inode uint64 }
	if err := m.place.callFor(m.id, "containerManager.LayerFile", &struct{}{}, &out); err != nil {
		return 0, fmt.Errorf("look at its layer: %w", err)
	}
	return out.Inode, nil
}

// isFile reports whether a path names the file with a number.
func isFile(path string, ino uint64) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Ino == ino
}

// dropOpenBase takes a base's name from the file that is still written.
func (p place) dropOpenBase() error {
	bases, err := p.bases()
	if err != nil || len(bases) == 0 {
		return err
	}
	last := bases[len(bases)-1]
	same, err := sameFile(last, p.layer())
	if err != nil || !same {
		return err
	}
	return os.Remove(last)
}

func sameFile(a, b string) (bool, error) {
	one, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other), err
}

// freezeSaved makes the layer of a machine that was put aside with its memory a base,
// which its children share with it, if that is worth while.
func (p place) freezeSaved() error {
	size, err := stored(p.layer())
	if err != nil || size < freezeFrom {
		return err
	}
	base, err := p.newBase()
	if err != nil || base == "" {
		return err
	}
	if err := os.Rename(p.layer(), base); err != nil {
		return err
	}
	f, err := p.openLayer() // missing, it is made when the machine wakes
	if err != nil {
		return err
	}
	// Lost, the name of the base would be that of the file that is written again.
	return errors.Join(f.Close(), syncFile(base), syncDir(p.upper()))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// giveBases tells the engine that waits where the frozen part of its layer lies.
func (sh *shell) giveBases(ctx context.Context) error {
	bases, err := sh.place.bases()
	if err != nil || len(bases) == 0 {
		return err
	}
	var all files
	defer func() { all.close() }()
	for _, base := range bases {
		f, err := os.Open(base)
		if err != nil {
			return err
		}
		all = append(all, f)
	}
	return sh.place.callCtx(ctx, sh.id, "containerManager.Bases", &layerArgs{urpc.FilePayload{Files: all}})
}
