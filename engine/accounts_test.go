package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// verbs are those that are given an id or a name.
func verbs(h *house, ctx context.Context) map[string]func(id string) error {
	box := func(f func(context.Context, string) (sandbox.Sandbox, error)) func(string) error {
		return func(id string) error { _, err := f(ctx, id); return err }
	}
	return map[string]func(id string) error{
		"get": box(h.Get), "pause": box(h.Pause), "resume": box(h.Resume), "stop": box(h.Stop), "start": box(h.Start), "awake": box(h.Awake),
		"remove":     func(id string) error { return h.Remove(ctx, id) },
		"update":     func(id string) error { _, err := h.Update(ctx, id, sandbox.Update{}); return err },
		"keep alive": func(id string) error { _, err := h.KeepAlive(ctx, id, 0); return err },
		"usage":      func(id string) error { _, err := h.Usage(ctx, id); return err },
		"connect":    func(id string) error { _, err := h.Connect(ctx, id); return err },
		"stat":       func(id string) error { _, err := h.Stat(ctx, id, "/", true); return err },
		"make dir":   func(id string) error { _, err := h.MakeDir(ctx, id, "/x", 0, "", true); return err },
		"exec":       func(id string) error { _, err := h.Exec(ctx, id, sandbox.Command{Shell: "true"}); return err },
		"processes":  func(id string) error { _, err := h.Processes(ctx, id); return err },
		"terminals":  func(id string) error { _, err := h.Terminals(ctx, id); return err },
	}
}

func TestAnothersSandboxIsNotThere(t *testing.T) {
	h := newHouse(t)
	s, err := h.Create(member(t, "a"), sandbox.CreateRequest{Name: "mine"})
	if err != nil || s.Account != "a" {
		t.Fatalf("%+v, %v", s, err)
	}
	unknown := string(sandbox.NewID())
	for name, verb := range verbs(h, member(t, "b")) {
		want := verb(unknown)
		wantKind(t, want, sandbox.NotFound)
		got := verb(string(s.ID))
		if got == nil || strings.ReplaceAll(got.Error(), string(s.ID), unknown) != want.Error() || sandbox.HintOf(got) != sandbox.HintOf(want) {
			t.Errorf("%s: %v, of an unknown one %v", name, got, want)
		}
		wantKind(t, verb("mine"), sandbox.NotFound)
	}
	for name, verb := range verbs(h, t.Context()) { // nobody
		if err := verb(string(s.ID)); sandbox.KindOf(err) != sandbox.Unauthorized {
			t.Errorf("%s without a caller: %v", name, err)
		}
	}
	for _, c := range []context.Context{member(t, "a"), operator(t)} {
		if got, err := h.Get(c, string(s.ID)); err != nil || got.State != sandbox.Running {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if got, err := h.Get(member(t, "a"), "mine"); err != nil || got.ID != s.ID {
		t.Errorf("by name: %+v, %v", got, err)
	}
}

func TestListsAndEventsAreAnAccounts(t *testing.T) {
	h := newHouse(t)
	for _, account := range []string{"a", "b", "a", "ab"} { // "ab" begins as "a" does
		if _, err := h.Create(member(t, account), sandbox.CreateRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		ctx  context.Context
		want int
	}{{member(t, "a"), 2}, {member(t, "b"), 1}, {member(t, "ab"), 1}, {member(t, "c"), 0}, {operator(t), 4}} {
		seen := 0
		for q := (sandbox.ListQuery{Limit: 1}); ; {
			page, err := h.List(c.ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			seen += len(page.Sandboxes)
			if q.After = page.Next; q.After == "" {
				break
			}
		}
		events, err := h.Changes(c.ctx, sandbox.ChangeQuery{Types: []sandbox.ChangeType{"running"}})
		if err != nil || seen != c.want || len(events.Events) != c.want {
			t.Errorf("%d sandboxes and %d events, want %d: %v", seen, len(events.Events), c.want, err)
		}
		if st, err := h.Status(c.ctx); err != nil || st.Sandboxes[sandbox.Running] != c.want {
			t.Errorf("status %+v, want %d: %v", st, c.want, err)
		}
	}
	if page, err := h.List(t.Context(), sandbox.ListQuery{}); sandbox.KindOf(err) != sandbox.Unauthorized || len(page.Sandboxes) > 0 {
		t.Errorf("nobody lists %+v, %v", page, err)
	}
}

func TestNamesAndWebhooksAreAnAccounts(t *testing.T) {
	h := newHouse(t)
	ids := map[sandbox.ID]bool{}
	for _, account := range []string{"a", "b", "a"} {
		s, err := h.Create(member(t, account), sandbox.CreateRequest{Name: "n", Get: true})
		if err != nil {
			t.Fatal(err)
		}
		ids[s.ID] = true
	}
	if len(ids) != 2 {
		t.Errorf("two accounts have %d sandboxes of a name", len(ids))
	}
	w, err := h.CreateWebhook(member(t, "a"), sandbox.WebhookRequest{URL: "http://127.0.0.1:9/"})
	if err != nil || w.Account != "a" {
		t.Fatalf("%+v, %v", w, err)
	}
	_, err = h.Webhook(member(t, "b"), w.ID)
	wantKind(t, err, sandbox.NotFound)
	wantKind(t, h.RemoveWebhook(member(t, "b"), w.ID), sandbox.NotFound)
	if all, err := h.Webhooks(member(t, "b")); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := h.RemoveWebhook(member(t, "a"), w.ID); err != nil {
		t.Error(err)
	}
}

// TestRecordsFromBeforeAccounts takes the accounts out of a store, as it was
// written before there were any, and starts an engine on it.
func TestRecordsFromBeforeAccounts(t *testing.T) {
	h := newHouse(t)
	s := h.create(t, sandbox.CreateRequest{Name: "old"})
	w, err := h.CreateWebhook(operator(t), sandbox.WebhookRequest{URL: "http://127.0.0.1:9/"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	disown(t, h.records, map[string]string{
		"sandbox/" + string(s.ID): "sandbox/" + string(s.ID), "webhook/main/" + w.ID: "webhook/" + w.ID,
		"name/main/old": "name/old", "own/main/" + string(s.ID): "",
	})
	h.open(t)
	for _, given := range []string{string(s.ID), "old"} {
		if got, err := h.Get(member(t, sandbox.MainAccount), given); err != nil || got.ID != s.ID || got.Account != sandbox.MainAccount {
			t.Errorf("%s: %+v, %v", given, got, err)
		}
	}
	if page, err := h.List(member(t, sandbox.MainAccount), sandbox.ListQuery{}); err != nil || len(page.Sandboxes) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	if err := h.RemoveWebhook(operator(t), w.ID); err != nil {
		t.Error(err)
	}
	if err := h.Remove(operator(t), "old"); err != nil {
		t.Fatal(err)
	}
	h.nothingLeft(t)
}

// disown moves entries to the keys that they had, without their account; "" removes.
func disown(t *testing.T, store record.Store, keys map[string]string) {
	t.Helper()
	for key, old := range keys {
		entry, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(key, err)
		}
		txn := record.Txn{Then: []record.Op{{Key: key, Delete: true}}}
		var fields map[string]any
		if json.Unmarshal(entry.Value, &fields) == nil {
			delete(fields, "account")
			if entry.Value, err = json.Marshal(fields); err != nil {
				t.Fatal(err)
			}
		}
		if old == key {
			txn.Then = nil
		}
		if old != "" {
			txn.Then = append(txn.Then, record.Op{Key: old, Value: entry.Value})
		}
		if _, err := store.Commit(t.Context(), txn); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWebhooksAreBounded(t *testing.T) {
	h := newHouse(t)
	errs := make([]error, 100)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = h.CreateWebhook(member(t, "a"), sandbox.WebhookRequest{URL: "http://127.0.0.1:9/"})
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			wantKind(t, err, sandbox.Exhausted)
		}
	}
	if all, err := h.Webhooks(member(t, "a")); err != nil || len(all) != 64 {
		t.Errorf("%d webhooks, %v", len(all), err)
	}
	if _, err := h.CreateWebhook(member(t, "b"), sandbox.WebhookRequest{URL: "http://127.0.0.1:9/"}); err != nil {
		t.Errorf("another account: %v", err)
	}
}
