package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// FuzzCursor: what is taken for a cursor has the form of one, so that it stays
// within its keys.
func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add("0000000000000000-aaaaaaaaaaaaaaaaaaaa")
	f.Add((&stored{Sandbox: sandbox.Sandbox{ID: sandbox.NewID(), Created: time.Now()}}).cursor())
	f.Fuzz(func(t *testing.T, s string) {
		err := parseCursor(s)
		if err != nil && sandbox.KindOf(err) != sandbox.Invalid {
			t.Fatal(err)
		}
		if err == nil && (len(s) != 37 || strings.ContainsAny(s, "/\x00 ")) {
			t.Errorf("%q is taken for a cursor", s)
		}
	})
}

// TestNewerSortsFirst over the whole range of times.
func TestNewerSortsFirst(t *testing.T) {
	last := ""
	for _, at := range []time.Time{time.Unix(1<<33, 0), time.Unix(1_800_000_000, 1), time.Unix(1_800_000_000, 0), time.Unix(0, 0)} {
		c := (&stored{Sandbox: sandbox.Sandbox{ID: "aaaaaaaaaaaaaaaaaaaa", Created: at}}).cursor()
		if c <= last {
			t.Errorf("%v sorts before a newer one", at)
		}
		if err := parseCursor(c); err != nil {
			t.Error(err)
		}
		last = c
	}
}
