package intercept

import (
	"bytes"
	"io"
)

// replacer replaces texts in a stream, also where they lie across the borders of
// what is read at once. It keeps back no more than what may be the beginning of
// such a text, so that a stream of events is not delayed.
type replacer struct {
	from, to [][]byte
}

// add has from replaced by to. from must not be empty.
func (r *replacer) add(from, to []byte) {
	r.from = append(r.from, from)
	r.to = append(r.to, to)
}

// text replaces in one text.
func (r *replacer) text(s []byte) []byte {
	out, _ := r.pass(nil, s, true)
	return out
}

// pass appends to out what is settled of in, and returns how much of in that
// was. At the end all of it is.
func (r *replacer) pass(out, in []byte, end bool) ([]byte, int) {
	at := 0
	next := make([]int, len(r.from)) // where each is found next, -1 for nowhere
	for i := range next {
		next[i] = bytes.Index(in, r.from[i])
	}
	for {
		best := -1
		for i, n := range next {
			if n >= 0 && n < at {
				if n = bytes.Index(in[at:], r.from[i]); n >= 0 {
					n += at
				}
				next[i] = n
			}
			if n >= 0 && (best < 0 || n < next[best] || n == next[best] && len(r.from[i]) > len(r.from[best])) {
				best = i
			}
		}
		hold := len(in)
		if !end {
			hold = at + r.settled(in[at:])
		}
		if best < 0 || next[best] > hold {
			// Nothing is found before what may be the beginning of one.
			return append(out, in[at:hold]...), hold
		}
		if best >= 0 && !end && r.longerMayCome(in, next[best], best) {
			return append(out, in[at:next[best]]...), next[best]
		}
		out = append(append(out, in[at:next[best]]...), r.to[best]...)
		at = next[best] + len(r.from[best])
	}
}

// longerMayCome reports whether a longer text than the one found at i may begin
// there too, of which the end is still to come.
func (r *replacer) longerMayCome(in []byte, i, found int) bool {
	rest := in[i:]
	for _, f := range r.from {
		if len(f) > len(rest) && len(f) > len(r.from[found]) && bytes.HasPrefix(f, rest) {
			return true
		}
	}
	return false
}

// settled is how much of in, from its first byte, is no beginning of a text that
// what follows may complete.
func (r *replacer) settled(in []byte) int {
	hold := len(in)
	for _, f := range r.from {
		from := max(0, len(in)-len(f)+1)
		for i := from; i < hold; i++ {
			j := bytes.IndexByte(in[i:hold], f[0])
			if j < 0 {
				break
			}
			i += j
			if bytes.HasPrefix(f, in[i:]) {
				hold = i
				break
			}
		}
	}
	return hold
}

// reader returns src with its texts replaced.
func (r *replacer) reader(src io.Reader) io.Reader { return &replacing{replacer: r, src: src} }

type replacing struct {
	*replacer
	src  io.Reader
	in   []byte // read, and not settled
	out  []byte // to be handed out
	done int    // of out
	err  error
}

func (r *replacing) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.done == len(r.out) {
		if r.err != nil {
			return 0, r.err
		}
		r.fill()
	}
	n := copy(p, r.out[r.done:])
	r.done += n
	return n, nil
}

// fill reads once and settles what can be.
func (r *replacing) fill() {
	if cap(r.in)-len(r.in) < copyBuffer/2 {
		r.in = append(make([]byte, 0, len(r.in)+copyBuffer), r.in...)
	}
	n, err := r.src.Read(r.in[len(r.in):cap(r.in)])
	r.in, r.err = r.in[:len(r.in)+n], err
	var took int
	r.out, took = r.pass(r.out[:0], r.in, err != nil)
	r.done = 0
	r.in = r.in[:copy(r.in, r.in[took:])]
}
