package snapshot

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/blob"
)

// fillingSuffix ends the name of the mark of a folder that lacks something.
const fillingSuffix = ".filling"

// late is a file of a ready folder that is still on its way.
type late struct {
	fill     *Filling
	manifest *Manifest
	out      *os.File
	drop     func()        // lets the file's chunks be swept
	over     chan struct{} // closed when err is set
	err      error         // nil: all is there
}

// TakeEarly is Take, but what the file of that name holds may still be on its way:
// then w tells what of it is there. Until that is all, the file is as long as it will
// be, with gaps. A file that is small, or lies here already, is there.
func (s *Shelf) TakeEarly(ctx context.Context, d blob.Digest, name string) (dir string, w *Filling, release func(), err error) {
	return s.take(ctx, d, name)
}

// worthLate is the file of that name, if it has so many bytes; else nil.
func (m *Manifest) worthLate(name string, least int64) *File {
	f, err := m.file(name)
	if err != nil {
		return nil
	}
	for _, c := range f.Chunks {
		if least -= c.Length; least <= 0 {
			return f
		}
	}
	return nil
}

// loadEarly makes a folder in which one file has gaps.
func (s *Shelf) loadEarly(ctx context.Context, m *Manifest, f *File, path string) (_ *late, err error) {
	l := &late{manifest: m, over: make(chan struct{})}
	if l.drop, err = s.pinned(ctx, f); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.drop()
			err = errors.Join(err, s.removeAt(path))
		}
	}()
	if err := os.WriteFile(path+fillingSuffix, nil, 0o600); err != nil {
		return nil, err
	}
	if err := s.loadAll(ctx, m, path, &loading{store: s.Store, near: &s.near, late: f.Name}); err != nil {
		return nil, err
	}
	if l.out, err = os.OpenFile(filepath.Join(path, f.Name), os.O_WRONLY, 0); err != nil {
		return nil, err
	}
	l.fill = s.newFilling(f, l.out, &s.near, []span{{0, f.Size}})
	return l, nil
}

// goOn fills the file that a folder lacks, for as long as the shelf is open. The
// folder is in use meanwhile; it is removed if it cannot be had whole.
func (s *Shelf) goOn(d blob.Digest, f *folder) {
	name, path := d.Hex(), s.readyPath(d.Hex())
	s.mu.Lock()
	f.users++
	s.mu.Unlock()
	s.fills.Go(func() {
		defer s.leave(name, f)
		l := f.late
		defer close(l.over)
		defer l.drop()
		err := errors.Join(l.fill.run(s.ctx), l.out.Close())
		if err == nil {
			err = os.Remove(path + fillingSuffix)
		}
		if err == nil {
			s.near.learn(path, l.manifest)
			return
		}
		l.err = wrap("load "+string(d), err)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.folders[name] == f {
			delete(s.folders, name)
			_ = s.removeAt(path) // or else the next start does
		}
	})
}

// wait returns when the file is there.
func (l *late) wait(ctx context.Context) error {
	if l == nil {
		return nil
	}
	select {
	case <-l.over:
		return l.err
	case <-ctx.Done():
		return wrap("take snapshot", context.Cause(ctx))
	}
}

// filling is nil once all is there.
func (l *late) filling() *Filling {
	if l == nil {
		return nil
	}
	select {
	case <-l.over:
		if l.err == nil {
			return nil
		}
	default:
	}
	return l.fill
}

// removeAt removes a folder that lacks something, and its mark after it.
func (s *Shelf) removeAt(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	err := os.Remove(path + fillingSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeUnfilled removes what a process before was filling.
func (s *Shelf) removeUnfilled() error {
	marks, err := filepath.Glob(s.readyPath("*" + fillingSuffix))
	if err != nil {
		return err
	}
	for _, mark := range marks {
		if err := s.removeAt(strings.TrimSuffix(mark, fillingSuffix)); err != nil {
			return err
		}
	}
	return nil
}

// Close ends what TakeEarly has left under way, and returns when it has ended. What
// lies ready can still be used; what was not whole yet is removed.
func (s *Shelf) Close() error {
	s.end()
	s.fills.Wait()
	return nil
}
