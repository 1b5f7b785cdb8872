package account_test

import (
	"crypto/sha256"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/account"
	"github.com/berth-dev/berth/sandbox"
)

func TestTemporaryIsOffUnlessConfigured(t *testing.T) {
	w := newTown(t, account.Terms{})
	_, _, err := w.MakeTemporary(t.Context(), home, sandbox.TemporaryRequest{})
	wantKind(t, err, sandbox.Unsupported)
	wantKind(t, second(w.Challenge(t.Context(), home)), sandbox.Unsupported)
}

func TestClaimKeepsAll(t *testing.T) {
	w := newTown(t, temporary)
	a, claim := w.temporary(t)
	if a.Account.State != sandbox.AccountTemporary || a.Account.Expires.Sub(w.clock.now()) != time.Hour || a.Account.Quota.Sandboxes != 1 {
		t.Errorf("%+v", a.Account)
	}
	if got, err := w.Claimable(t.Context(), claim); err != nil || got.ID != a.Account.ID {
		t.Errorf("%+v, %v", got, err)
	}
	k, err := w.Claim(t.Context(), claim)
	if err != nil || k.Account != a.Account.ID {
		t.Fatalf("%+v, %v", k, err)
	}
	w.clock.advance(2 * time.Hour)
	if err := w.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]string{"the person's": k.Secret, "the agent's": a.Key.Secret} {
		if c, err := w.enter(t, key); err != nil || c.Account != a.Account.ID {
			t.Errorf("%s key: %+v, %v", name, c, err)
		}
	}
	if got, err := w.Account(operator(t), a.Account.ID); err != nil || got.State != sandbox.AccountActive || !got.Expires.IsZero() || got.Quota.Sandboxes != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	wantKind(t, second(w.Claim(t.Context(), claim)), sandbox.NotFound) // once
	wantKind(t, second(w.Claimable(t.Context(), claim)), sandbox.NotFound)
	if len(w.estate.list()) > 0 {
		t.Errorf("cleared: %q", w.estate.list())
	}
}

func TestUnclaimedIsRemoved(t *testing.T) {
	w := newTown(t, temporary)
	a, claim := w.temporary(t)
	w.clock.advance(59 * time.Minute)
	if err := w.Sweep(t.Context()); err != nil || len(w.estate.list()) > 0 {
		t.Fatal(err, w.estate.list())
	}
	w.clock.advance(time.Minute)
	_, err := w.enter(t, a.Key.Secret) // before anything is swept
	wantKind(t, err, sandbox.Unauthorized)
	wantKind(t, second(w.Claim(t.Context(), claim)), sandbox.NotFound)
	w.estate.fail = errors.New("out of reach")
	if err := w.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := w.Account(operator(t), a.Account.ID); err != nil || got.State != sandbox.AccountRemoving {
		t.Errorf("what cannot be cleared now: %+v, %v", got, err)
	}
	w.estate.fail = nil
	if err := w.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys := w.keys(t); len(keys) > 0 || !slices.Contains(w.estate.list(), a.Account.ID) {
		t.Errorf("left: %q; cleared: %q", keys, w.estate.list())
	}
}

// TestClaimAndEndHaveOneWinner claims while the removal begins.
func TestClaimAndEndHaveOneWinner(t *testing.T) {
	w := newTown(t, temporary)
	for i := range 60 {
		a, claim := w.temporary(t)
		var wg sync.WaitGroup
		var claimed, ended error
		start := make(chan struct{})
		wg.Go(func() { <-start; _, claimed = w.Claim(t.Context(), claim) })
		wg.Go(func() { <-start; ended = w.RemoveUnclaimed(t.Context(), a.Account.ID) })
		close(start)
		wg.Wait()
		if ended != nil {
			t.Fatal(ended)
		}
		gone := slices.Contains(w.estate.list(), a.Account.ID)
		if (claimed == nil) == gone {
			t.Fatalf("round %d: the claim says %v, cleared is %v", i, claimed, gone)
		}
		if claimed != nil {
			wantKind(t, claimed, sandbox.NotFound)
		} else if _, err := w.enter(t, a.Key.Secret); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRateByAddress(t *testing.T) {
	terms := account.Terms{Temporary: &account.Temporary{Hourly: 2, Most: 100}}
	w := newTown(t, terms)
	ask := func(from string) error {
		_, _, err := w.MakeTemporary(t.Context(), netip.MustParseAddr(from), sandbox.TemporaryRequest{})
		return err
	}
	for _, c := range []struct {
		from string
		want sandbox.Kind
	}{
		{"192.0.2.1", ""}, {"::ffff:192.0.2.1", ""}, {"192.0.2.1", sandbox.Exhausted}, {"192.0.2.2", ""},
		{"2001:db8::1", ""}, {"2001:db8::ffff:1", ""}, {"2001:db8::2", sandbox.Exhausted}, {"2001:db8:0:1::1", ""},
	} {
		if err := ask(c.from); sandbox.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %q", c.from, err, c.want)
		}
	}
	w.clock.advance(time.Hour)
	if err := ask("192.0.2.1"); err != nil {
		t.Error(err)
	}
	terms.Temporary = &account.Temporary{Hourly: 100, Most: 6}
	w.SetTerms(terms)
	if err := ask("192.0.2.9"); sandbox.KindOf(err) != sandbox.Exhausted || !strings.Contains(err.Error(), "at most 6") {
		t.Error(err)
	}
}

func TestWork(t *testing.T) {
	terms := account.Terms{Temporary: &account.Temporary{Hourly: 1000, Most: 100, WorkBits: 8}}
	w := newTown(t, terms)
	solve := func(from netip.Addr) sandbox.TemporaryRequest {
		c, err := w.Challenge(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Solve(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return sandbox.TemporaryRequest{Challenge: c.Challenge, Solution: s}
	}
	ask := func(from netip.Addr, r sandbox.TemporaryRequest) error {
		_, _, err := w.MakeTemporary(t.Context(), from, r)
		return err
	}
	good := solve(home)
	if err := ask(home, good); err != nil {
		t.Fatal(err)
	}
	late, stranger, easy, wrong := solve(home), solve(netip.MustParseAddr("198.51.100.1")), solve(home), solve(home)
	for wrong.Solution = "0"; sandbox.LeadingZeros(sumOf(wrong)) >= 8; wrong.Solution += "0" {
	}
	forged := solve(home)
	other := "A"
	if forged.Challenge[0] == 'A' {
		other = "B"
	}
	forged.Challenge = other + forged.Challenge[1:]
	for name, r := range map[string]sandbox.TemporaryRequest{"again": good, "none": {}, "another's": stranger, "no work": wrong,
		"forged": forged, "garbage": {Challenge: "!"}, "long": {Challenge: late.Challenge, Solution: strings.Repeat("0", 65)}} {
		if err := ask(home, r); sandbox.KindOf(err) != sandbox.Forbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
	terms.Temporary = &account.Temporary{Hourly: 1000, Most: 100, WorkBits: 9}
	w.SetTerms(terms)
	if err := ask(home, easy); sandbox.KindOf(err) != sandbox.Forbidden {
		t.Errorf("less work than is asked for by now: %v", err)
	}
	terms.Temporary = &account.Temporary{Hourly: 1000, Most: 100, WorkBits: 8}
	w.SetTerms(terms)
	w.clock.advance(10 * time.Minute)
	if err := ask(home, late); sandbox.KindOf(err) != sandbox.Forbidden {
		t.Errorf("late: %v", err)
	}
	w.open(t, w.records, terms) // another process: its challenges are others
	if err := ask(home, solve(home)); err != nil {
		t.Error(err)
	}
}

// TestSolutionServesOnce shows one solution to many at once.
func TestSolutionServesOnce(t *testing.T) {
	w := newTown(t, account.Terms{Temporary: &account.Temporary{Hourly: 1000, Most: 100, WorkBits: 4}})
	c, err := w.Challenge(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Solve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 20)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			_, _, errs[i] = w.MakeTemporary(t.Context(), home, sandbox.TemporaryRequest{Challenge: c.Challenge, Solution: s})
		})
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		}
	}
	if made != 1 {
		t.Errorf("it served %d times", made)
	}
}

func sumOf(r sandbox.TemporaryRequest) [sha256.Size]byte {
	return sha256.Sum256([]byte(r.Challenge + ":" + r.Solution))
}
