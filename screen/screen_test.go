package screen

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// draw is a screen on which the texts were written.
func draw(cols, rows int, texts ...string) *Screen {
	s := New(cols, rows)
	for _, t := range texts {
		s.Write([]byte(t))
	}
	return s
}

// differ says how two screens differ in what is seen and in what comes next.
func differ(a, b *Screen) string {
	same := func(what string, x, y any) string {
		if fmt.Sprint(x) != fmt.Sprint(y) {
			return fmt.Sprintf("%s: %v and %v", what, x, y)
		}
		return ""
	}
	saved := func(c *cursor) any {
		if c == nil {
			return nil
		}
		return *c
	}
	rows := func(x, y []line) string {
		if len(x) != len(y) {
			return fmt.Sprintf("%d and %d rows", len(x), len(y))
		}
		for r := range x {
			for c := range a.cols {
				if p, q := x[r].at(c), y[r].at(c); p != q {
					return fmt.Sprintf("row %d column %d: %+v and %+v", r, c, p, q)
				}
			}
		}
		return ""
	}
	tabs := func(s *Screen) (t []bool) {
		for x := range s.cols {
			t = append(t, s.isTab(x))
		}
		return t
	}
	for _, d := range []string{
		same("size", []int{a.cols, a.rows}, []int{b.cols, b.rows}),
		same("cursor", a.cursor, b.cursor),
		same("modes", a.modes, b.modes),
		same("alternate", a.Alternate(), b.Alternate()),
		same("region", []int{a.top, a.end}, []int{b.top, b.end}),
		same("title", a.title, b.title),
		same("titles", a.titles, b.titles),
		same("keys", []any{a.main.keys, a.alt.keys}, []any{b.main.keys, b.alt.keys}),
		same("saved", []any{saved(a.main.saved), saved(a.alt.saved)}, []any{saved(b.main.saved), saved(b.alt.saved)}),
		same("tabs", tabs(a), tabs(b)),
		same("pending", a.parser.pending(), b.parser.pending()),
		rows(a.main.lines, b.main.lines), rows(a.alt.lines, b.alt.lines),
	} {
		if d != "" {
			return d
		}
	}
	return ""
}

// reseed makes a screen from another's seed and holds it to it.
func reseed(t *testing.T, s *Screen) *Screen {
	t.Helper()
	again := New(s.cols, s.rows)
	again.Write(s.Seed(true))
	if d := differ(s, again); d != "" {
		t.Fatalf("the seed gives another screen: %s\nseed %q", d, s.Seed(true))
	}
	a, _ := s.history.appendTo(nil)
	b, _ := again.history.appendTo(nil)
	a, b = looks.ReplaceAll(a, nil), looks.ReplaceAll(b, nil) // where they change, and a space before a wide character at the edge, is open
	if s.history.count > 0 && s.history.count < HistoryLines-1 && s.history.bytes < HistoryBytes/2 && !bytes.Equal(a, b) && uniform(s) {
		t.Fatalf("the seed gives another history:\n%q\n%q", a, b)
	}
	return again
}

var looks = regexp.MustCompile(`\x1b\[[0-9;:]*[mK]| `)

// uniform reports whether all lines that scrolled off had the present width, so
// that they scroll off again as they were.
func uniform(s *Screen) bool {
	for i := range s.history.count {
		l := New(MaxCols, 2)
		l.Write(bytes.TrimSuffix(s.history.ring[(s.history.first+i)%len(s.history.ring)], []byte("\r\n")))
		if l.x > s.cols {
			return false
		}
	}
	return true
}

func TestScreen(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []string // of a screen of 10 by 4
		x, y int
	}{
		"text":          {"hello\r\nworld", []string{"hello", "world"}, 5, 1},
		"wrap":          {"0123456789ab", []string{"0123456789", "ab"}, 2, 1},
		"pending wrap":  {"0123456789", []string{"0123456789"}, 9, 0},
		"no wrap":       {"\x1b[?7l0123456789ab", []string{"012345678b"}, 9, 0},
		"scroll":        {"1\r\n2\r\n3\r\n4\r\n5", []string{"2", "3", "4", "5"}, 1, 3},
		"region":        {"1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3H\nx", []string{"1", "3", "x", "4"}, 1, 2},
		"reverse index": {"1\r\n2\x1b[H\x1bM0", []string{"0", "1", "2"}, 1, 0},
		"wide":          {"日本\x1b[1;2Hx", []string{" x本"}, 2, 0},
		"wide at edge":  {"\x1b[10G日", []string{"", "日"}, 2, 1},
		"combining":     {"e\u0301x", []string{"e\u0301x"}, 2, 0},
		"tabs":          {"a\tb\x1b[2G\x1bH\r\tc", []string{"ac      b"}, 2, 0},
		"insert":        {"abc\x1b[2G\x1b[2@", []string{"a  bc"}, 1, 0},
		"delete":        {"abcdef\x1b[2G\x1b[2P", []string{"adef"}, 1, 0},
		"erase":         {"abcdef\x1b[3G\x1b[2X\x1b[6G\x1b[K", []string{"ab  e"}, 5, 0},
		"lines":         {"1\r\n2\r\n3\x1b[2H\x1b[L\x1b[4H\x1b[M", []string{"1", "", "2"}, 0, 3},
		"alternate":     {"main\x1b[?1049h\x1b[Halt", []string{"alt"}, 3, 0},
		"and back":      {"main\x1b[?1049h\x1b[Halt\x1b[?1049l", []string{"main"}, 4, 0},
		"drawing":       {"\x1b(0lqk\x1b(Bq", []string{"┌─┐q"}, 4, 0},
		"invalid":       {"a\xff\xe6b\x80", []string{"a��b�"}, 5, 0},
		"broken rune":   {"\xe2\x1b[1;3Hx", []string{"� x"}, 3, 0},
		"title":         {"\x1b]0;\xe2\x9c\xb3 t\x07x", []string{"x"}, 1, 0},
		"huge":          {"\x1b[99999999999999999999B\x1b[4294967297Cx", []string{"", "", "", "         x"}, 9, 3},
		"repeat":        {"ab\x1b[3b", []string{"abbbb"}, 5, 0},
		"device string": {"\x1bP1$qm\x1b\\ok\x1b_apc\x1b\\", []string{"ok"}, 2, 0},
		"save":          {"ab\x1b7\r\ncd\x1b8e", []string{"abe", "cd"}, 3, 0},
		"origin":        {"\x1b[2;3r\x1b[?6h\x1b[9Hx", []string{"", "", "x"}, 1, 2},
	} {
		s := draw(10, 4, c.in)
		want := append(c.want, make([]string, 4-len(c.want))...)
		x, y, _ := s.Cursor()
		if !slices.Equal(s.Text(), want) || x != c.x || y != c.y {
			t.Errorf("%s: %q at %d %d, want %q at %d %d", name, s.Text(), x, y, want, c.x, c.y)
		}
		reseed(t, s)
		// The same, however the bytes are cut.
		one := New(10, 4)
		for i := range len(c.in) {
			one.Write([]byte(c.in[i : i+1]))
			reseed(t, one)
		}
		if d := differ(s, one); d != "" {
			t.Errorf("%s in bytes: %s", name, d)
		}
	}
}

func TestStyles(t *testing.T) {
	for in, want := range map[string]style{
		"1;31":                      {attr: bold, fg: indexed | 1},
		"1;2;3;4;5;6;7;8;9;53":      {attr: bold | faint | italic | blink | fastBlink | reverse | conceal | strike | overline, under: 1},
		"1;2;22;3;23;7;27;9;29":     {},
		"38;5;208;48;2;1;2;300":     {fg: indexed | 208, bg: direct | 0x0102ff},
		"38:2::10:20:30;4:3;58:5:9": {fg: direct | 0x0a141e, under: 3, line: indexed | 9},
		"97;107":                    {fg: indexed | 15, bg: indexed | 15},
		"31;0":                      {},
		"38;5":                      {},
		"":                          {},
	} {
		s := draw(10, 2, "\x1b["+in+"mx")
		if s.pen != want {
			t.Errorf("%q: %+v, want %+v", in, s.pen, want)
		}
		reseed(t, s)
	}
}

func TestModesAndTitles(t *testing.T) {
	s := draw(20, 5, "\x1b[?1;1002;1006;2004;1004h\x1b[?25l\x1b=\x1b[5 q\x1b[>1u\x1b[>4;2m\x1b]2;one\x07\x1b[22;0t\x1b]2;two \xff\x1b\\\x1b[4h\x1b[?12h")
	if s.Title() != "two \uFFFD" {
		t.Errorf("title %q", s.Title())
	}
	again := reseed(t, s)
	again.Write([]byte("\x1b[23;0t\x1b[<u"))
	if again.Title() != "one" || again.flags() != 0 {
		t.Errorf("popped: %q %d", again.Title(), again.flags())
	}
	// A seed brings any terminal there, whatever it was.
	other := draw(20, 5, "\x1b[?1049h\x1b[2;3r\x1b[?6h\x1b[?1003h\x1b[41mjunk\x1b[3g\x1b(0\x1b]0;never ended")
	plain := draw(20, 5, "plain")
	other.Write(plain.Seed(true))
	other.title, other.last = "", 0
	if d := differ(plain, other); d != "" {
		t.Error(d)
	}
	s.Write([]byte(Leave))
	if s.Alternate() || s.modes.set != startModes().set || s.pen != (style{}) {
		t.Errorf("left: %+v", s.modes)
	}
}

func TestReplies(t *testing.T) {
	s := draw(20, 5, "\x1b[2;3H\x1b[6n\x1b[5n\x1b[c\x1b[>c\x1b[?2004$p\x1b[18t\x1b[?u")
	want := "\x1b[2;3R\x1b[0n\x1b[?62;22c\x1b[>1;0;0c\x1b[?2004;2$y\x1b[8;5;20t\x1b[?0u"
	if got := string(s.TakeReplies()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.Write(bytes.Repeat([]byte("\x1b[6n"), 100000))
	if n := len(s.TakeReplies()); n > maxReplies {
		t.Errorf("%d bytes wait", n)
	}
	if s.Write(s.Seed(true)); len(s.TakeReplies()) > 0 {
		t.Error("a seed asks something")
	}
}

func TestHistory(t *testing.T) {
	s := New(20, 3)
	for i := range 3 * HistoryLines {
		fmt.Fprintf(s, "\x1b[3%dmline %d\x1b[m\r\n", i%8, i)
	}
	if s.history.count != HistoryLines || s.history.bytes > HistoryBytes {
		t.Errorf("%d lines, %d bytes", s.history.count, s.history.bytes)
	}
	b, _ := s.history.appendTo(nil)
	if want := fmt.Sprintf("line %d\x1b[m\r\n", 3*HistoryLines-3); !bytes.HasSuffix(b, []byte(want)) {
		t.Errorf("%q", b[len(b)-40:])
	}
	s.Write([]byte("\x1b[3J"))
	if s.history.count != 0 {
		t.Error("not cleared")
	}
	s = New(MaxCols, 3)
	for range 2000 {
		s.Write([]byte(strings.Repeat("\x1b[38;2;1;2;3mx\x1b[38;2;3;2;1my", 100) + "\r\n"))
	}
	if s.history.bytes > HistoryBytes {
		t.Errorf("%d bytes", s.history.bytes)
	}
	s = draw(10, 2, "a long line that wraps around\r\nb\r\nc\r\n")
	again := reseed(t, s)
	if b, _ := again.history.appendTo(nil); !bytes.Contains(b, []byte("a long line that wraps around")) {
		t.Errorf("%q", b)
	}
}

func TestResize(t *testing.T) {
	s := draw(10, 4, "1\r\n2\r\n3\r\n4")
	s.Resize(10, 2)
	if want := []string{"3", "4"}; !slices.Equal(s.Text(), want) || s.y != 1 {
		t.Errorf("%q at %d", s.Text(), s.y)
	}
	s = draw(10, 4, "1\r\n2")
	s.Resize(5, 2)
	if want := []string{"1", "2"}; !slices.Equal(s.Text(), want) || s.history.count != 0 {
		t.Errorf("%q", s.Text())
	}
	for _, size := range [][2]int{{0, 0}, {-1, 1 << 30}, {1, 1}, {65535, 65535}, {80, 24}} {
		s.Resize(size[0], size[1])
		s.Write([]byte("日本x\x1b[?1049h\x1b[5;5Hy\x1b[2;3r"))
		reseed(t, s)
	}
	for i := range 10000 { // a storm
		s.Resize(1+i*7919%MaxCols, 1+i*104729%MaxRows)
		s.Write([]byte("some text 日本\r\n\x1b[44m\x1b[K"))
	}
	reseed(t, s)
}

func FuzzSeed(f *testing.F) {
	for _, s := range []string{
		"plain text\r\nand more\r\n", "\x1b[31;1mred\x1b[0m\x1b[44m\x1b[K\x1b[2J", "日本語テキスト wraps around the edge",
		"\x1b[?1049h\x1b[2;5r\x1b[?6h\x1b[3;3Hx\x1b[?25l", "\x1b[3g\x1b[5G\x1bH\tx", "\x1b(0lqqk\x0e\x1b)0x\x1b7\x1b[5;5H",
		"\x1b]2;title\x07\x1b[22t\x1bP+q\x1b\\", "\xff\xfe\xe2\x82", "\x1b[38;2;1;2;3;4:3m~\u0301\u0302", "a\x1b[20b\x1b[4h\x1b[2Gxyz\x1b[?7l",
		"\x1b[44m0123456789012345678901234567890123456789\x1b[K\r\n\x1b[M\x1b[L\x1b[2P\x1b[3@\x1b[2X",
	} {
		f.Add([]byte(s), uint8(20), uint8(6), uint8(30), uint8(4))
	}
	f.Fuzz(func(t *testing.T, in []byte, cols, rows, cols2, rows2 uint8) {
		s := New(int(cols%64), int(rows%24))
		half := len(in) / 2
		s.Write(in[:half])
		reseed(t, s)
		s.Resize(int(cols2%64), int(rows2%24))
		reseed(t, s)
		s.Write(in[half:])
		again := reseed(t, s)
		// What comes next does the same to both.
		again.last, again.history = s.last, history{}
		next := append(slices.Clone(in), "\r\n\x1b[mend"...)
		s.Write(next)
		again.Write(next)
		if d := differ(s, again); d != "" {
			t.Fatalf("after the seed: %s", d)
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	s := New(80, 24)
	text := []byte(strings.Repeat("The quick \x1b[32mbrown\x1b[m fox jumps over the lazy dog\r\n", 100))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s.Write(text)
	}
}
