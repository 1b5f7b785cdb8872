package guest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

const (
	defaultWindow = 50 * time.Millisecond
	minWindow     = time.Millisecond
	maxWindow     = 10 * time.Second
	halfMove      = 20 * time.Millisecond // for the second half of a rename to come
	maxHalfMoves  = 64
	maxQuietReads = 256 // of a queue that is emptied unseen; a busier one is told
)

// watchSpec is what a watcher was asked for. Two equal ones are the same watch.
type watchSpec struct {
	path      string // as asked
	recursive bool
	include   string // patterns with a NUL after each
	exclude   string
	window    time.Duration
}

// watcher looks at one path and what lies beneath, from its first reader until
// some time after its last. All but log belongs to the goroutine of run.
type watcher struct {
	g         *Guest
	id        string
	spec      watchSpec
	recursive bool
	include   globs
	exclude   globs

	ctx    context.Context
	cancel context.CancelFunc
	in     *inotify
	log    *watchLog

	real    string          // the path without links
	root    fs.FileInfo     // what is at real; nil while nothing is
	top     *folder         // nil while no folder is there
	folders map[int]*folder // by watch
	above   map[int]step    // by watch: the way from the root of all to real
	stale   []*folder       // with fresh names
	batch   batch
	moves   map[uint32]*moving // by cookie
	quiet   bool               // nothing is told: it will be listed, or has been
	lost    bool               // the kernel lost events while it was quiet

	readers int         // of the registry, under its lock
	linger  *time.Timer // likewise
	idle    time.Time   // likewise: when the last reader left
}

// step is the name, in a folder above the path, that leads there.
type step struct {
	name string
	last bool // it is the path's own
}

// moving is the first half of a rename.
type moving struct {
	rel, entry string
	folder     *folder // nil if it is not watched
	place      int     // in the batch, of the removal that is told without a second half
	due        time.Time
}

// at is the real path of rel.
func (w *watcher) at(rel string) string { return path.Join(w.real, rel) }

// start finds what is at the path and puts everything under watch.
func (w *watcher) start() error {
	target, info, err := w.g.resolve(w.spec.path)
	if err != nil {
		return fromOS(err)
	}
	if info == nil {
		return withHint(fromOS(fs.ErrNotExist), notFound, "make it first, or watch the folder above it")
	}
	if w.real, err = w.g.files.real(target); err != nil {
		return fromOS(err)
	}
	if err := w.lookAnew(); err != nil {
		return fromOS(err)
	}
	if w.root == nil {
		return fromOS(fs.ErrNotExist)
	}
	return nil
}

// lookAnew puts everything under watch without telling of it.
func (w *watcher) lookAnew() error {
	w.quiet = true
	defer func() { w.quiet = false }()
	for range 3 {
		w.lose()
		if err := w.look(); err != nil {
			return err
		}
		if err := w.emptyQueue(); err != nil || !w.lost {
			return err
		}
		w.lost = false
	}
	return refuse(exhausted, "watch a smaller part", "changes come faster than they can be followed")
}

// lose takes what was at the path as gone.
func (w *watcher) lose() {
	if w.root != nil {
		w.tell(evRemove, ".", "", typeOf(w.root.Mode()))
	}
	if w.top != nil {
		w.forget(w.top)
	}
	w.root, w.top = nil, nil
}

// emptyQueue takes in what happened so far without telling it.
func (w *watcher) emptyQueue() error {
	buf := make([]byte, 64<<10)
	for range maxQuietReads {
		n, err := w.in.tryRead(buf)
		if err != nil {
			return err
		}
		if n == 0 {
			w.settled()
			return nil
		}
		if err := w.handleAll(parseNotices(buf[:n])); err != nil {
			return err
		}
	}
	return nil
}

// look puts the folders above under watch and finds out whether what is at the
// path is still the same. It is right about that: the watches come first.
func (w *watcher) look() error {
	if err := w.watchAbove(); err != nil {
		return err
	}
	info, err := w.g.files.lstat(w.real)
	if err != nil && !isGone(err) {
		return err
	}
	if err != nil {
		info = nil
	}
	if w.root != nil && info != nil && os.SameFile(w.root, info) && (w.top != nil) == info.IsDir() {
		w.root = info
		return nil
	}
	if w.root == nil || info == nil || w.root.IsDir() || info.IsDir() {
		w.lose() // else a file took the place of a file
	}
	w.root = info
	if info == nil {
		return nil
	}
	w.tell(evCreate, ".", "", typeOf(info.Mode()))
	if !info.IsDir() {
		return nil
	}
	w.top = &folder{name: "."}
	return w.enter(w.top, !w.quiet, 0)
}

// watchAbove puts every folder on the way to the path under watch, as far as
// the way leads, and lets go of those that are on it no more.
func (w *watcher) watchAbove() error {
	fresh := map[int]step{}
	if w.real != "/" {
		dir := "/"
		for name := range strings.SplitSeq(w.real[1:], "/") {
			mask, last := uint32(aboveMask), path.Join(dir, name) == w.real
			if last {
				mask |= unix.IN_MODIFY | unix.IN_ATTRIB // of a file
			}
			wd, err := w.in.add(w.g.files, dir, mask)
			if isGone(err) {
				break
			}
			if errors.Is(err, unix.ENOSPC) {
				return refuse(exhausted, "", "the kernel watches as many folders as it may")
			}
			if err != nil {
				return err
			}
			fresh[wd] = step{name, last}
			dir = path.Join(dir, name)
		}
	}
	for wd := range w.above {
		if _, still := fresh[wd]; !still {
			w.in.drop(wd)
		}
	}
	w.above = fresh
	return nil
}

// run watches until its context ends or something is wrong.
func (w *watcher) run() {
	defer w.cancel()
	stop := context.AfterFunc(w.ctx, func() { w.in.close() })
	defer stop()
	defer w.in.close()
	err := w.loop()
	if w.ctx.Err() != nil {
		err = refuse(canceled, "", "the watch has ended")
	}
	w.publish(true)
	w.log.fail(fromOS(err))
	w.g.watches.remove(w)
}

func (w *watcher) loop() error {
	buf := make([]byte, 64<<10)
	for {
		n, err := w.in.tryRead(buf)
		if err == nil && n == 0 {
			w.settled()
			w.publish(false)
			n, err = w.in.waitRead(buf, w.due())
		}
		if err != nil {
			return err
		}
		if err := w.handleAll(parseNotices(buf[:n])); err != nil {
			return err
		}
		w.publish(false)
	}
}

// due is when something must be told; the zero time means not before more
// happens.
func (w *watcher) due() time.Time {
	var due time.Time
	if len(w.batch.events) > 0 {
		due = w.batch.begun.Add(w.spec.window)
	}
	for _, m := range w.moves {
		if due.IsZero() || m.due.After(due) {
			due = m.due // a removal that may become a rename is worth the wait
		}
	}
	return due
}

// publish tells the batch when its time has come, or always.
func (w *watcher) publish(always bool) {
	now := time.Now()
	if !always && len(w.batch.events) < maxBatch && now.Before(w.due()) {
		return
	}
	for cookie, m := range w.moves {
		if always || !now.Before(m.due) || len(w.moves) > maxHalfMoves {
			w.moved(cookie, m)
		}
	}
	if len(w.moves) > 0 && len(w.batch.events) < 2*maxBatch {
		return
	}
	for cookie, m := range w.moves {
		w.moved(cookie, m)
	}
	w.log.add(w.batch.flush())
}

// moved settles the first half of a rename that got no second: it was moved out.
func (w *watcher) moved(cookie uint32, m *moving) {
	delete(w.moves, cookie)
	if m.folder != nil {
		w.forget(m.folder)
	}
}

// tell adds an event to the batch, if anybody wants it. It returns its place.
func (w *watcher) tell(kind, rel, from, entry string) int {
	if w.quiet {
		return -1
	}
	to, old := w.wanted(rel), from != "" && w.wanted(from)
	switch {
	case kind == evRename && to && !old:
		kind, from = evCreate, ""
	case kind == evRename && !to && old:
		kind, rel, from, to = evRemove, from, "", true
	}
	if !to {
		return -1
	}
	e := &guestv1.WatchEvent{Type: kind, Path: []byte(path.Join(w.spec.path, rel)), Entry: entry, TimeUnixNano: time.Now().UnixNano()}
	if from != "" {
		e.From = []byte(path.Join(w.spec.path, from))
	}
	return w.batch.add(e)
}

// wanted reports whether events of a path are to be told.
func (w *watcher) wanted(rel string) bool {
	if rel == "." {
		return true
	}
	return !isTemp(path.Base(rel)) && !w.exclude.covers(rel) && (len(w.include) == 0 || w.include.match(rel))
}

// isTemp reports whether a name is one under which a file is on its way to its
// place: only that place is worth telling.
func isTemp(name string) bool {
	return len(name) == len(".berth-")+26 && strings.HasPrefix(name, ".berth-")
}

// overflow begins anew after the kernel lost events, and says so last: whoever
// lists then misses nothing.
func (w *watcher) overflow() error {
	w.publish(true)
	err := w.lookAnew()
	w.log.add([]*guestv1.WatchEvent{overflowEvent("the kernel lost events", "")})
	return err
}

// entryOf is the type of an entry as far as the kernel tells it.
func (w *watcher) entryOf(n notice, rel string) string {
	if n.mask&unix.IN_ISDIR != 0 {
		return "dir"
	}
	if n.mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0 {
		return ""
	}
	if info, err := w.g.files.lstat(w.at(rel)); err == nil {
		return typeOf(info.Mode())
	}
	return ""
}
