package engine_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/netgw/intercept"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/secret"
)

// passing is a gateway that enforces nothing.
type passing struct{}

func (passing) Check(context.Context, *sandbox.Sandbox) error { return nil }
func (passing) Apply(context.Context, *sandbox.Sandbox) error { return nil }
func (passing) Forget(sandbox.ID)                             {}

// newKeepingHouse is a house that keeps secrets, "k" of the main account among
// them.
func newKeepingHouse(t *testing.T) (*house, *intercept.Proxy) {
	t.Helper()
	h := newHouse(t)
	sealer, err := secret.NewSealer(bytes.Repeat([]byte{3}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	vault := secret.NewVault(h.records, sealer, nil)
	proxy, err := intercept.New(intercept.Config{Secrets: vault, Grants: secret.NewGrants(h.records), Values: secret.NewValues(h.records, sealer), Records: h.records, Sealer: sealer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	h.Close()
	h.open(t, func(c *engine.Config) { c.Gateway, c.Credentials, c.Vault = passing{}, proxy, vault })
	if _, err := h.SetSecret(operator(t), "k", sandbox.SecretValue("value")); err != nil {
		t.Fatal(err)
	}
	return h, proxy
}

func injecting(secret string) *sandbox.Policy {
	return &sandbox.Policy{Profile: sandbox.ProfileOpen, Inject: []sandbox.Inject{{Host: "api.example.com", Secret: secret,
		Header: map[string]string{"Authorization": "Bearer ${secret}"}}}}
}

func (h *house) grantsOf(t *testing.T, id sandbox.ID) []sandbox.Grant {
	t.Helper()
	all, err := h.Grants(operator(t), string(id))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAPolicyNeedsItsSecrets(t *testing.T) {
	h, _ := newKeepingHouse(t)
	_, err := h.Create(operator(t), sandbox.CreateRequest{Policy: injecting("none")})
	wantKind(t, err, sandbox.NotFound)
	if sandbox.HintOf(err) == "" {
		t.Errorf("no hint: %v", err)
	}
	s := h.create(t, sandbox.CreateRequest{})
	_, err = h.SetPolicy(operator(t), string(s.ID), *injecting("none"))
	wantKind(t, err, sandbox.NotFound)
	if g := h.grantsOf(t, s.ID); len(g) != 0 {
		t.Errorf("a policy that was refused has granted %+v", g)
	}
	wantKind(t, h.RevokeGrant(operator(t), string(s.ID), "k"), sandbox.NotFound)
	wantKind(t, h.RevokeGrant(operator(t), string(sandbox.NewID()), "k"), sandbox.NotFound)
}

func TestARemovedSandboxLeavesNoGrant(t *testing.T) {
	h, proxy := newKeepingHouse(t)
	s := h.create(t, sandbox.CreateRequest{Policy: injecting("k")})
	if g := h.grantsOf(t, s.ID); len(g) != 1 || g[0].Secret != "k" || g[0].Revoked {
		t.Fatalf("%+v", g)
	}
	if _, err := proxy.Certificate(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(operator(t), string(s.ID)); err != nil {
		t.Fatal(err)
	}
	if err := h.RemoveSecret(operator(t), "k"); err != nil {
		t.Fatal(err)
	}
	h.nothingLeft(t)
}

// createFailing creates a sandbox while the nth commit from now on fails.
func (h *house) createFailing(t *testing.T, n int, p *sandbox.Policy) (sandbox.Sandbox, error) {
	h.records.mu.Lock()
	begin := h.records.count
	h.records.before = func(at int, _ record.Txn) error {
		if at == begin+n {
			return sandbox.Errorf("commit", sandbox.Unavailable, "%w", errors.New("out of reach"))
		}
		return nil
	}
	h.records.mu.Unlock()
	defer func() {
		h.records.mu.Lock()
		h.records.before = nil
		h.records.mu.Unlock()
	}()
	return h.Create(operator(t), sandbox.CreateRequest{Policy: p})
}

// TestACreateThatFailsLeavesNoGrant fails at each commit of a create.
func TestACreateThatFailsLeavesNoGrant(t *testing.T) {
	h, _ := newKeepingHouse(t)
	for n := 1; n < 20; n++ {
		s, err := h.createFailing(t, n, injecting("k"))
		if err == nil {
			if err := h.Remove(operator(t), string(s.ID)); err != nil {
				t.Fatal(err)
			}
			if n < 3 {
				t.Errorf("only %d commits can fail", n-1)
			}
			break
		}
		entries, err := h.records.List(t.Context(), "grant/", "", 0)
		if err != nil || len(entries) > 0 {
			t.Fatalf("after the commit %d has failed: %d grants, %v", n, len(entries), err)
		}
	}
}

func TestForksHaveGrantsOfTheirOwn(t *testing.T) {
	h, _ := newKeepingHouse(t)
	parent := h.create(t, sandbox.CreateRequest{Policy: injecting("k")})
	f, err := h.Fork(operator(t), string(parent.ID), forkOf(2))
	if err != nil {
		t.Fatal(err)
	}
	first, second := f.Children[0].Sandbox.ID, f.Children[1].Sandbox.ID
	if err := h.RevokeGrant(operator(t), string(first), "k"); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for id, revoked := range map[sandbox.ID]bool{parent.ID: false, first: true, second: false} {
		g := h.grantsOf(t, id)
		if len(g) != 1 || g[0].Revoked != revoked {
			t.Errorf("%s has %+v", id, g)
			continue
		}
		ids[g[0].ID] = true
	}
	if len(ids) != 3 {
		t.Errorf("grants are shared: %v", ids)
	}
	// A fork of one that lost it does not get it back, and neither does one
	// whose policy is set again.
	f, err = h.Fork(operator(t), string(first), forkOf(1))
	if err != nil {
		t.Fatal(err)
	}
	child := f.Children[0].Sandbox.ID
	if _, err := h.SetPolicy(operator(t), string(child), *injecting("k")); err != nil && !strings.Contains(err.Error(), "guest") {
		t.Fatal(err)
	}
	if g := h.grantsOf(t, child); len(g) != 1 || !g[0].Revoked {
		t.Errorf("%+v", g)
	}
	if err := h.RestoreGrant(operator(t), string(child), "k"); err != nil {
		t.Fatal(err)
	}
	if g := h.grantsOf(t, child); g[0].Revoked {
		t.Errorf("%+v", g)
	}
}

func TestSecretsAreTheAccountsOwn(t *testing.T) {
	h, _ := newKeepingHouse(t)
	other := sandbox.WithCaller(t.Context(), sandbox.Caller{Account: "other", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
	_, err := h.Secret(other, "k")
	wantKind(t, err, sandbox.NotFound)
	wantKind(t, h.RemoveSecret(other, "k"), sandbox.NotFound)
	if all, err := h.Secrets(other); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	_, err = h.Create(other, sandbox.CreateRequest{Policy: injecting("k")})
	wantKind(t, err, sandbox.NotFound)
	_, err = h.Secrets(t.Context())
	wantKind(t, err, sandbox.Unauthorized)
	value := sandbox.SecretValue("to be wiped")
	if _, err := h.SetSecret(other, "k", value); err != nil || !bytes.Equal(value, make([]byte, len(value))) {
		t.Errorf("%q, %v", []byte(value), err)
	}
}
