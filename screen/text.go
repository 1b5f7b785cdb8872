package screen

import "strings"

// Text is the rows that are shown, as plain text without spaces at their ends.
func (s *Screen) Text() []string {
	rows := make([]string, len(s.now.lines))
	for y := range s.now.lines {
		l := &s.now.lines[y]
		var b []byte
		for x := range l.cells {
			b = l.cells[x].appendTo(b)
		}
		rows[y] = strings.TrimRight(string(b), " ")
	}
	return rows
}

// Cursor is where the cursor stands, counted from 0, and whether it is shown.
func (s *Screen) Cursor() (x, y int, visible bool) { return s.x, s.y, s.modes.on(modeVisible) }

// Alternate reports whether the other screen is shown, the one without scrolling
// that whole-screen programs use.
func (s *Screen) Alternate() bool { return s.now == &s.alt }
