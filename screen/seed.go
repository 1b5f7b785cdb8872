package screen

import "strconv"

// Leave is what brings a real terminal back from whatever a program left: the
// main screen, a visible cursor where it is, plain colours and keys.
const Leave = plain + "\x1b7\x1b[?6l\x1b[r\x1b8"

// begin brings a terminal of whatever state to an empty, plain main screen.
const begin = plain + "\x1b[?6l\x1b[r\x1b[H\x1b[2J"

// plain ends what is unfinished and sets everything, but for what moves the
// cursor, as it is when a terminal starts: a soft reset first, then what that
// leaves as it was, here or in some terminals.
const plain = "\x18\x1b[?2026l\x1b[<16u\x1b[?1049l\x1b[<16u\x1b[>4m\x1b[!p\x1b[4l\x1b[20l\x1b[?1l\x1b[?5l\x1b[?7h\x1b[?9l\x1b[?12l" +
	"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1007l\x1b[?1015l\x1b[?1016l" +
	"\x1b[?2004l\x1b[?2031l\x1b[?2048l\x1b>\x1b[?25h\x1b(B\x1b)B\x1b*B\x1b+B\x0f\x1b[?5W\x1b[0 q\x1b[m"

// Seed returns what makes a terminal of the same size show this screen and be in
// its state, whatever it showed before. With scrolled, what scrolled off comes
// first, so that it scrolls off there too.
func (s *Screen) Seed(scrolled bool) []byte {
	b := append(make([]byte, 0, 16<<10), begin...)
	goesOn := false
	if scrolled {
		b, goesOn = s.history.appendTo(b)
	}
	b = s.appendMain(b, goesOn)
	b = s.appendSaved(b, &s.main)
	b = appendKeys(b, s.main.keys)
	if s.now == &s.alt {
		b = append(b, "\x1b[?1047h\x1b[m\x1b[2J"...)
		for y := range s.alt.lines {
			b = appendPlace(b, 0, y)
			b = appendLine(b, &s.alt.lines[y], s.cols)
		}
		b = s.appendSaved(b, &s.alt)
		b = appendKeys(b, s.alt.keys)
	}
	b = s.appendTitle(b)
	b = s.appendTabs(b)
	b = s.appendModes(b)
	b = s.appendCursor(b)
	return append(b, s.parser.pending()...)
}

// appendMain prints the rows of the main screen one after the other. A row that
// goes on in the next is printed whole, so that the terminal wraps by itself: a
// space makes it do so, in plain style, as the wrapping may scroll.
func (s *Screen) appendMain(b []byte, goesOn bool) []byte {
	for y := range s.main.lines {
		if goesOn {
			b = append(b, " \r"...)
		} else if y > 0 {
			b = append(b, "\r\n"...)
		}
		l := &s.main.lines[y]
		goesOn = l.wraps && y < s.rows-1
		row := *l
		row.wraps = goesOn
		b = appendLine(b, &row, s.cols)
	}
	return b
}

// appendPlace moves the cursor to a cell.
func appendPlace(b []byte, x, y int) []byte {
	b = strconv.AppendInt(append(b, "\x1b["...), int64(y+1), 10)
	b = strconv.AppendInt(append(b, ';'), int64(x+1), 10)
	return append(b, 'H')
}

// appendSaved makes the terminal save a buffer's saved cursor. The origin mode
// counts rows from the region, which is the whole screen at this time.
func (s *Screen) appendSaved(b []byte, of *buffer) []byte {
	c := of.saved
	if c == nil {
		return b
	}
	if c.origin {
		b = append(b, "\x1b[?6h"...)
	}
	b = appendPlace(b, c.x, c.y)
	b = appendCharsets(b, c)
	b = append(appendSGR(b, c.pen), "\x1b7"...)
	if c.origin {
		b = append(b, "\x1b[?6l"...)
	}
	plain := startCursor()
	return append(appendCharsets(b, &plain), "\x1b[m"...)
}

func appendCharsets(b []byte, c *cursor) []byte {
	for i, set := range c.charsets {
		b = append(b, 0x1b, '('+byte(i), set)
	}
	return append(b, []string{"\x0f", "\x0e", "\x1bn", "\x1bo"}[c.shift]...)
}

func appendKeys(b []byte, keys []int) []byte {
	for _, flags := range keys {
		b = strconv.AppendInt(append(b, "\x1b[>"...), int64(flags), 10)
		b = append(b, 'u')
	}
	return b
}

func (s *Screen) appendTitle(b []byte) []byte {
	for _, t := range s.titles {
		b = append(append(append(b, "\x1b]2;"...), t...), "\x07\x1b[22;2t"...)
	}
	if s.title != "" || len(s.titles) > 0 {
		b = append(append(append(b, "\x1b]2;"...), s.title...), '\x07')
	}
	return b
}

func (s *Screen) appendTabs(b []byte) []byte {
	if s.tabs == nil {
		return b
	}
	b = append(b, "\x1b[3g"...)
	for x, on := range s.tabs {
		if on {
			b = append(appendPlace(b, x, 0), "\x1bH"...)
		}
	}
	return b
}

// appendModes sets what differs from the start, but for those that change how
// the cursor is placed.
func (s *Screen) appendModes(b []byte) []byte {
	if s.top != 0 || s.end != s.rows {
		b = strconv.AppendInt(append(b, "\x1b["...), int64(s.top+1), 10)
		b = strconv.AppendInt(append(b, ';'), int64(s.end), 10)
		b = append(b, 'r')
	}
	for m, known := range modeNumbers {
		on := s.modes.set[m]
		if on == known.on || m == int(modeOrigin) || m == int(modeInsert) || m == int(modeAutowrap) {
			continue
		}
		b = appendMode(b, mode(m), on)
	}
	if s.modes.cursorShape != 0 {
		b = append(b, 0x1b, '[', '0'+byte(s.modes.cursorShape), ' ', 'q')
	}
	if s.modes.otherKeys != 0 {
		b = append(b, 0x1b, '[', '>', '4', ';', '0'+byte(s.modes.otherKeys), 'm')
	}
	return b
}

func appendMode(b []byte, m mode, on bool) []byte {
	known := modeNumbers[m]
	b = append(b, "\x1b["...)
	if known.dec {
		b = append(b, '?')
	}
	b = strconv.AppendInt(b, int64(known.number), 10)
	if on {
		return append(b, 'h')
	}
	return append(b, 'l')
}

// appendCursor places the cursor. One that stands beyond the last column comes
// there by printing that column's character once more.
func (s *Screen) appendCursor(b []byte) []byte {
	y := s.y
	if s.origin {
		b = append(b, "\x1b[?6h"...)
		y -= s.top
	}
	x := s.x
	if s.wrapNext {
		if x > 0 && s.row().at(x).width == 0 {
			x--
		}
		c := s.row().at(x)
		b = appendSGR(appendPlace(b, x, y), c.style)
		b = c.appendTo(b)
	} else {
		b = appendPlace(b, x, y)
	}
	b = appendCharsets(appendSGR(b, s.pen), &s.cursor)
	if !s.modes.on(modeAutowrap) {
		b = append(b, "\x1b[?7l"...)
	}
	if s.modes.on(modeInsert) {
		b = append(b, "\x1b[4h"...)
	}
	return b
}
