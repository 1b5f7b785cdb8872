package account_test

import (
	"testing"

	"github.com/berth-dev/berth/account"
	"github.com/berth-dev/berth/sandbox"
)

// FuzzChallenge shows challenges that nobody gave out, or that were changed: none
// makes an account.
func FuzzChallenge(f *testing.F) {
	f.Add("", "")
	f.Add("AAAA", "0")
	f.Add("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "0")
	f.Fuzz(func(t *testing.T, challenge, solution string) {
		b := account.New(account.Config{})
		err := b.Spend(sandbox.TemporaryRequest{Challenge: challenge, Solution: solution}, home, 1)
		if sandbox.KindOf(err) != sandbox.Forbidden {
			t.Errorf("%q with %q: %v", challenge, solution, err)
		}
	})
}

func BenchmarkEnter(b *testing.B) {
	w := newTown(b, account.Terms{})
	k, err := w.CreateKey(sandbox.WithCaller(b.Context(), sandbox.Operator()), sandbox.KeyRequest{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_, leave, err := w.Enter(b.Context(), k.Secret)
		if err != nil {
			b.Fatal(err)
		}
		leave()
	}
}
