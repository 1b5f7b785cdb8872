package screen

import (
	"slices"
	"unicode/utf8"
)

// color is 0 for the terminal's own, or a palette's index, or RGB.
type color uint32

const (
	indexed color = 1 << 24
	direct  color = 2 << 24
)

type attr uint16

const (
	bold attr = 1 << iota
	faint
	italic
	blink
	fastBlink
	reverse
	conceal
	strike
	overline
)

// style is how a cell looks.
type style struct {
	fg, bg, line color // line: of the underline
	attr         attr
	under        uint8 // 0 none, 1 single, 2 double, 3 curly, 4 dotted, 5 dashed
}

// blank is the style that erasing with s leaves: its background alone.
func (s style) blank() style { return style{bg: s.bg} }

// cell is one place of a screen. The second half of a wide character has width 0.
type cell struct {
	more  string // combining characters
	style style
	r     rune
	width uint8
}

// maxMore bounds the bytes of combining characters on one cell.
const maxMore = 32

func space(s style) cell { return cell{r: ' ', width: 1, style: s} }

// line is one row. Cells beyond those it holds are spaces in the style fill.
type line struct {
	cells []cell
	fill  style
	wraps bool // its text goes on in the next row
}

func (l *line) at(x int) cell {
	if x < len(l.cells) {
		return l.cells[x]
	}
	return space(l.fill)
}

// reach makes the line hold at least n cells.
func (l *line) reach(n int) {
	if n <= len(l.cells) {
		return
	}
	if n > cap(l.cells) {
		l.cells = slices.Grow(l.cells, n-len(l.cells))
	}
	for len(l.cells) < n {
		l.cells = append(l.cells, space(l.fill))
	}
}

// clear makes the whole line spaces. Its memory is kept for what comes next.
func (l *line) clear(s style) { l.cells, l.fill, l.wraps = l.cells[:0], s, false }

// erase makes cells from (included) to (excluded) spaces, and the halves of wide
// characters that it cuts.
func (l *line) erase(from, to, cols int, s style) {
	if from >= to {
		return
	}
	l.part(from)
	l.part(to)
	if to >= cols {
		if from < len(l.cells) {
			l.cells = l.cells[:from]
		} else if l.fill != s {
			l.reach(from)
		}
		l.fill = s
		return
	}
	l.reach(to)
	for x := from; x < to; x++ {
		l.cells[x] = space(s)
	}
}

// part makes sure that no wide character lies across the border before x.
func (l *line) part(x int) {
	if x > 0 && x < len(l.cells) && l.cells[x].width == 0 {
		l.cells[x-1] = space(l.cells[x-1].style)
		l.cells[x] = space(l.cells[x].style)
	}
}

// insert moves the cells from x on to the right by n; what leaves is lost.
func (l *line) insert(x, n, cols int, s style) {
	l.part(x)
	n = min(n, cols-x)
	if x >= len(l.cells) && l.fill == s {
		return
	}
	l.reach(cols)
	l.part(cols - n)
	copy(l.cells[x+n:cols], l.cells[x:cols-n])
	for i := x; i < x+n; i++ {
		l.cells[i] = space(s)
	}
}

// remove takes n cells from x on out.
func (l *line) remove(x, n, cols int, s style) {
	n = min(n, cols-x)
	l.part(x)
	l.part(x + n)
	if x >= len(l.cells) && l.fill == s {
		return
	}
	l.reach(cols)
	copy(l.cells[x:cols], l.cells[x+n:cols])
	for i := cols - n; i < cols; i++ {
		l.cells[i] = space(s)
	}
}

// cut forgets what lies beyond cols.
func (l *line) cut(cols int) {
	l.part(cols)
	if len(l.cells) > cols {
		l.cells = slices.Clip(l.cells[:cols])
	}
}

// used is how many cells differ from a plain space at the line's end.
func (l *line) used() int {
	n := len(l.cells)
	for n > 0 && l.cells[n-1] == space(style{}) {
		n--
	}
	return n
}

func (c *cell) appendTo(b []byte) []byte {
	if c.width == 0 {
		return b
	}
	return append(utf8.AppendRune(b, c.r), c.more...)
}
