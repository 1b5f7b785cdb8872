package screen

import (
	"strconv"
	"strings"
	"unicode"
)

// control does a C0 control.
func (s *Screen) control(b byte) {
	switch b {
	case '\b':
		s.x, s.wrapNext = max(s.x-1, 0), false
	case '\t':
		s.tab(1)
	case '\n', '\v', '\f':
		s.index()
		if s.modes.on(modeNewline) {
			s.x = 0
		}
	case '\r':
		s.x, s.wrapNext = 0, false
	case 0x0e:
		s.shift = 1
	case 0x0f:
		s.shift = 0
	}
}

// escape does ESC with an intermediate byte, or 0, and a final one.
func (s *Screen) escape(inter, final byte) {
	switch inter {
	case 0:
		s.plainEscape(final)
	case '(', ')', '*', '+':
		set := byte('B')
		if final == '0' || final == 'A' {
			set = final
		}
		s.charsets[inter-'('] = set
	case '#':
		if final == '8' {
			s.fillWithE()
		}
	}
}

func (s *Screen) plainEscape(final byte) {
	switch final {
	case '7':
		s.saveCursor()
	case '8':
		s.restoreCursor()
	case '=', '>':
		s.modes.set[modeKeypad] = final == '='
	case 'D':
		s.index()
	case 'E':
		s.index()
		s.x = 0
	case 'H':
		s.setTab(s.x, true)
	case 'M':
		s.reverseIndex()
	case 'c':
		s.history.clear()
		s.reset()
	case 'n', 'o':
		s.shift = 2 + final - 'n'
	}
}

// fillWithE is the alignment test.
func (s *Screen) fillWithE() {
	for y := range s.now.lines {
		l := &s.now.lines[y]
		l.clear(style{})
		l.reach(s.cols)
		for x := range l.cells {
			l.cells[x].r = 'E'
		}
	}
	s.top, s.end = 0, s.rows
	s.moveTo(0, 0)
}

// csi does one control sequence.
func (s *Screen) csi(q *sequence) {
	switch {
	case q.prefix == 0 && q.inter == 0:
		if !s.moves(q) && !s.edits(q) {
			s.sets(q)
		}
	case q.prefix == '?' && q.inter == 0:
		s.private(q)
	case q.prefix == '>' && q.inter == 0:
		s.extended(q)
	case (q.prefix == '=' || q.prefix == '<') && q.final == 'u':
		s.keyFlags(q)
	case q.inter == '!' && q.final == 'p':
		s.softReset()
	case q.prefix == 0 && q.inter == ' ' && q.final == 'q':
		if n := q.raw(0); n <= 6 {
			s.modes.cursorShape = n
		}
	case q.inter == '$' && q.final == 'p':
		s.reportMode(q)
	}
}

// moves does the sequences that move the cursor.
func (s *Screen) moves(q *sequence) bool {
	n := q.param(0, 1)
	switch q.final {
	case 'A', 'k':
		s.up(n)
	case 'B', 'e':
		s.down(n)
	case 'C', 'a':
		s.x = min(s.x+n, s.cols-1)
	case 'D', 'j':
		s.x = max(s.x-n, 0)
	case 'E':
		s.down(n)
		s.x = 0
	case 'F':
		s.up(n)
		s.x = 0
	case 'G', '`':
		s.x = min(n, s.cols) - 1
	case 'H', 'f':
		s.moveTo(q.param(1, 1)-1, n-1)
	case 'd':
		s.moveTo(s.x, n-1)
	case 'I':
		s.tab(n)
	case 'Z':
		s.backTab(n)
	default:
		return false
	}
	s.wrapNext = false
	return true
}

// up and down stop at the scroll region's border, if the cursor is within.
func (s *Screen) up(n int) {
	least := 0
	if s.y >= s.top {
		least = s.top
	}
	s.y = max(s.y-n, least)
}

func (s *Screen) down(n int) {
	most := s.rows - 1
	if s.y < s.end {
		most = s.end - 1
	}
	s.y = min(s.y+n, most)
}

// moveTo places the cursor, counting as the origin mode says.
func (s *Screen) moveTo(x, y int) {
	least, most := 0, s.rows-1
	if s.origin {
		least, most = s.top, s.end-1
	}
	s.x, s.y, s.wrapNext = min(max(x, 0), s.cols-1), min(least+max(y, 0), most), false
}

// edits does the sequences that change what is on the screen.
func (s *Screen) edits(q *sequence) bool {
	n, blank := q.param(0, 1), s.pen.blank()
	switch q.final {
	case '@':
		s.row().insert(s.x, n, s.cols, blank)
	case 'P':
		s.row().remove(s.x, n, s.cols, blank)
	case 'X':
		s.row().erase(s.x, min(s.x+n, s.cols), s.cols, blank)
	case 'J':
		s.eraseScreen(q.raw(0))
	case 'K':
		s.eraseLine(q.raw(0))
	case 'L':
		if s.y >= s.top && s.y < s.end {
			s.scrollDown(s.y, n)
			s.x = 0
		}
	case 'M':
		if s.y >= s.top && s.y < s.end {
			s.removeLines(n)
			s.x = 0
		}
	case 'S':
		s.scrollUp(s.top, n)
	case 'T':
		if len(q.params) < 2 { // with more it is a mouse's
			s.scrollDown(s.top, n)
		}
	case 'b':
		if s.last != 0 {
			for range min(n, s.cols*s.rows) {
				s.print(s.last)
			}
		}
		return true
	default:
		return false
	}
	s.wrapNext = false
	return true
}

// removeLines is as scrollUp, but what it removes does not count as scrolled off.
func (s *Screen) removeLines(n int) {
	lines := s.now.lines[s.y:s.end]
	for range min(n, len(lines)) {
		first := lines[0]
		copy(lines, lines[1:])
		first.clear(s.pen.blank())
		lines[len(lines)-1] = first
	}
}

func (s *Screen) eraseLine(n int) {
	l, blank := s.row(), s.pen.blank()
	switch n {
	case 0:
		l.erase(s.x, s.cols, s.cols, blank)
		l.wraps = false
	case 1:
		l.erase(0, s.x+1, s.cols, blank)
	case 2:
		l.clear(blank)
	}
}

func (s *Screen) eraseScreen(n int) {
	from, to := 0, 0
	switch n {
	case 0:
		s.eraseLine(0)
		from, to = s.y+1, s.rows
	case 1:
		s.eraseLine(1)
		to = s.y
	case 2:
		to = s.rows
	case 3:
		s.history.clear()
	}
	for y := from; y < to; y++ {
		s.now.lines[y].clear(s.pen.blank())
	}
}

// sets does the sequences that change how later ones work.
func (s *Screen) sets(q *sequence) {
	switch q.final {
	case 'm':
		s.pen.applySGR(q)
	case 'h', 'l':
		s.setMode(q, q.final == 'h')
	case 'r':
		top, end := q.param(0, 1)-1, min(q.param(1, s.rows), s.rows)
		if top+1 < end {
			s.top, s.end = top, end
			s.moveTo(0, 0)
		}
	case 's':
		s.saveCursor()
	case 'u':
		s.restoreCursor()
	case 'g':
		switch q.raw(0) {
		case 0:
			s.setTab(s.x, false)
		case 3:
			s.tabs = make([]bool, s.cols)
		}
	case 't':
		s.window(q)
	case 'c':
		s.reply("\x1b[?62;22c")
	case 'n':
		s.reportStatus(q.raw(0))
	}
}

func (s *Screen) private(q *sequence) {
	switch q.final {
	case 'h', 'l':
		s.setMode(q, q.final == 'h')
	case 'J':
		s.eraseScreen(min(q.raw(0), 2))
		s.wrapNext = false
	case 'K':
		s.eraseLine(q.raw(0))
		s.wrapNext = false
	case 'W':
		if q.raw(0) == 5 {
			s.tabs = nil
		}
	case 'u':
		s.reply("\x1b[?" + strconv.Itoa(s.flags()) + "u")
	}
}

func (s *Screen) extended(q *sequence) {
	switch q.final {
	case 'c':
		s.reply("\x1b[>1;0;0c")
	case 'u':
		s.keyFlags(q)
	case 'm':
		if q.raw(0) == 4 {
			s.modes.otherKeys = min(q.raw(1), 2)
		}
	}
}

// maxStack bounds the pushed key flags and titles.
const maxStack = 16

// keyFlags keeps the stack of the kitty keyboard protocol, one for each screen.
func (s *Screen) keyFlags(q *sequence) {
	keys := &s.now.keys
	switch q.prefix {
	case '>':
		if len(*keys) < maxStack {
			*keys = append(*keys, q.raw(0)&31)
		}
	case '<':
		*keys = (*keys)[:max(len(*keys)-q.param(0, 1), 0)]
	case '=':
		if len(*keys) == 0 {
			*keys = append(*keys, 0)
		}
		top, flags := &(*keys)[len(*keys)-1], q.raw(0)&31
		switch q.param(1, 1) {
		case 1:
			*top = flags
		case 2:
			*top |= flags
		case 3:
			*top &^= flags
		}
	}
}

func (s *Screen) flags() int {
	if k := s.now.keys; len(k) > 0 {
		return k[len(k)-1]
	}
	return 0
}

// softReset is DECSTR.
func (s *Screen) softReset() {
	x, y := s.x, s.y
	s.cursor = startCursor()
	s.x, s.y, s.top, s.end, s.now.saved = x, y, 0, s.rows, nil
	for _, m := range []mode{modeInsert, modeOrigin, modeCursorKeys, modeKeypad} {
		s.modes.set[m] = false
	}
	s.modes.set[modeVisible], s.modes.set[modeAutowrap] = true, true
}

// window does the window operations that matter: the stack of titles, the size.
func (s *Screen) window(q *sequence) {
	switch q.raw(0) {
	case 18:
		s.reply("\x1b[8;" + strconv.Itoa(s.rows) + ";" + strconv.Itoa(s.cols) + "t")
	case 22:
		if len(s.titles) < maxStack {
			s.titles = append(s.titles, s.title)
		}
	case 23:
		if n := len(s.titles); n > 0 {
			s.title, s.titles = s.titles[n-1], s.titles[:n-1]
		}
	}
}

// maxTitle bounds a title, in bytes.
const maxTitle = 1024

// osc does an operating system command: of those, the title is kept.
func (s *Screen) osc(text []byte) {
	kind, value, ok := strings.Cut(string(text), ";")
	if ok && (kind == "0" || kind == "2") {
		s.title = cleanTitle(value)
	}
}

func cleanTitle(t string) string {
	t = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(t, "\uFFFD"))
	if len(t) > maxTitle {
		t = strings.ToValidUTF8(t[:maxTitle], "")
	}
	return t
}

// maxReplies bounds the answers that wait.
const maxReplies = 4096

func (s *Screen) reply(text string) {
	if len(s.replies)+len(text) <= maxReplies {
		s.replies = append(s.replies, text...)
	}
}

func (s *Screen) reportStatus(n int) {
	switch n {
	case 5:
		s.reply("\x1b[0n")
	case 6:
		y := s.y
		if s.origin {
			y -= s.top
		}
		s.reply("\x1b[" + strconv.Itoa(y+1) + ";" + strconv.Itoa(s.x+1) + "R")
	}
}

// reportMode is DECRQM: 1 set, 2 reset, 0 not known.
func (s *Screen) reportMode(q *sequence) {
	state, prefix := 0, ""
	if q.prefix == '?' {
		prefix = "?"
	}
	for m, known := range modeNumbers {
		if known.number == q.raw(0) && known.dec == (q.prefix == '?') {
			state = 2
			if s.modes.on(mode(m)) {
				state = 1
			}
		}
	}
	s.reply("\x1b[" + prefix + strconv.Itoa(q.raw(0)) + ";" + strconv.Itoa(state) + "$y")
}

// isTab reports whether there is a tab stop at a column.
func (s *Screen) isTab(x int) bool {
	if s.tabs == nil {
		return x%8 == 0
	}
	return s.tabs[x]
}

func (s *Screen) setTab(x int, on bool) {
	if s.tabs == nil {
		s.tabs = make([]bool, s.cols)
		for i := range s.tabs {
			s.tabs[i] = i%8 == 0
		}
	}
	s.tabs[x] = on
}

func (s *Screen) tab(n int) {
	for ; n > 0 && s.x < s.cols-1; n-- {
		for s.x++; s.x < s.cols-1 && !s.isTab(s.x); s.x++ {
		}
	}
}

func (s *Screen) backTab(n int) {
	for ; n > 0 && s.x > 0; n-- {
		for s.x--; s.x > 0 && !s.isTab(s.x); s.x-- {
		}
	}
}
