package guest

import (
	"errors"
	"io/fs"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bounds on watched folders.
const (
	maxWatchedFolders = 16_384 // of one watcher
	maxAllFolders     = 65_536 // of all watchers
)

// What is asked of the kernel.
const (
	folderMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK
	aboveMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
)

// folder is a watched folder. It knows its name and its parent, not its path: a
// rename moves it with all beneath it.
type folder struct {
	wd     int
	name   string
	parent *folder // nil for the top one, and for one that is between two places
	inside map[string]*folder

	// fresh are the names that a scan has told of. The kernel may still have the
	// news of them queued, which then says nothing new.
	fresh map[string]struct{}
}

// rel is the path beneath the top folder, "." for that itself.
func (f *folder) rel() string {
	if f.parent == nil {
		return f.name
	}
	return path.Join(f.parent.rel(), f.name)
}

// put gives a folder a place.
func (f *folder) put(name string, child *folder) {
	if f.inside == nil {
		f.inside = map[string]*folder{}
	}
	child.parent, child.name = f, name
	f.inside[name] = child
}

// detach takes a folder from its place and remembers where that was.
func (f *folder) detach() {
	if f.parent == nil {
		return
	}
	at := f.rel()
	delete(f.parent.inside, f.name)
	f.parent, f.name = nil, at
}

// forget ends the watches of a folder and of all beneath it.
func (w *watcher) forget(f *folder) {
	f.detach()
	for _, child := range f.inside {
		child.parent = nil // spares it the removal from a map that goes anyway
		w.forget(child)
	}
	f.inside = nil
	if w.folders[f.wd] == f {
		delete(w.folders, f.wd)
		w.g.watches.folders.Add(-1)
		w.in.drop(f.wd)
	}
}

// enter watches a folder, with those in it if the watch is recursive. With tell,
// what it holds is told as made.
func (w *watcher) enter(f *folder, tell bool, depth int) error {
	if depth > maxNested {
		return nil // no name that the kernel takes is that long
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	at := w.at(f.rel())
	if len(w.folders) >= maxWatchedFolders || w.g.watches.folders.Load() >= maxAllFolders {
		return refuse(exhausted, "watch a smaller part, or exclude folders such as node_modules", "there are more folders than can be watched, %d at most", maxWatchedFolders)
	}
	wd, err := w.in.add(w.g.files, at, folderMask)
	switch {
	case errors.Is(err, unix.ENOSPC):
		return refuse(exhausted, "watch a smaller part, or exclude folders such as node_modules", "the kernel watches as many folders as it may")
	case isGone(err) || errors.Is(err, fs.ErrPermission):
		f.detach()
		return nil // its removal is told by the folder above
	case err != nil:
		return err
	}
	if known := w.folders[wd]; known != nil {
		if known != f {
			w.move(known, f)
		}
		return nil
	}
	f.wd = wd
	w.folders[wd] = f
	w.g.watches.folders.Add(1)
	return w.scan(f, at, tell, depth)
}

// move puts a folder that is watched already into the place meant for another.
func (w *watcher) move(known, meant *folder) {
	parent, name := meant.parent, meant.name
	if parent == nil {
		return
	}
	meant.detach()
	known.detach()
	parent.put(name, known)
}

// scan looks at what is in a folder that has just come under watch.
func (w *watcher) scan(f *folder, at string, tell bool, depth int) error {
	if !tell && !w.recursive {
		return nil
	}
	rel := f.rel()
	err := w.g.eachName(w.ctx, at, func(name string) error {
		child := path.Join(rel, name)
		if isTemp(name) || w.exclude.match(child) {
			return nil
		}
		info, err := w.g.files.lstat(path.Join(at, name))
		if err != nil {
			return ignoreGone(err)
		}
		if tell {
			w.markFresh(f, name)
			w.tell(evCreate, child, "", typeOf(info.Mode()))
		}
		if !info.IsDir() || !w.recursive || f.inside[name] != nil {
			return nil
		}
		sub := &folder{}
		f.put(name, sub)
		return w.enter(sub, tell, depth+1)
	})
	return ignoreGone(err)
}

func (w *watcher) markFresh(f *folder, name string) {
	if f.fresh == nil {
		f.fresh = map[string]struct{}{}
		w.stale = append(w.stale, f)
	}
	f.fresh[name] = struct{}{}
}

// settled forgets what is fresh: the queue is empty, so what was told by a scan
// cannot come again.
func (w *watcher) settled() {
	for _, f := range w.stale {
		f.fresh = nil
	}
	w.stale = nil
}

func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

func ignoreGone(err error) error {
	if isGone(err) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
