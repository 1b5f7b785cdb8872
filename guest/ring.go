package guest

// ring keeps the newest bytes of a stream, with their offsets. It grows to its
// limit as bytes come.
type ring struct {
	buf   []byte
	limit int
	kept  int
	end   int64 // bytes that ever came
}

// start is the offset of the oldest byte that is kept.
func (r *ring) start() int64 { return r.end - int64(r.kept) }

// write appends p and forgets what no longer fits.
func (r *ring) write(p []byte) {
	if need := r.kept + len(p); need > len(r.buf) && len(r.buf) < r.limit {
		r.resize(min(r.limit, max(need, 2*len(r.buf), 512)))
	}
	r.end += int64(len(p))
	if len(r.buf) == 0 {
		return
	}
	if len(p) > len(r.buf) {
		p = p[len(p)-len(r.buf):]
	}
	at := int((r.end - int64(len(p))) % int64(len(r.buf)))
	n := copy(r.buf[at:], p)
	copy(r.buf, p[n:])
	r.kept = min(r.kept+len(p), len(r.buf))
}

// read copies bytes from an offset, which must lie between start and end.
func (r *ring) read(from int64, into []byte) int {
	left := int(r.end - from)
	if left == 0 || len(r.buf) == 0 {
		return 0
	}
	into = into[:min(left, len(into))]
	at := int(from % int64(len(r.buf)))
	n := copy(into, r.buf[at:])
	n += copy(into[n:], r.buf)
	return n
}

// resize keeps the newest bytes that fit into size.
func (r *ring) resize(size int) {
	kept := min(r.kept, size)
	bytes := make([]byte, kept)
	r.read(r.end-int64(kept), bytes)
	r.buf, r.kept = make([]byte, size), 0
	r.end -= int64(kept)
	limit := r.limit
	r.limit = size
	r.write(bytes)
	r.limit = limit
}

// forget gives all memory back; readers are then told that they missed it.
func (r *ring) forget() {
	r.buf, r.kept, r.limit = nil, 0, 0
}
