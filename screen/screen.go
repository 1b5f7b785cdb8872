package screen

import (
	"io"
	"sync"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Bounds on a screen's size, in cells.
const (
	MaxCols = 1000
	MaxRows = 500
)

// What scrolled off is kept up to these bounds.
const (
	HistoryLines = 5000
	HistoryBytes = 1 << 20
)

// Screen is a terminal's screen. It is for one goroutine at a time.
type Screen struct {
	parser     parser
	cols, rows int

	cursor
	main, alt buffer
	now       *buffer // the one that is shown
	top, end  int     // of the scroll region: rows top to end-1
	tabs      []bool  // nil: every eighth column

	modes   modes
	title   string
	titles  []string // pushed ones
	last    rune     // printed last, for REP
	history history
	replies []byte
}

// cursor is where and how the next character is printed.
type cursor struct {
	x, y     int
	wrapNext bool // the last column was printed: the next character wraps first
	origin   bool // rows count from the scroll region's top
	pen      style
	charsets [4]byte // designations: 'B' ASCII, '0' line drawing, 'A' British
	shift    uint8   // which of them is in use
}

// buffer is one of the two screens.
type buffer struct {
	lines []line
	saved *cursor // by DECSC; nil for none
	keys  []int   // flags of the kitty keyboard protocol, a stack
}

func startCursor() cursor { return cursor{charsets: [4]byte{'B', 'B', 'B', 'B'}} }

// New makes an empty screen. The size is put within 1 and MaxCols, MaxRows.
func New(cols, rows int) *Screen {
	s := &Screen{cols: within(cols, MaxCols), rows: within(rows, MaxRows)}
	s.parser.to = s
	s.reset()
	return s
}

func within(n, most int) int { return min(max(n, 1), most) }

// reset is the state of a terminal that was just switched on.
func (s *Screen) reset() {
	s.cursor = startCursor()
	s.main, s.alt = buffer{lines: make([]line, s.rows)}, buffer{}
	s.now, s.top, s.end, s.tabs = &s.main, 0, s.rows, nil
	s.modes, s.title, s.titles, s.last = startModes(), "", nil, 0
}

// Size is the present size in cells.
func (s *Screen) Size() (cols, rows int) { return s.cols, s.rows }

// Title is what the program called the window, at most 1 KiB of UTF-8.
func (s *Screen) Title() string { return s.title }

// Write draws what a program has written. It never fails.
func (s *Screen) Write(b []byte) (int, error) {
	s.parser.write(b)
	return len(b), nil
}

var _ io.Writer = (*Screen)(nil)

// TakeReplies gives what the terminal has to answer to the program's questions
// since the last call. Whoever shows the screen to a real terminal drops it: that
// one answers.
func (s *Screen) TakeReplies() []byte {
	r := s.replies
	s.replies = nil
	return r
}

// Resize changes the size, put within the bounds. Lines are cut or stay short;
// those pushed out at the top scroll off.
func (s *Screen) Resize(cols, rows int) {
	cols, rows = within(cols, MaxCols), within(rows, MaxRows)
	if cols == s.cols && rows == s.rows {
		return
	}
	if cols != s.cols {
		s.history.endLine()
		s.tabs = nil
	}
	s.resizeBuffer(&s.main, cols, rows)
	if s.alt.lines != nil {
		s.resizeBuffer(&s.alt, cols, rows)
	}
	s.cols, s.rows = cols, rows
	s.top, s.end = 0, rows
	s.x, s.y, s.wrapNext = min(s.x, cols-1), min(s.y, rows-1), false
}

func (s *Screen) resizeBuffer(b *buffer, cols, rows int) {
	if cols != s.cols {
		for i := range b.lines {
			b.lines[i].cut(cols)
			b.lines[i].wraps = false
		}
	}
	gone := 0
	if rows < len(b.lines) {
		// What is below the cursor goes first, then what is at the top.
		below := b == s.now
		last := len(b.lines) - 1
		for below && len(b.lines)-gone > rows && last > s.y && b.lines[last].used() == 0 && b.lines[last].fill == (style{}) {
			b.lines = b.lines[:last]
			last--
		}
		gone = max(len(b.lines)-rows, 0)
		for i := range gone {
			if b == &s.main {
				s.history.push(&b.lines[i], s.cols)
			}
		}
		b.lines = append([]line(nil), b.lines[gone:]...)
	}
	for len(b.lines) < rows {
		b.lines = append(b.lines, line{})
	}
	if b == s.now {
		s.y = max(s.y-gone, 0)
	}
	if b.saved != nil {
		b.saved.x, b.saved.y = min(b.saved.x, cols-1), min(max(b.saved.y-gone, 0), rows-1)
	}
}

// widths judges characters as terminals do, whatever the guest's locale says.
var widths = sync.OnceValue(func() *runewidth.Condition {
	c := runewidth.NewCondition()
	c.EastAsianWidth, c.StrictEmojiNeutral = false, true
	return c
})

func widthOf(r rune) int {
	if r < 0x300 {
		return 1
	}
	return widths().RuneWidth(r)
}

func (s *Screen) row() *line { return &s.now.lines[s.y] }

// print puts a character at the cursor.
func (s *Screen) print(r rune) {
	if r < 0x80 {
		r = s.drawn(r)
	}
	width := widthOf(r)
	if width == 0 {
		s.combine(r)
		return
	}
	if width > s.cols {
		r, width = utf8.RuneError, 1
	}
	if s.wrapNext || (s.x+width > s.cols && s.modes.on(modeAutowrap)) {
		s.row().wraps = true
		s.x, s.wrapNext = 0, false
		s.index()
	}
	s.x = min(s.x, s.cols-width) // without wrapping the last column is overwritten
	l := s.row()
	if s.modes.on(modeInsert) {
		l.insert(s.x, width, s.cols, s.pen.blank())
	}
	l.part(s.x)
	l.part(s.x + width)
	l.reach(s.x + width)
	l.cells[s.x] = cell{r: r, width: uint8(width), style: s.pen}
	if width == 2 {
		l.cells[s.x+1] = cell{style: s.pen}
	}
	s.last = r
	s.x += width
	if s.x >= s.cols {
		s.x = s.cols - 1
		s.wrapNext = s.modes.on(modeAutowrap)
	}
}

// text prints many characters at once where that is simple: within a row.
func (s *Screen) text(b []byte) {
	for len(b) > 0 {
		n := min(len(b), s.cols-1-s.x) // the last column has rules of its own
		if n <= 0 || s.wrapNext || s.modes.on(modeInsert) || s.charsets[s.shift] != 'B' {
			s.print(rune(b[0]))
			b = b[1:]
			continue
		}
		l := s.row()
		l.part(s.x)
		l.part(s.x + n)
		l.reach(s.x)
		old := min(len(l.cells)-s.x, n)
		for i, c := range b[:n] {
			if i < old {
				l.cells[s.x+i] = cell{r: rune(c), width: 1, style: s.pen}
			} else {
				l.cells = append(l.cells, cell{r: rune(c), width: 1, style: s.pen})
			}
		}
		s.x, s.last, b = s.x+n, rune(b[n-1]), b[n:]
	}
}

// combine puts a mark on the character before the cursor.
func (s *Screen) combine(r rune) {
	x := s.x
	if !s.wrapNext {
		x--
	}
	l := s.row()
	if x >= 0 && x < len(l.cells) && l.cells[x].width == 0 {
		x--
	}
	if x < 0 || x >= len(l.cells) {
		return
	}
	if c := &l.cells[x]; len(c.more) < maxMore {
		c.more += string(r)
	}
}

// lineDrawing is the DEC special graphics set, from '`' to '~'.
var lineDrawing = []rune("◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")

// drawn is what a character stands for in the character set in use.
func (s *Screen) drawn(r rune) rune {
	switch set := s.charsets[s.shift]; {
	case set == '0' && r >= '`' && r <= '~':
		return lineDrawing[r-'`']
	case set == 'A' && r == '#':
		return '£'
	}
	return r
}

// index moves the cursor down, and scrolls where the region ends.
func (s *Screen) index() {
	s.wrapNext = false
	if s.y == s.end-1 {
		s.scrollUp(s.top, 1)
	} else if s.y < s.rows-1 {
		s.y++
	}
}

// reverseIndex moves the cursor up, and scrolls where the region begins.
func (s *Screen) reverseIndex() {
	s.wrapNext = false
	if s.y == s.top {
		s.scrollDown(s.top, 1)
	} else if s.y > 0 {
		s.y--
	}
}

// scrollUp moves the rows from top to the region's end up by n. What leaves the
// top of the main screen is kept.
func (s *Screen) scrollUp(top, n int) {
	n = min(n, s.end-top)
	lines := s.now.lines[top:s.end]
	for range n {
		first := lines[0]
		if top == 0 && s.now == &s.main {
			s.history.push(&first, s.cols)
		}
		copy(lines, lines[1:])
		first.clear(s.pen.blank())
		lines[len(lines)-1] = first
	}
}

// scrollDown moves the rows from top to the region's end down by n.
func (s *Screen) scrollDown(top, n int) {
	n = min(n, s.end-top)
	lines := s.now.lines[top:s.end]
	for range n {
		last := lines[len(lines)-1]
		copy(lines[1:], lines)
		last.clear(s.pen.blank())
		lines[0] = last
	}
}
