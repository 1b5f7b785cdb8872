package kernel

import (
	"sync"
	"time"
	"unicode/utf8"
)

// Run is code on its way through a context.
type Run struct {
	ID      string
	Context *Context
	code    string
	env     map[string]string
	timeout time.Duration
	log     *log
	cancel  chan string   // of one: why it is to end
	over    chan struct{} // closed at its end

	mu     sync.Mutex
	reason string // why it was cancelled, first
	loose  bool
}

// textChunk bounds the text of one event, in bytes.
const textChunk = 1 << 20

// Over is closed when the run has ended.
func (r *Run) Over() <-chan struct{} { return r.over }

// Read opens a cursor behind an event of the run; false: there is none of that
// number yet.
func (r *Run) Read(after int64) (*Cursor, bool) { return r.log.read(after) }

// Cancel drops the run if it waits for its turn, and interrupts it if it is under
// way. A run that has ended stays as it is.
func (r *Run) Cancel(reason string) {
	r.mu.Lock()
	if r.reason == "" {
		r.reason = reason
	}
	r.mu.Unlock()
	select {
	case r.cancel <- reason:
	default:
	}
	r.Context.dropCancelled()
}

// Loosen lets the run outlive its stream: its machine was copied.
func (r *Run) Loosen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loose = true
}

// Loose reports whether the run outlives its stream.
func (r *Run) Loose() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loose
}

// cancelled is why the run was cancelled, or "".
func (r *Run) cancelled() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reason
}

// say keeps text that the run has printed.
func (r *Run) say(kind Kind, text string) {
	for len(text) > 0 {
		n := min(len(text), textChunk)
		for n < len(text) && n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		if n == 0 {
			n = min(len(text), textChunk)
		}
		r.log.add(Event{Kind: kind, Text: text[:n]})
		text = text[n:]
	}
}

// end says how the run ended. It is called once.
func (r *Run) end(e End) {
	r.log.add(Event{Kind: Ended, End: &e})
	close(r.over)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
