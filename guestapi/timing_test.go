package guestapi_test

import (
	"testing"
	"time"

	"github.com/berth-dev/berth/guestapi"
)

func TestTimingIsReadAsWritten(t *testing.T) {
	want := guestapi.Timing{Plan: 412 * time.Microsecond, Start: time.Millisecond, Run: 26 * time.Hour, Output: 0}
	got, ok := guestapi.ParseTiming(want.String())
	if !ok || got != want {
		t.Errorf("%q is read as %+v, %v", want, got, ok)
	}
	if s := (guestapi.Timing{Run: -time.Second}).String(); s != "0 0 0 0" {
		t.Errorf("a clock that went back: %q", s)
	}
	for _, bad := range []string{"", "1 2 3", "1 2 3 4 5", "1 2 3 -4", "1 2 3 4e9", "1 2 3 99999999999999999999", "1 2 3 400000000000000", " 1 2 3 4"} {
		if got, ok := guestapi.ParseTiming(bad); ok {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

func FuzzTiming(f *testing.F) {
	f.Add("412 1000 5000 88")
	f.Add("1 2 3 18446744073709551615")
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := guestapi.ParseTiming(s)
		if !ok {
			return
		}
		if got.Plan < 0 || got.Start < 0 || got.Run < 0 || got.Output < 0 || got.Sum() < got.Run {
			t.Fatalf("%q: %+v", s, got)
		}
		if again, ok := guestapi.ParseTiming(got.String()); !ok || again != got {
			t.Fatalf("%q is %+v, then %+v", s, got, again)
		}
	})
}
