package account_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/account"
	"github.com/berth-dev/berth/sandbox"
)

func (w *town) enter(t *testing.T, key string) (sandbox.Caller, error) {
	t.Helper()
	ctx, leave, err := w.Enter(t.Context(), key)
	if err != nil {
		return sandbox.Caller{}, err
	}
	defer leave()
	return sandbox.CallerOf(ctx)
}

func TestAKeyIsCalledOtherwise(t *testing.T) {
	w := newTown(t, account.Terms{})
	main := w.as(t, "main")
	k, err := w.CreateKey(main, sandbox.KeyRequest{Label: "ci", Scopes: []sandbox.Scope{"read"}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(k.Secret, k.Ending) || len(k.Ending) != 4 {
		t.Errorf("%q ends in %q", k.Secret, k.Ending)
	}
	for _, label := range []string{"the builder's", ""} {
		got, err := w.UpdateKey(main, k.ID, sandbox.KeyUpdate{Label: label})
		if err != nil || got.Label != label || got.ID != k.ID || got.Ending != k.Ending || len(got.Scopes) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if all, err := w.Keys(main); err != nil || len(all) != 1 || all[0].Label != label {
			t.Errorf("%+v, %v", all, err)
		}
	}
	if c, err := w.enter(t, k.Secret); err != nil || c.May("exec") {
		t.Errorf("%+v, %v", c, err)
	}
	_, err = w.UpdateKey(main, k.ID, sandbox.KeyUpdate{Label: "two\nlines"})
	wantKind(t, err, sandbox.Invalid)
	if _, err := w.CreateAccount(operator(t), sandbox.AccountRequest{ID: "other"}); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		func() error {
			_, err := w.UpdateKey(w.as(t, "other"), k.ID, sandbox.KeyUpdate{Label: "mine"})
			return err
		}(),
		func() error { _, err := w.UpdateKey(main, "key-aaaaaaaaaaaa", sandbox.KeyUpdate{}); return err }(),
		func() error { _, err := w.UpdateKey(main, "../x", sandbox.KeyUpdate{}); return err }(),
	} {
		wantKind(t, err, sandbox.NotFound)
	}
	if err := w.RemoveKey(main, k.ID); err != nil {
		t.Fatal(err)
	}
	_, err = w.UpdateKey(main, k.ID, sandbox.KeyUpdate{Label: "gone"})
	wantKind(t, err, sandbox.NotFound)
}

func TestKeys(t *testing.T) {
	w := newTown(t, account.Terms{})
	main := w.as(t, "main")
	k, err := w.CreateKey(main, sandbox.KeyRequest{Label: "ci", Scopes: []sandbox.Scope{"exec"}, ExpiresSeconds: 60})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sandbox.ParseKey(k.Secret); err != nil {
		t.Fatal(err)
	}
	c, err := w.enter(t, k.Secret)
	if err != nil || c.Account != "main" || c.Key != k.ID || c.Operator || !c.May("read") || !c.May("exec") || c.May("admin") {
		t.Errorf("%+v, %v", c, err)
	}
	entries, err := w.records.List(t.Context(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	digits := strings.TrimPrefix(k.Secret, "berth_")
	for _, e := range entries {
		if strings.Contains(e.Key+string(e.Value), digits) {
			t.Errorf("the store holds the secret: %s = %s", e.Key, e.Value)
		}
	}
	for name, bad := range map[string]string{"another": "berth_" + strings.Repeat("0", 40), "upper case": "berth_" + strings.ToUpper(digits),
		"no prefix": digits, "short": k.Secret[:45], "empty": "", "the hash": "berth_" + strings.TrimPrefix(entries[1].Key, "account-key/")[:40]} {
		_, err := w.enter(t, bad)
		if sandbox.KindOf(err) != sandbox.Unauthorized || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.clock.advance(time.Minute)
	_, err = w.enter(t, k.Secret)
	wantKind(t, err, sandbox.Unauthorized)
	if all, err := w.Keys(main); err != nil || len(all) != 1 || all[0].LastUsed.IsZero() || all[0].Label != "ci" {
		t.Errorf("%+v, %v", all, err)
	}
	for _, bad := range []sandbox.KeyRequest{{Label: strings.Repeat("x", 129)}, {Label: "a\nb"}, {Scopes: []sandbox.Scope{"root"}}, {ExpiresSeconds: -1}} {
		wantKind(t, second(w.CreateKey(main, bad)), sandbox.Invalid)
	}
}

func TestRemovedKeyCutsItsRequests(t *testing.T) {
	w := newTown(t, account.Terms{})
	main := w.as(t, "main")
	var keys []sandbox.NewKey
	var open []context.Context
	for range 2 {
		k, err := w.CreateKey(main, sandbox.KeyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave, err := w.Enter(t.Context(), k.Secret)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		keys, open = append(keys, k), append(open, ctx)
	}
	if err := w.RemoveKey(main, keys[0].ID); err != nil {
		t.Fatal(err)
	}
	if cause := context.Cause(open[0]); sandbox.KindOf(cause) != sandbox.Unauthorized {
		t.Errorf("the stream of the key that was removed: %v", cause)
	}
	if open[1].Err() != nil || main.Err() != nil {
		t.Error("others were cut too")
	}
	_, err := w.enter(t, keys[0].Secret)
	wantKind(t, err, sandbox.Unauthorized)
	wantKind(t, w.RemoveKey(main, keys[0].ID), sandbox.NotFound)
	wantKind(t, w.RemoveKey(main, "key-x/../y"), sandbox.NotFound)
	if _, err := w.CreateAccount(operator(t), sandbox.AccountRequest{ID: "b"}); err != nil {
		t.Fatal(err)
	}
	wantKind(t, w.RemoveKey(w.as(t, "b"), keys[1].ID), sandbox.NotFound)
	if all, err := w.Keys(w.as(t, "b")); err != nil || len(all) != 0 {
		t.Errorf("another's keys: %+v, %v", all, err)
	}
}

// TestRemovalIsSeenByWhoEnters removes a key while others enter with it: nobody
// is inside with a living context after the removal has returned.
func TestRemovalIsSeenByWhoEnters(t *testing.T) {
	w := newTown(t, account.Terms{})
	main := w.as(t, "main")
	for range 20 {
		k, err := w.CreateKey(main, sandbox.KeyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		in := make(chan context.Context, 8)
		for range cap(in) {
			wg.Go(func() {
				ctx, leave, err := w.Enter(t.Context(), k.Secret)
				if err == nil {
					t.Cleanup(leave)
					in <- ctx
				}
			})
		}
		if err := w.RemoveKey(main, k.ID); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		close(in)
		for ctx := range in {
			if ctx.Err() == nil {
				t.Fatal("somebody is inside with a key that is gone")
			}
		}
	}
}

func TestKeysAreBounded(t *testing.T) {
	w := newTown(t, account.Terms{})
	main := w.as(t, "main")
	errs := make([]error, 120)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = w.CreateKey(main, sandbox.KeyRequest{}) })
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else {
			wantKind(t, err, sandbox.Exhausted)
		}
	}
	if all, err := w.Keys(main); err != nil || made != 100 || len(all) != 100 {
		t.Errorf("%d were made, %d are there: %v", made, len(all), err)
	}
}

func TestUseIsKeptOverRestarts(t *testing.T) {
	w := newTown(t, account.Terms{})
	k, err := w.CreateKey(w.as(t, "main"), sandbox.KeyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.enter(t, k.Secret); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.open(t, w.records, account.Terms{})
	all, err := w.Keys(w.as(t, "main"))
	if err != nil || len(all) != 1 || !all[0].LastUsed.Equal(w.clock.now()) {
		t.Errorf("%+v, %v", all, err)
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("berth_" + strings.Repeat("a1", 20))
	f.Add("e2b_" + strings.Repeat("a1", 20))
	f.Add("berth_" + strings.Repeat("A1", 20))
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		digits, err := sandbox.ParseKey(s)
		if err != nil {
			if digits != "" || sandbox.KindOf(err) != sandbox.Unauthorized || len(s) > 8 && strings.Contains(err.Error(), s) {
				t.Errorf("%q: %q, %v", s, digits, err)
			}
			return
		}
		if len(digits) != 40 || strings.Trim(digits, "0123456789abcdef") != "" || s != "berth_"+digits {
			t.Errorf("%q is read as %q", s, digits)
		}
	})
}
