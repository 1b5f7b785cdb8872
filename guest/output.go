package guest

import (
	"sync"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// The streams of a process, as indexes.
const (
	stdout = iota
	stderr
	streams
)

// chunk bounds the bytes of one output event.
const chunk = 64 << 10

// output is what a process has written, kept in bounds, and how it ended. Any
// number of cursors read it, each at its own pace; none holds the process up but
// the one that lossless names.
type output struct {
	mu       sync.Mutex
	rings    [streams]ring
	cursors  map[*cursor]struct{}
	lossless *cursor                // the process waits for it; nil for none
	room     [streams]chan struct{} // told when lossless has moved on
	exit     *guestv1.Exit          // set when all output has been kept
	unwanted bool                   // to be forgotten when the last cursor closes
}

func newOutput(limit int) *output {
	o := &output{cursors: map[*cursor]struct{}{}}
	for i := range o.rings {
		o.rings[i].limit = limit
		o.room[i] = make(chan struct{}, 1)
	}
	return o
}

// write keeps p. It returns at once, unless a lossless reader has not yet read
// what would be forgotten: then it waits until that reader reads on or leaves.
func (o *output) write(stream int, p []byte) {
	for {
		o.mu.Lock()
		r := &o.rings[stream]
		if o.lossless == nil || r.end+int64(len(p))-o.lossless.at[stream] <= int64(max(r.limit, len(p))) {
			r.write(p)
			o.wakeAll()
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		<-o.room[stream] // the lossless cursor is always closed: with its stream, at the latest
	}
}

// finish says how the process ended. Output that still comes, from what it left
// running, is kept and found by later readers.
func (o *output) finish(e *guestv1.Exit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.exit = e
	o.wakeAll()
}

// forget drops the bytes, not the exit, as soon as nobody is reading them.
func (o *output) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unwanted = true
	o.dropUnwanted()
}

// dropUnwanted is called with the lock held.
func (o *output) dropUnwanted() {
	if !o.unwanted || len(o.cursors) > 0 {
		return
	}
	for i := range o.rings {
		o.rings[i].forget()
	}
}

// size is the memory that is held.
func (o *output) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.rings[stdout].buf) + len(o.rings[stderr].buf)
}

// written is how many bytes of each stream have come.
func (o *output) written() (out, errs int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rings[stdout].end, o.rings[stderr].end
}

func (o *output) wakeAll() {
	for c := range o.cursors {
		poke(c.wake)
	}
}

// poke leaves one token in a channel of one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// cursor is one reader's place in an output.
type cursor struct {
	out  *output
	at   [streams]int64
	turn int           // the stream to look at first, so that none starves
	wake chan struct{} // told when there may be more
	buf  []byte
}

// read opens a cursor at the given offsets. One beyond what has been written is
// refused.
func (o *output) read(from [streams]int64) (*cursor, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, at := range from {
		if at < 0 || at > o.rings[i].end {
			return nil, refuse(invalid, "go on from an offset that an event gave",
				"offset %d of %s lies outside of the %d bytes written", at, [streams]string{"stdout", "stderr"}[i], o.rings[i].end)
		}
	}
	c := &cursor{out: o, at: from, wake: make(chan struct{}, 1)}
	o.cursors[c] = struct{}{}
	return c, nil
}

// close ends the cursor; a process that waited for it goes on.
func (c *cursor) close() {
	o := c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.cursors, c)
	o.dropUnwanted()
	if o.lossless == c {
		o.lossless = nil
		for _, r := range o.room {
			poke(r)
		}
	}
}

// next gives the next event, or nil when there is none yet. The event's bytes
// are good until the next call. The exit comes when all else has been given.
func (c *cursor) next() *guestv1.ProcessEvent {
	o := c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	for range streams {
		i := c.turn
		c.turn = (c.turn + 1) % streams
		r := &o.rings[i]
		at := c.at[i]
		if missed := r.start() - at; missed > 0 {
			c.at[i] = r.start()
			return &guestv1.ProcessEvent{Event: &guestv1.ProcessEvent_Missed{
				Missed: &guestv1.Missed{Stream: streamName(i), Offset: at, Bytes: missed}}}
		}
		if left := int(r.end - at); left > 0 {
			n := r.read(at, c.space(min(left, chunk)))
			c.at[i] += int64(n)
			if o.lossless == c {
				poke(o.room[i])
			}
			return &guestv1.ProcessEvent{Event: &guestv1.ProcessEvent_Output{
				Output: &guestv1.Output{Stream: streamName(i), Offset: at, Data: c.buf[:n]}}}
		}
	}
	if o.exit != nil {
		return &guestv1.ProcessEvent{Event: &guestv1.ProcessEvent_Exit{Exit: o.exit}}
	}
	return nil
}

// space is the cursor's buffer, grown to n bytes.
func (c *cursor) space(n int) []byte {
	if cap(c.buf) < n {
		c.buf = make([]byte, n)
	}
	return c.buf[:n]
}

func streamName(i int) guestv1.Stream {
	if i == stderr {
		return guestv1.Stream_STREAM_STDERR
	}
	return guestv1.Stream_STREAM_STDOUT
}
