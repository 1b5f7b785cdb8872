package guest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

func FuzzNotices(f *testing.F) {
	one := binary.NativeEndian.AppendUint32(nil, 7)
	one = binary.NativeEndian.AppendUint32(one, 0x100)
	one = binary.NativeEndian.AppendUint32(one, 0)
	one = binary.NativeEndian.AppendUint32(one, 4)
	one = append(one, "abc\x00"...)
	f.Add(one)
	f.Add(one[:15])
	f.Add(append(slices.Clone(one), one[:10]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, n := range parseNotices(b) {
			if len(n.name) > len(b) || strings.ContainsRune(n.name, 0) {
				t.Errorf("%+v of %d bytes", n, len(b))
			}
		}
	})
}

func FuzzGlob(f *testing.F) {
	for _, p := range []string{"*.go", "**/x", "/a", "a/", "{a,b}/[c-d]?", "[", "**/**/**/**/**/**/**/**", "\\", "{{{{", "\xff*"} {
		f.Add(p, "a/b/c.go")
	}
	f.Fuzz(func(t *testing.T, p, name string) {
		if len(name) > 4096 {
			return
		}
		g, err := parseGlobs([]string{p})
		if err != nil {
			if codeOf(err) != invalid {
				t.Errorf("%q: %v", p, err)
			}
			return
		}
		if g.match(name) && !g.covers(name) && name != "." && name != "/" && name != "" {
			t.Errorf("%q matches %q but does not cover it", p, name)
		}
		if d := g.reach(); d < 1 || d > maxDepth {
			t.Errorf("%q reaches %d", p, d)
		}
	})
}

func FuzzWatchCursor(f *testing.F) {
	f.Add("abcdefghijklmnop-12")
	f.Add("-")
	f.Add("abcdefghijklmnop--1")
	f.Fuzz(func(t *testing.T, s string) {
		id, n, ok := parseWatchCursor(s)
		if ok && (n < 0 || len(id) != 16) {
			t.Errorf("%q: %q %d", s, id, n)
		}
	})
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"*.go", "a.go", true}, {"*.go", "d/a.go", true}, {"/*.go", "d/a.go", false}, {"/*.go", "a.go", true},
		{"d/*.go", "d/a.go", true}, {"d/*.go", "x/d/a.go", false}, {"**/d/*.go", "x/d/a.go", true}, {"d/**", "d/e/f", true},
		{"node_modules", "a/node_modules", true}, {"node_modules/", "node_modules", true}, {"{a,b}c", "bc", true}, {"?", "ab", false},
	} {
		g, err := parseGlobs([]string{c.pattern})
		if err != nil || g.match(c.path) != c.want {
			t.Errorf("%q of %q: %v, %v", c.pattern, c.path, !c.want, err)
		}
	}
}

// TestWatchLog: readers are told of what is no longer kept, and of numbers that
// never were.
func TestWatchLog(t *testing.T) {
	l := newWatchLog("abcdefghijklmnop")
	for i := range keptEvents + 100 {
		l.add([]*guestv1.WatchEvent{{Type: evCreate, Path: fmt.Append(nil, i)}})
	}
	got, next, _, err := l.after(0)
	if err != nil || got[0].Type != evOverflow || string(got[1].Path) != fmt.Sprint(next-256) || next < 100+256 {
		t.Errorf("from the start: %v %d %v", got[:2], next, err)
	}
	if got, next, _, err = l.after(l.last()); err != nil || len(got) != 0 || next != l.last() {
		t.Errorf("from the end: %v %d %v", got, next, err)
	}
	if got, next, _, err = l.after(1 << 40); err != nil || len(got) != 1 || got[0].Type != evOverflow || next != l.last() {
		t.Errorf("from the future: %v %d %v", got, next, err)
	}
	l.add([]*guestv1.WatchEvent{{Path: make([]byte, keptEventBytes)}})
	if l.bytes > keptEventBytes {
		t.Errorf("%d bytes are kept", l.bytes)
	}
}

func TestBatch(t *testing.T) {
	var b batch
	for _, e := range []string{"create a", "modify a", "attrib a", "modify b", "modify b", "attrib b", "remove a", "create a", "modify a"} {
		kind, path, _ := strings.Cut(e, " ")
		b.add(&guestv1.WatchEvent{Type: kind, Path: []byte(path)})
	}
	taken := b.add(&guestv1.WatchEvent{Type: evRemove, Path: []byte("c")})
	b.take(taken)
	b.take(-1)
	var got []string
	for _, e := range b.flush() {
		got = append(got, e.Type+" "+string(e.Path))
	}
	want := []string{"create a", "modify b", "attrib b", "remove a", "create a"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
