package screen

// mode is one switch of the terminal that programs set.
type mode uint8

const (
	modeInsert mode = iota // IRM
	modeNewline
	modeCursorKeys
	modeReverse
	modeOrigin
	modeAutowrap
	modeBlink
	modeVisible
	modeKeypad
	modeMouseX10
	modeMouseClicks
	modeMouseDrags
	modeMouseMoves
	modeFocus
	modeMouseUTF8
	modeMouseSGR
	modeAltScroll
	modeMouseURXVT
	modeMousePixels
	modePaste
	modeTheme
	modeInBandResize
	modeCount
)

// modeNumbers has, for each mode, its number, whether it is one of DEC's, and
// whether it is on when the terminal starts.
var modeNumbers = [modeCount]struct {
	number int
	dec    bool
	on     bool
}{
	modeInsert: {4, false, false}, modeNewline: {20, false, false},
	modeCursorKeys: {1, true, false}, modeReverse: {5, true, false}, modeOrigin: {6, true, false},
	modeAutowrap: {7, true, true}, modeBlink: {12, true, false}, modeVisible: {25, true, true},
	modeKeypad: {66, true, false}, modeMouseX10: {9, true, false}, modeMouseClicks: {1000, true, false},
	modeMouseDrags: {1002, true, false}, modeMouseMoves: {1003, true, false}, modeFocus: {1004, true, false},
	modeMouseUTF8: {1005, true, false}, modeMouseSGR: {1006, true, false}, modeAltScroll: {1007, true, false},
	modeMouseURXVT: {1015, true, false}, modeMousePixels: {1016, true, false}, modePaste: {2004, true, false},
	modeTheme: {2031, true, false}, modeInBandResize: {2048, true, false},
}

// modes is the state of all switches, and of those that are no switch.
type modes struct {
	set         [modeCount]bool
	cursorShape int // of DECSCUSR, 0 to 6
	otherKeys   int // xterm's modifyOtherKeys, 0 to 2
}

func startModes() modes {
	var m modes
	for i, n := range modeNumbers {
		m.set[i] = n.on
	}
	return m
}

func (m *modes) on(i mode) bool { return m.set[i] }

// setMode does CSI … h and l, with or without '?'.
func (s *Screen) setMode(q *sequence, on bool) {
	for i := range q.params {
		n := q.raw(i)
		for m, known := range modeNumbers {
			if known.number == n && known.dec == (q.prefix == '?') {
				s.switchMode(mode(m), on)
			}
		}
		if q.prefix == '?' {
			s.switchScreen(n, on)
		}
	}
}

func (s *Screen) switchMode(m mode, on bool) {
	s.modes.set[m] = on
	switch m {
	case modeOrigin:
		s.origin = on
		s.moveTo(0, 0)
	case modeAutowrap:
		s.wrapNext = s.wrapNext && on
	case modeMouseX10, modeMouseClicks, modeMouseDrags, modeMouseMoves:
		for other := modeMouseX10; other <= modeMouseMoves; other++ { // one at a time
			s.modes.set[other] = on && other == m
		}
	}
}

// switchScreen does the modes of the other screen and of the saved cursor.
func (s *Screen) switchScreen(n int, on bool) {
	switch n {
	case 47, 1047:
		s.showAlt(on)
	case 1048:
		s.saveOrRestore(on)
	case 1049:
		if on == (s.now == &s.alt) {
			return
		}
		if on {
			s.saveOrRestore(true)
		}
		s.showAlt(on)
		if !on {
			s.saveOrRestore(false)
		}
	}
}

func (s *Screen) saveOrRestore(save bool) {
	if save {
		s.saveCursor()
	} else {
		s.restoreCursor()
	}
}

// showAlt changes the screen. The other one is empty whenever it comes.
func (s *Screen) showAlt(on bool) {
	if on == (s.now == &s.alt) {
		return
	}
	s.wrapNext = false
	s.alt = buffer{}
	s.now = &s.main
	if on {
		s.alt.lines = make([]line, s.rows)
		s.now = &s.alt
	}
}

func (s *Screen) saveCursor() {
	c := s.cursor
	c.wrapNext = false
	s.now.saved = &c
}

func (s *Screen) restoreCursor() {
	c := startCursor()
	if s.now.saved != nil {
		c = *s.now.saved
	}
	s.cursor = c
	s.modes.set[modeOrigin] = s.origin
	s.x, s.y = min(s.x, s.cols-1), min(s.y, s.rows-1)
	if s.origin {
		s.y = min(max(s.y, s.top), s.end-1)
	}
}
