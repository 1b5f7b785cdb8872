package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// Shelf is a Store with a folder in which what it keeps lies ready for use, as
// long as there is room: what was loaded, or saved, a short while ago need not be
// fetched again.
//
//	work/    folders that are being filled; emptied at Open
//	ready/   whole ones, each named by its manifest's digest; one beside which lies
//	         DIGEST.filling lacks a file that is on its way (TakeEarly)
//	boot     which boot of the host those are of: they are not synced, so another one
//	         finds them incomplete and does not use them
type Shelf struct {
	*Store
	dir    string
	budget int64 // bytes that ready folders may use while nobody uses them
	near   near  // what lies in folders that this process has seen become ready

	ctx   context.Context // ends with Close
	end   context.CancelFunc
	fills sync.WaitGroup // what TakeEarly has left under way

	mu      sync.Mutex
	folders map[string]*folder // by name
	turn    int64              // grows with each use
}

// folder is one ready folder, or one on its way.
type folder struct {
	users int
	used  int64         // the turn of its last use
	size  int64         // bytes on disk
	ready chan struct{} // closed when err is set
	err   error

	late *late // a file that came later; nil: none did
}

// OpenShelf opens the shelf in dir, which it makes (mode 0700) when absent. What
// a process before was filling is removed, and so is what lay ready in another
// boot of the host, or always if boot is "". Without a budget, 0, nothing lies ready
// that nobody uses.
func OpenShelf(store *Store, dir, boot string, budget int64) (*Shelf, error) {
	s := &Shelf{Store: store, dir: dir, budget: budget, folders: map[string]*folder{}}
	s.ctx, s.end = context.WithCancel(context.Background())
	err := s.distrust(boot)
	if err == nil {
		err = s.open()
	}
	return s, wrap("open snapshots", err)
}

// distrust removes what another boot of the host has left.
func (s *Shelf) distrust(boot string) error {
	path := filepath.Join(s.dir, "boot")
	last, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if boot != "" && string(last) == boot {
		return nil
	}
	if err := errors.Join(os.RemoveAll(s.readyPath("")), os.MkdirAll(s.dir, 0o700)); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(boot), 0o600)
}

func (s *Shelf) open() error {
	err := errors.Join(os.RemoveAll(s.work()), os.MkdirAll(s.work(), 0o700), os.MkdirAll(s.readyPath(""), 0o700))
	if err != nil {
		return err
	}
	if err := s.removeUnfilled(); err != nil {
		return err
	}
	found, err := os.ReadDir(s.readyPath(""))
	if err != nil {
		return err
	}
	for _, entry := range found {
		path := s.readyPath(entry.Name())
		if _, err := blob.ParseDigest("sha256:" + entry.Name()); err != nil {
			if err := os.RemoveAll(path); err != nil { // one that was being loaded
				return err
			}
			continue
		}
		size, err := diskUse(path)
		if err != nil {
			return err
		}
		f := &folder{size: size, ready: make(chan struct{})}
		close(f.ready)
		s.folders[entry.Name()] = f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shrink(s.budget)
}

func (s *Shelf) work() string                 { return filepath.Join(s.dir, "work") }
func (s *Shelf) readyPath(name string) string { return filepath.Join(s.dir, "ready", name) }

// Fresh makes an empty folder to be filled for Keep, or removed with Discard.
func (s *Shelf) Fresh() (string, error) {
	dir, err := os.MkdirTemp(s.work(), "")
	return dir, wrap("make folder", err)
}

// Discard removes a folder that Fresh has made.
func (s *Shelf) Discard(dir string) error { return wrap("remove folder", os.RemoveAll(dir)) }

// Keep saves a folder that Fresh has made, which is the shelf's from then on,
// whatever comes of it: it lies ready, or is gone.
func (s *Shelf) Keep(ctx context.Context, dir string, about json.RawMessage, bases ...blob.Digest) (*Saved, error) {
	saved, err := s.Save(ctx, dir, about, bases...)
	if err != nil {
		return nil, errors.Join(err, s.Discard(dir))
	}
	if err := s.lay(dir, saved.Digest); err != nil {
		saved.Release()
		return nil, wrap("save", errors.Join(err, s.Discard(dir)))
	}
	s.near.learn(s.readyPath(saved.Digest.Hex()), saved.manifest)
	return saved, nil
}

// lay puts a filled folder among those that lie ready.
func (s *Shelf) lay(dir string, d blob.Digest) error {
	size, err := diskUse(dir)
	if err != nil {
		return err
	}
	name := d.Hex()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folders[name] != nil {
		return os.RemoveAll(dir)
	}
	if err := os.Rename(dir, s.readyPath(name)); err != nil {
		return err
	}
	s.turn++
	f := &folder{used: s.turn, size: size, ready: make(chan struct{})}
	close(f.ready)
	s.folders[name] = f
	return s.shrink(s.budget)
}

// Take gives the folder of what is kept under a digest, loaded if it does not lie
// ready, for reading. It stays until release is called, which may be done twice.
func (s *Shelf) Take(ctx context.Context, d blob.Digest) (dir string, release func(), err error) {
	dir, _, release, err = s.take(ctx, d, "")
	return dir, release, err
}

// take is Take, or TakeEarly if a file may be late.
func (s *Shelf) take(ctx context.Context, d blob.Digest, late string) (dir string, w *Filling, release func(), err error) {
	if _, err := blob.ParseDigest(string(d)); err != nil {
		return "", nil, nil, err
	}
	name := d.Hex()
	for {
		f, mine := s.join(name)
		if mine {
			s.fill(ctx, d, f, late)
		}
		select {
		case <-f.ready:
		case <-ctx.Done():
			s.leave(name, f)
			return "", nil, nil, wrap("take snapshot", context.Cause(ctx))
		}
		err := f.err
		if err == nil && late == "" {
			err = f.late.wait(ctx)
		}
		if err == nil {
			return s.readyPath(name), f.late.filling(), sync.OnceFunc(func() { s.leave(name, f) }), nil
		}
		s.leave(name, f)
		// Another's load ended with his context, or his disk was full a moment ago.
		if mine || sandbox.KindOf(err) != sandbox.Unavailable || ctx.Err() != nil || s.ctx.Err() != nil {
			return "", nil, nil, err
		}
	}
}

// join counts a user of a folder; mine says that he is to fill it.
func (s *Shelf) join(name string) (f *folder, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f = s.folders[name]
	if f == nil {
		f, mine = &folder{ready: make(chan struct{})}, true
		s.folders[name] = f
	}
	s.turn++
	f.users, f.used = f.users+1, s.turn
	return f, mine
}

// fill loads a folder, after which those who wait for it go on.
func (s *Shelf) fill(ctx context.Context, d blob.Digest, f *folder, late string) {
	defer close(f.ready)
	path := s.readyPath(d.Hex())
	f.late, f.err = s.loadNear(ctx, d, late)
	if sandbox.KindOf(f.err) == sandbox.Exhausted && s.empty() == nil {
		f.late, f.err = s.loadNear(ctx, d, late)
	}
	if f.err == nil {
		f.size, f.err = diskUse(path)
	}
	if f.err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.folders[d.Hex()] == f {
			delete(s.folders, d.Hex())
		}
	} else if f.late != nil {
		s.goOn(d, f)
	}
}

// loadNear is Load, but fetches only what lies in no folder that is ready, and leaves
// a file out that may be late, if it is worth that.
func (s *Shelf) loadNear(ctx context.Context, d blob.Digest, name string) (*late, error) {
	op, path := "load "+string(d), s.readyPath(d.Hex())
	m, err := s.manifest(ctx, d)
	if err != nil {
		return nil, wrap(op, err)
	}
	if f := m.worthLate(name, s.Store.late); f != nil {
		l, err := s.loadEarly(ctx, m, f, path)
		return l, wrap(op, err)
	}
	if err := s.loadAll(ctx, m, path, &loading{store: s.Store, near: &s.near}); err != nil {
		return nil, wrap(op, err)
	}
	s.near.learn(path, m)
	return nil, nil
}

// empty removes all that nobody uses: its room is wanted.
func (s *Shelf) empty() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shrink(0)
}

func (s *Shelf) leave(name string, f *folder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.users--
	// What cannot be removed now is tried again with the next.
	_ = s.shrink(s.budget)
}

// Forget removes the folder of what is kept no more, once nobody uses it.
func (s *Shelf) Forget(d blob.Digest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.folders[d.Hex()]
	if f == nil {
		return nil
	}
	f.used = math.MinInt64 // the next to go
	if f.users > 0 {
		return nil
	}
	return s.remove(d.Hex())
}

// shrink removes folders that nobody uses, the longest unused first, until the
// unused ones take no more than budget. The caller holds s.mu.
func (s *Shelf) shrink(budget int64) error {
	var idle []string
	total := int64(0)
	for name, f := range s.folders {
		if f.users == 0 {
			idle = append(idle, name)
			total += f.size
		}
	}
	slices.SortFunc(idle, func(a, b string) int { return cmp.Compare(s.folders[a].used, s.folders[b].used) })
	for _, name := range idle {
		if f := s.folders[name]; total <= budget && f.used != math.MinInt64 {
			break
		}
		size := s.folders[name].size
		if err := s.remove(name); err != nil {
			return err
		}
		total -= size
	}
	return nil
}

// remove takes one folder away: at once for whoever looks, then from the disk.
func (s *Shelf) remove(name string) error {
	gone, err := os.MkdirTemp(s.work(), "")
	if err == nil {
		err = os.Rename(s.readyPath(name), filepath.Join(gone, name))
	}
	if err != nil {
		return err
	}
	delete(s.folders, name)
	s.near.forget(s.readyPath(name))
	return os.RemoveAll(gone)
}

// diskUse is how many bytes the files beneath dir use on disk.
func diskUse(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			n += st.Blocks * 512
		}
		return nil
	})
	return n, err
}
