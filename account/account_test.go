package account_test

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/account"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/record/bolt"
	"github.com/berth-dev/berth/sandbox"
)

// estate remembers what was cleared, and fails on demand.
type estate struct {
	mu      sync.Mutex
	cleared []string
	fail    error
}

func (e *estate) Clear(_ context.Context, account string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail != nil {
		return e.fail
	}
	e.cleared = append(e.cleared, account)
	return nil
}

func (e *estate) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string{}, e.cleared...)
}

// clock is a time that a test sets.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// town is a book with its parts.
type town struct {
	*account.Book
	records record.Store
	estate  *estate
	clock   *clock
}

func newTown(t testing.TB, terms account.Terms) *town {
	t.Helper()
	store, err := bolt.Open(t.TempDir() + "/records")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	w := &town{records: store, estate: &estate{}, clock: &clock{at: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}}
	w.open(t, store, terms)
	return w
}

// open starts a book on the town's parts, as a restart does.
func (w *town) open(t testing.TB, store record.Store, terms account.Terms) {
	t.Helper()
	w.Book = account.New(account.Config{Records: store, Clock: w.clock.now, Terms: terms})
	if err := w.Open(t.Context(), w.estate); err != nil {
		t.Fatal(err)
	}
	book := w.Book
	t.Cleanup(func() { book.Close() })
}

var temporary = account.Terms{Quota: sandbox.Quota{Sandboxes: 7},
	Temporary: &account.Temporary{Quota: sandbox.Quota{Sandboxes: 1}, Hourly: 1000, Most: 1000}}

var home = netip.MustParseAddr("192.0.2.1")

func operator(t *testing.T) context.Context {
	return sandbox.WithCaller(t.Context(), sandbox.Operator())
}

func (w *town) as(t *testing.T, account string) context.Context {
	t.Helper()
	ctx, leave, err := w.EnterAs(t.Context(), account)
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(ctx, leave) // as a request leaves that is cut
	return ctx
}

func (w *town) temporary(t *testing.T) (sandbox.TemporaryAccount, string) {
	t.Helper()
	a, claim, err := w.MakeTemporary(t.Context(), home, sandbox.TemporaryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return a, claim
}

// keys are the entries of the store, but for the main account's.
func (w *town) keys(t *testing.T) (keys []string) {
	t.Helper()
	entries, err := w.records.List(t.Context(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Key != "account/main" {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

func wantKind(t *testing.T, err error, kind sandbox.Kind) {
	t.Helper()
	if sandbox.KindOf(err) != kind {
		t.Fatalf("error of kind %q, want %q: %v", sandbox.KindOf(err), kind, err)
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 3000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never came true: %s", what)
}

func TestAccounts(t *testing.T) {
	w := newTown(t, account.Terms{Quota: sandbox.Quota{Sandboxes: 5, CPUMilli: 9}})
	two := int64(2)
	a, err := w.CreateAccount(operator(t), sandbox.AccountRequest{ID: "a", Quota: sandbox.QuotaUpdate{Sandboxes: &two}})
	if err != nil || a.Quota != (sandbox.Quota{Sandboxes: 2, CPUMilli: 9}) {
		t.Fatalf("%+v, %v", a, err)
	}
	_, err = w.CreateAccount(operator(t), sandbox.AccountRequest{ID: "a"})
	wantKind(t, err, sandbox.Conflict)
	for _, id := range []string{"", "A", "a/b", "-a", "a_b", "1a"} {
		_, err := w.CreateAccount(operator(t), sandbox.AccountRequest{ID: id})
		wantKind(t, err, sandbox.Invalid)
	}
	if q, err := w.Quota(t.Context(), "a"); err != nil || q != a.Quota {
		t.Errorf("%+v, %v", q, err)
	}
	zero := int64(0)
	if got, err := w.SetQuota(operator(t), "a", sandbox.QuotaUpdate{CPUMilli: &zero}); err != nil || got.Quota != (sandbox.Quota{Sandboxes: 2}) {
		t.Errorf("%+v, %v", got, err)
	}
	less := int64(-1)
	_, err = w.SetQuota(operator(t), "a", sandbox.QuotaUpdate{CPUMilli: &less})
	wantKind(t, err, sandbox.Invalid)
	if got, err := w.Account(w.as(t, "a"), ""); err != nil || got.ID != "a" {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = w.Account(w.as(t, "a"), "main")
	wantKind(t, err, sandbox.NotFound)
	for name, err := range map[string]error{
		"list":   second(w.Accounts(w.as(t, "a"))),
		"create": second(w.CreateAccount(w.as(t, "a"), sandbox.AccountRequest{ID: "b"})),
		"quota":  second(w.SetQuota(w.as(t, "a"), "a", sandbox.QuotaUpdate{})),
		"remove": w.RemoveAccount(w.as(t, "a"), "a"),
	} {
		if sandbox.KindOf(err) != sandbox.Forbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantKind(t, second(w.Keys(t.Context())), sandbox.Unauthorized)
	wantKind(t, w.RemoveAccount(operator(t), "main"), sandbox.Invalid)
}

func second[T any](_ T, err error) error { return err }

func TestRemovedAccountIsNeverUsedAgain(t *testing.T) {
	w := newTown(t, account.Terms{})
	if _, err := w.CreateAccount(operator(t), sandbox.AccountRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	k, err := w.CreateKey(w.as(t, "a"), sandbox.KeyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave, err := w.Enter(t.Context(), k.Secret)
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(ctx, func() { // it sees its end, and only then what it has is cleared
		if len(w.estate.list()) > 0 {
			t.Error("cleared while a request was under way")
		}
		leave()
	})
	if err := w.RemoveAccount(operator(t), "a"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, context.Cause(ctx), sandbox.Unauthorized)
	wantKind(t, second(second3(w.Enter(t.Context(), k.Secret))), sandbox.Unauthorized)
	wantKind(t, second(w.Quota(t.Context(), "a")), sandbox.NotFound)
	wantKind(t, second(w.CreateAccount(operator(t), sandbox.AccountRequest{ID: "a"})), sandbox.Conflict)
	wantKind(t, w.RemoveAccount(operator(t), "a"), sandbox.NotFound)
	if all, err := w.Accounts(operator(t)); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if keys := w.keys(t); !slices.Equal(keys, []string{"account/a"}) {
		t.Errorf("left: %q", keys)
	}
}

func second3[T, U any](v T, _ U, err error) (T, error) { return v, err }
