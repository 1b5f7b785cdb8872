package guest

import (
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// handleAll takes in what the kernel says.
func (w *watcher) handleAll(all []notice) error {
	for _, n := range all {
		if err := w.handle(n); err != nil {
			return err
		}
	}
	return nil
}

func (w *watcher) handle(n notice) error {
	if n.mask&unix.IN_Q_OVERFLOW != 0 {
		if w.quiet {
			w.lost = true
			return nil
		}
		return w.overflow()
	}
	if next, ok := w.above[n.wd]; ok {
		return w.handleAbove(n, next)
	}
	f := w.folders[n.wd]
	if f == nil {
		return nil // of a watch that has been dropped
	}
	switch {
	case n.mask&(unix.IN_IGNORED|unix.IN_UNMOUNT) != 0:
		if f == w.top {
			w.lose()
			return w.look()
		}
		w.forget(f)
		return nil
	case n.name == "":
		return w.handleSelf(n, f)
	case isTemp(n.name) && n.mask&unix.IN_MOVED_FROM == 0:
		return nil
	}
	return w.handleEntry(n, f, path.Join(f.rel(), n.name))
}

// handleAbove takes in what happens on the way to the path, and to the path
// itself if it is a file.
func (w *watcher) handleAbove(n notice, next step) error {
	self := n.name == "" && n.mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED|unix.IN_UNMOUNT) != 0
	if n.name != next.name && !self {
		return nil
	}
	if n.mask&(unix.IN_MODIFY|unix.IN_ATTRIB) != 0 {
		if w.root != nil && w.top == nil {
			kind := evModify
			if n.mask&unix.IN_ATTRIB != 0 {
				kind = evAttrib
			}
			w.tell(kind, ".", "", typeOf(w.root.Mode()))
		}
		return nil
	}
	if next.last && n.mask&unix.IN_DELETE != 0 {
		w.lose() // what is there now may be another thing in the same place of the disk
	}
	return w.look()
}

// handleSelf takes in what happens to a folder itself; of all but the top one the
// folder above tells.
func (w *watcher) handleSelf(n notice, f *folder) error {
	if f != w.top {
		return nil
	}
	if n.mask&unix.IN_ATTRIB != 0 {
		w.tell(evAttrib, ".", "", "dir")
		return nil
	}
	if n.mask&unix.IN_DELETE_SELF != 0 {
		w.lose()
	}
	return w.look()
}

// handleEntry takes in what happens to an entry of a folder.
func (w *watcher) handleEntry(n notice, f *folder, rel string) error {
	w.settleMove(rel)
	switch {
	case n.mask&unix.IN_MODIFY != 0:
		w.tell(evModify, rel, "", "file")
	case n.mask&unix.IN_ATTRIB != 0:
		w.tell(evAttrib, rel, "", w.entryOf(n, rel))
	case n.mask&unix.IN_CREATE != 0:
		return w.appeared(n, f, rel)
	case n.mask&unix.IN_DELETE != 0:
		delete(f.fresh, n.name)
		if child := f.inside[n.name]; child != nil {
			w.forget(child)
		}
		w.tell(evRemove, rel, "", w.entryOf(n, rel))
	case n.mask&unix.IN_MOVED_FROM != 0:
		w.movedFrom(n, f, rel)
	case n.mask&unix.IN_MOVED_TO != 0:
		return w.movedTo(n, f, rel)
	}
	return nil
}

// appeared takes in an entry that was made or moved in.
func (w *watcher) appeared(n notice, f *folder, rel string) error {
	if _, told := f.fresh[n.name]; told {
		delete(f.fresh, n.name)
		return nil
	}
	w.tell(evCreate, rel, "", w.entryOf(n, rel))
	return w.enterNew(n, f, rel)
}

// enterNew puts a folder under watch that has come, and tells what it holds.
func (w *watcher) enterNew(n notice, f *folder, rel string) error {
	if n.mask&unix.IN_ISDIR == 0 || !w.recursive || w.exclude.match(rel) {
		return nil
	}
	if old := f.inside[n.name]; old != nil {
		w.forget(old) // another one had the name
	}
	sub := &folder{}
	f.put(n.name, sub)
	return w.enter(sub, true, 0)
}

// settleMove makes the first half of a rename final when something else happens
// under the old name: a rename told later would seem to be of that.
func (w *watcher) settleMove(rel string) {
	for cookie, m := range w.moves {
		if m.rel == rel {
			w.moved(cookie, m)
		}
	}
}

func (w *watcher) movedFrom(n notice, f *folder, rel string) {
	delete(f.fresh, n.name)
	m := &moving{rel: rel, entry: w.entryOf(n, rel), folder: f.inside[n.name], due: time.Now().Add(halfMove)}
	if m.folder != nil {
		m.folder.detach()
	}
	m.place = w.tell(evRemove, rel, "", m.entry)
	if w.moves == nil {
		w.moves = map[uint32]*moving{}
	}
	w.moves[n.cookie] = m
}

func (w *watcher) movedTo(n notice, f *folder, rel string) error {
	m := w.moves[n.cookie]
	if m == nil {
		return w.appeared(n, f, rel)
	}
	delete(w.moves, n.cookie)
	delete(f.fresh, n.name)
	w.batch.take(m.place)
	if isTemp(path.Base(m.rel)) {
		w.tell(evCreate, rel, "", w.entryOf(n, rel))
	} else {
		w.tell(evRename, rel, m.rel, w.entryOf(n, rel))
	}
	if m.folder == nil {
		return w.enterNew(n, f, rel) // it was excluded before
	}
	if old := f.inside[n.name]; old != nil {
		w.forget(old)
	}
	if w.exclude.match(rel) {
		w.forget(m.folder)
		return nil
	}
	f.put(n.name, m.folder)
	return nil
}
