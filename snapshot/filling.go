package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// Bounds on a Filling.
const (
	chunkTime = 2 * time.Minute        // for one chunk, whatever is tried meanwhile
	chunkRest = 500 * time.Millisecond // before one that was out of reach is tried again
	aheadMost = 2                      // chunks fetched at once that nobody has asked for
)

// Filling is a stored file on its way to the disk, of which parts are used before
// all is there: what somebody wants comes first, then what follows it, then the rest.
// It fails as a whole at the first chunk that cannot be had.
type Filling struct {
	store *Store
	near  *near // nil: nothing is
	file  *File
	out   io.WriterAt

	mu     sync.Mutex
	begun  []bool // chunks that are there, or on their way, or not needed
	wanted []int  // chunks that were asked for and not begun, in the order of the asking
	cursor int    // the chunk to begin next without being asked
	ahead  int    // how many of those are on their way
	due    int    // chunks that are not there
	come   []span
	err    error         // set once; io.EOF: all is there
	grown  chan struct{} // closed when come or err has changed
	idle   *sync.Cond    // workers wait on it, with mu
}

// span is a stretch of a file.
type span struct{ offset, length int64 }

// errFillingEnded says that nobody fills any more although more was to come.
var errFillingEnded = &sandbox.Error{Op: "fill", Kind: sandbox.Unavailable, Err: context.Canceled}

// newFilling plans to fill what lacks names; holes are filled already.
func (s *Store) newFilling(f *File, out io.WriterAt, n *near, lacks []span) *Filling {
	w := &Filling{store: s, near: n, file: f, out: out, begun: make([]bool, len(f.Chunks)), grown: make(chan struct{})}
	w.idle = sync.NewCond(&w.mu)
	end := int64(0)
	for i, c := range f.Chunks {
		if c.Offset > end {
			w.come = append(w.come, span{end, c.Offset - end})
		}
		end = c.Offset + c.Length
		if w.begun[i] = !touches(lacks, c.Offset, end); w.begun[i] {
			w.come = append(w.come, span{c.Offset, c.Length})
		} else {
			w.due++
		}
	}
	if end < f.Size {
		w.come = append(w.come, span{end, f.Size - end})
	}
	if w.due == 0 {
		w.err = io.EOF
	}
	return w
}

func touches(all []span, from, to int64) bool {
	for _, s := range all {
		if s.offset < to && from < s.offset+s.length {
			return true
		}
	}
	return false
}

// Want asks that n bytes at an offset come before others. What is not in the file is
// passed over.
func (w *Filling) Want(offset, n int64) {
	if offset < 0 || n <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := w.search(offset); i < len(w.file.Chunks) && w.file.Chunks[i].Offset-n < offset; i++ {
		w.cursor = i + 1
		if !w.begun[i] {
			w.begun[i] = true
			w.wanted = append(w.wanted, i)
			w.idle.Signal()
		}
	}
}

// search returns the first chunk that ends behind an offset.
func (w *Filling) search(offset int64) int {
	chunks := w.file.Chunks
	return sort.Search(len(chunks), func(i int) bool { return chunks[i].Offset+chunks[i].Length > offset })
}

// Next returns the part of the file that came as number i, from 0 on, and waits for it
// if need be. io.EOF: there were no more, and all of the file is there.
func (w *Filling) Next(ctx context.Context, i int) (offset, n int64, err error) {
	for {
		w.mu.Lock()
		if i < len(w.come) {
			defer w.mu.Unlock()
			return w.come[i].offset, w.come[i].length, nil
		}
		err, grown := w.err, w.grown
		w.mu.Unlock()
		if err != nil {
			return 0, 0, err
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return 0, 0, context.Cause(ctx)
		}
	}
}

// run fills the file. It returns nil when all is there.
func (w *Filling) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { w.fail(errFillingEnded) })
	defer stop()
	var workers sync.WaitGroup
	for range w.store.loads {
		workers.Go(func() {
			for {
				i, ahead := w.take()
				if i < 0 {
					return
				}
				w.done(i, ahead, w.fetch(ctx, i))
			}
		})
	}
	workers.Wait()
	if w.err != io.EOF {
		return w.err
	}
	return nil
}

// take gives a worker a chunk to fetch, once there is one; -1: no more comes.
func (w *Filling) take() (i int, ahead bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil {
		if len(w.wanted) > 0 {
			i, w.wanted = w.wanted[0], w.wanted[1:]
			return i, false
		}
		if w.ahead < aheadMost {
			if i := w.following(); i >= 0 {
				w.begun[i], w.cursor = true, i+1
				w.ahead++
				return i, true
			}
		}
		w.idle.Wait()
	}
	return -1, false
}

// following is the next chunk that nobody has begun, behind the cursor or from the
// beginning on; -1: there is none.
func (w *Filling) following() int {
	for k := range w.begun {
		if i := (w.cursor + k) % len(w.begun); !w.begun[i] {
			return i
		}
	}
	return -1
}

// fetch puts a chunk into the file.
func (w *Filling) fetch(all context.Context, i int) error {
	ctx, cancel := context.WithTimeout(all, chunkTime)
	defer cancel()
	c := &w.file.Chunks[i]
	buf := w.store.buffer(c.Length)
	defer w.store.buffers.Put(buf)
	for {
		err := w.store.chunkNear(ctx, w.near, c, *buf)
		if err == nil {
			_, err = w.out.WriteAt(*buf, c.Offset)
			return err
		}
		if all.Err() != nil {
			return errFillingEnded
		}
		if k := sandbox.KindOf(err); k != sandbox.Unavailable && k != sandbox.Timeout {
			return chunkError(w.file, i, err)
		}
		select {
		case <-time.After(chunkRest):
		case <-all.Done():
			return errFillingEnded
		case <-ctx.Done():
			return chunkError(w.file, i, fmt.Errorf("it did not come within %v: %w", chunkTime, err))
		}
	}
}

func (w *Filling) done(i int, ahead bool, err error) {
	w.mu.Lock()
	if ahead {
		w.ahead--
		w.idle.Signal()
	}
	if err == nil && w.err == nil {
		w.come = append(w.come, span{w.file.Chunks[i].Offset, w.file.Chunks[i].Length})
		close(w.grown)
		w.grown = make(chan struct{})
		if w.due--; w.due == 0 {
			err = io.EOF
		}
	}
	w.mu.Unlock()
	if err != nil {
		w.fail(err)
	}
}

// fail ends the filling; the first call counts.
func (w *Filling) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
		close(w.grown)
		w.grown = make(chan struct{})
		w.idle.Broadcast()
	}
}

// makeRoom takes the disk's room for a file's chunks, so that it cannot end later. A
// disk that cannot do so is believed to have it.
func makeRoom(out *os.File, f *File) error {
	for i := 0; i < len(f.Chunks); {
		from, to := f.Chunks[i].Offset, int64(0)
		for ; i < len(f.Chunks) && (to == 0 || f.Chunks[i].Offset == to); i++ {
			to = f.Chunks[i].Offset + f.Chunks[i].Length
		}
		if err := unix.Fallocate(int(out.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, to-from); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("make room for %s: %w", f.Name, err)
		}
	}
	return nil
}

// pinned keeps the chunks of a file from being swept until drop is called.
func (s *Store) pinned(ctx context.Context, f *File) (drop func(), err error) {
	var held []Sum
	drop = func() { s.pins.drop(held) }
	for _, c := range f.Chunks {
		if err := s.pins.hold(ctx, c.Blob); err != nil {
			drop()
			return nil, err
		}
		held = append(held, c.Blob)
	}
	return drop, nil
}

// Refill fills the parts lacks, each an offset and a length, of a file that holds what
// a stored one of that name is to hold. run has to be called, and returns when all is
// there, or it cannot be.
func (s *Store) Refill(ctx context.Context, d blob.Digest, name string, out io.WriterAt, lacks [][2]int64) (w *Filling, run func(context.Context) error, err error) {
	const op = "fill"
	m, err := s.manifest(ctx, d)
	if err != nil {
		return nil, nil, wrap(op, err)
	}
	f, err := m.file(name)
	if err != nil {
		return nil, nil, wrap(op, err)
	}
	var spans []span
	for _, l := range lacks {
		spans = append(spans, span{l[0], l[1]})
	}
	drop, err := s.pinned(ctx, f)
	if err != nil {
		return nil, nil, wrap(op, err)
	}
	w = s.newFilling(f, out, nil, spans)
	return w, func(ctx context.Context) error { defer drop(); return wrap(op, w.run(ctx)) }, nil
}
