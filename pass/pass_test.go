package pass_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/pass"
	"github.com/berth-dev/berth/sandbox"
)

var (
	secret = bytes.Repeat([]byte("s"), pass.MinSecret)
	noon   = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

const (
	box   sandbox.ID = "aaaaaaaaaaaaaaaaaaaa"
	other sandbox.ID = "bbbbbbbbbbbbbbbbbbbb"
)

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

func sign(t testing.TB, s *pass.Signer) (string, pass.Claims) {
	t.Helper()
	c := pass.Claims{Kind: pass.Once, Sandbox: box, Port: 8080, Generation: 7, Expires: noon.Add(time.Hour)}
	text, err := s.Sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return text, c
}

func TestPass(t *testing.T) {
	s := pass.New(secret, at(noon))
	text, want := sign(t, s)
	got, ok := s.Check(text, box, 8080)
	want.Nonce = got.Nonce
	if !ok || got != want || got.Serial() == strings.Repeat("0", 16) {
		t.Errorf("%+v %v, want %+v", got, ok, want)
	}
	if again, _ := sign(t, s); again == text {
		t.Error("two passes are one")
	}
	for what, check := range map[string]func() (pass.Claims, bool){
		"another sandbox": func() (pass.Claims, bool) { return s.Check(text, other, 8080) },
		"another port":    func() (pass.Claims, bool) { return s.Check(text, box, 8081) },
		"another secret": func() (pass.Claims, bool) {
			return pass.New(bytes.Repeat([]byte("t"), 32), at(noon)).Check(text, box, 8080)
		},
		"its end":    func() (pass.Claims, bool) { return pass.New(secret, at(noon.Add(time.Hour))).Check(text, box, 8080) },
		"no secret":  func() (pass.Claims, bool) { return pass.New(nil, at(noon)).Check(text, box, 8080) },
		"half of it": func() (pass.Claims, bool) { return s.Check(text[:len(text)/2], box, 8080) },
		"more of it": func() (pass.Claims, bool) { return s.Check(text+"AAAA", box, 8080) },
		"no prefix":  func() (pass.Claims, bool) { return s.Check(text[len(pass.Prefix):], box, 8080) },
	} {
		if _, ok := check(); ok {
			t.Errorf("with %s it passes", what)
		}
	}
	if _, err := pass.New(secret[:31], at(noon)).Sign(want); sandbox.KindOf(err) != sandbox.Unsupported {
		t.Errorf("a short secret: %v", err)
	}
}

// FuzzCheck changes a pass in any way: none but itself passes.
func FuzzCheck(f *testing.F) {
	s := pass.New(secret, at(noon))
	text, _ := sign(f, s)
	f.Add(text[:20], 30, byte(1)) // not the whole: each worker signs another
	f.Add("bpt_", 3, byte(0))
	f.Fuzz(func(t *testing.T, in string, place int, flip byte) {
		b := []byte(text)
		if place >= 0 && place < len(b) {
			b[place] ^= flip
		}
		for _, try := range []string{in, string(b)} {
			if _, ok := s.Check(try, box, 8080); ok && try != text {
				t.Errorf("%q passes", try)
			}
		}
	})
}
