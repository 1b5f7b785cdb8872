package guest

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

const (
	maxWatchers = 64              // in the sandbox, those without a reader included
	lingerTime  = 5 * time.Minute // that a watcher goes on without a reader
)

// watches is the registry of watchers.
type watches struct {
	g       *Guest
	ctx     context.Context
	cancel  context.CancelFunc
	folders atomic.Int64 // watched by all
	wg      sync.WaitGroup

	mu     sync.Mutex
	all    map[string]*watcher
	making int // watchers on their way into all
}

func newWatches(g *Guest) *watches {
	s := &watches{g: g, all: map[string]*watcher{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// close ends every watcher.
func (s *watches) close() {
	s.mu.Lock()
	s.cancel() // begin looks at it under the lock
	s.mu.Unlock()
	s.wg.Wait()
}

// reader is a place in a watcher's log.
type reader struct {
	w  *watcher
	at int64

	// lost says that the cursor could not be gone on from.
	lost bool
}

// open finds the watcher of a cursor, or makes one. release is to be called when
// the reader is done.
func (s *watches) open(ctx context.Context, r *guestv1.WatchRequest) (*reader, error) {
	w, err := s.g.newWatcher(r)
	if err != nil {
		return nil, err
	}
	if r.Cursor != "" {
		id, number, ok := parseWatchCursor(r.Cursor)
		if !ok {
			return nil, refuse(invalid, "give the cursor of an event, or leave it out to begin now", "%.60q is not a cursor", r.Cursor)
		}
		found, err := s.resume(id, w.spec)
		if err != nil {
			return nil, err
		}
		if found != nil {
			return &reader{w: found, at: number}, nil
		}
	}
	if err := s.begin(ctx, w); err != nil {
		return nil, err
	}
	return &reader{w: w, at: w.log.last(), lost: r.Cursor != ""}, nil
}

// resume gives the live watcher of an id another reader; nil if there is none.
func (s *watches) resume(id string, spec watchSpec) (*watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.all[id]
	if w == nil {
		return nil, nil
	}
	if w.spec != spec {
		return nil, refuse(invalid, "repeat the watch with the path and the patterns that it had", "the cursor is of another watch")
	}
	s.join(w)
	return w, nil
}

func (s *watches) join(w *watcher) {
	w.readers++
	if w.linger != nil {
		w.linger.Stop()
		w.linger = nil
	}
}

// begin starts a watcher with one reader.
func (s *watches) begin(ctx context.Context, w *watcher) error {
	if err := s.reserve(); err != nil {
		return err
	}
	err := w.open(s.ctx, ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.making--
	if err != nil {
		return err
	}
	if s.ctx.Err() != nil {
		w.abandon()
		return refuse(canceled, "", "the guest is ending")
	}
	s.all[w.id] = w
	s.join(w)
	s.wg.Go(w.run)
	return nil
}

// reserve makes room for one more watcher, if need be in place of the one that
// has been without a reader for the longest time.
func (s *watches) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all)+s.making >= maxWatchers {
		var oldest *watcher
		for _, w := range s.all {
			if w.readers == 0 && (oldest == nil || w.idle.Before(oldest.idle)) {
				oldest = w
			}
		}
		if oldest == nil {
			return refuse(exhausted, "end a watch, or watch a folder above with patterns", "there are %d watchers, as many as there may be", maxWatchers)
		}
		delete(s.all, oldest.id)
		oldest.cancel()
	}
	s.making++
	return nil
}

// release takes a reader from a watcher. Without readers it goes on for a while.
func (s *watches) release(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.readers--; w.readers == 0 && s.all[w.id] == w {
		w.idle = time.Now()
		w.linger = time.AfterFunc(lingerTime, func() { s.expire(w) })
	}
}

// expire ends a watcher unless a reader has come back meanwhile.
func (s *watches) expire(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.readers == 0 {
		w.cancel()
	}
}

// remove forgets a watcher that has ended.
func (s *watches) remove(w *watcher) {
	s.folders.Add(-int64(len(w.folders)))
	w.folders = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[w.id] == w {
		delete(s.all, w.id)
	}
	if w.linger != nil {
		w.linger.Stop()
	}
}

// newWatcher checks a request.
func (g *Guest) newWatcher(r *guestv1.WatchRequest) (*watcher, error) {
	name, err := cleanPath(string(r.Path))
	if err != nil {
		return nil, err
	}
	window := defaultWindow
	if r.WindowMs != nil {
		window = time.Duration(*r.WindowMs) * time.Millisecond
	}
	if window < minWindow || window > maxWindow {
		return nil, refuse(invalid, "", "the window of %v is out of range, %v to %v are taken", window, minWindow, maxWindow)
	}
	include, err := parseGlobs(r.Include)
	if err != nil {
		return nil, err
	}
	exclude, err := parseGlobs(r.Exclude)
	if err != nil {
		return nil, err
	}
	id := strings.ToLower(rand.Text()[:16])
	return &watcher{g: g, id: id, log: newWatchLog(id), recursive: r.Recursive, include: include, exclude: exclude,
		spec: watchSpec{path: name, recursive: r.Recursive, window: window,
			include: strings.Join(r.Include, "\x00"), exclude: strings.Join(r.Exclude, "\x00")},
		folders: map[int]*folder{}}, nil
}

// open puts the path under watch. life bounds the watcher, ask the opening.
func (w *watcher) open(life, ask context.Context) error {
	in, err := newInotify()
	if err != nil {
		return fromOS(err)
	}
	w.in = in
	w.ctx, w.cancel = context.WithCancel(life)
	late := context.AfterFunc(ask, w.cancel)
	err = w.start()
	if !late() && err == nil {
		err = ask.Err()
	}
	if err != nil {
		w.abandon()
		return fromOS(err)
	}
	return nil
}

// abandon undoes an opening.
func (w *watcher) abandon() {
	w.cancel()
	w.in.close()
	w.g.watches.folders.Add(-int64(len(w.folders)))
	w.folders = nil
}

// parseWatchCursor reads "id-number".
func parseWatchCursor(s string) (id string, number int64, ok bool) {
	id, digits, ok := strings.Cut(s, "-")
	if !ok || len(id) != 16 || len(digits) > 18 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	return id, int64(n), err == nil
}
