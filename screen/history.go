package screen

import "bytes"

// history keeps the lines that scrolled off the main screen, newest last, each
// as bytes that print it. A line ends in CR LF, or not if the next goes on.
type history struct {
	ring  [][]byte
	first int // index of the oldest
	count int
	bytes int // of all
}

// push keeps a line and forgets the oldest beyond the bounds.
func (h *history) push(l *line, cols int) {
	var into []byte
	if h.count == HistoryLines {
		into = h.drop()
	}
	if h.count == len(h.ring) {
		h.grow()
	}
	into = appendLine(into[:0], l, cols)
	if !l.wraps {
		into = append(into, "\r\n"...)
	}
	if 2*len(into) < cap(into) {
		into = bytes.Clone(into)
	}
	h.ring[(h.first+h.count)%len(h.ring)] = into
	h.count++
	h.bytes += cap(into)
	for h.bytes > HistoryBytes && h.count > 1 {
		h.drop()
	}
}

// drop forgets the oldest line and gives its memory away.
func (h *history) drop() []byte {
	b := h.ring[h.first]
	h.ring[h.first] = nil
	h.first = (h.first + 1) % len(h.ring)
	h.count--
	h.bytes -= cap(b)
	return b
}

func (h *history) grow() {
	ring := make([][]byte, min(max(2*len(h.ring), 64), HistoryLines))
	n := copy(ring, h.ring[h.first:])
	copy(ring[n:], h.ring[:h.first])
	h.ring, h.first = ring, 0
}

// newest is the line that came last, or nil.
func (h *history) newest() *[]byte {
	if h.count == 0 {
		return nil
	}
	return &h.ring[(h.first+h.count-1)%len(h.ring)]
}

// endLine ends the newest line: what follows has another width.
func (h *history) endLine() {
	if l := h.newest(); l != nil && !bytes.HasSuffix(*l, []byte("\r\n")) {
		h.bytes -= cap(*l)
		*l = append(*l, "\r\n"...)
		h.bytes += cap(*l)
	}
}

func (h *history) clear() { *h = history{} }

// appendTo writes all lines and tells whether the last one goes on.
func (h *history) appendTo(b []byte) ([]byte, bool) {
	for i := range h.count {
		b = append(b, h.ring[(h.first+i)%len(h.ring)]...)
	}
	return b, h.count > 0 && !bytes.HasSuffix(b, []byte("\r\n"))
}

// appendLine prints a line from a plain pen to a plain pen: all of its columns if
// it goes on in the next row, otherwise what differs from plain spaces.
func appendLine(b []byte, l *line, cols int) []byte {
	n := l.used()
	switch {
	case l.wraps:
		n = cols
	case l.fill != (style{}):
		n = len(l.cells)
	}
	var pen style
	var blank cell
	var c *cell
	for x := range n {
		if x >= len(l.cells) {
			blank = l.at(x)
			c = &blank
		} else {
			c = &l.cells[x]
		}
		if c.width > 0 && c.style != pen {
			pen = c.style
			b = appendSGR(b, pen)
		}
		if c.r < 0x80 && c.more == "" && c.width == 1 {
			b = append(b, byte(c.r))
			continue
		}
		b = c.appendTo(b)
	}
	if !l.wraps && n < cols && l.fill != (style{}) {
		b = append(appendSGR(b, l.fill), "\x1b[K"...)
		pen = l.fill
	}
	if pen != (style{}) {
		b = append(b, "\x1b[m"...)
	}
	return b
}
