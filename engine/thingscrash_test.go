package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/netgw/intercept"
	"github.com/berth-dev/berth/pass"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/secret"
)

// mortalVolumes is a shelf as one process sees it.
type mortalVolumes struct {
	*shelf
	fate *fate
}

func (m mortalVolumes) Make(ctx context.Context, id sandbox.ID, size int64) error {
	return m.fate.pass("make volume", func() error { return m.shelf.Make(ctx, id, size) })
}

func (m mortalVolumes) Remove(ctx context.Context, id sandbox.ID) error {
	return m.fate.pass("remove volume", func() error { return m.shelf.Remove(ctx, id) })
}

// thing is what a verb makes beside a sandbox, or says of it, and another takes away.
type thing struct {
	name  string
	make  func(ctx context.Context, e *engine.Engine) error
	there func(ctx context.Context, e *engine.Engine) (bool, error)
	undo  func(ctx context.Context, e *engine.Engine) error
}

func things() []thing {
	found := func(err error) (bool, error) {
		if sandbox.KindOf(err) == sandbox.NotFound {
			return false, nil
		}
		return err == nil, err
	}
	share := func(public bool) func(context.Context, *engine.Engine) error {
		return func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Share(ctx, "box", 8080, sandbox.ShareRequest{Public: &public})
			return err
		}
	}
	return []thing{
		{"a volume", func(ctx context.Context, e *engine.Engine) error {
			_, err := e.CreateVolume(ctx, sandbox.VolumeRequest{Name: "data"})
			return err
		}, func(ctx context.Context, e *engine.Engine) (bool, error) {
			_, err := e.Volume(ctx, "data")
			return found(err)
		}, func(ctx context.Context, e *engine.Engine) error { return e.RemoveVolume(ctx, "data") }},

		{"a public port", share(true), func(ctx context.Context, e *engine.Engine) (bool, error) {
			s, err := e.Share(ctx, "box", 8080, sandbox.ShareRequest{})
			return s.Public, err
		}, share(false)},

		{"a domain", func(ctx context.Context, e *engine.Engine) error {
			_, err := e.AddDomain(ctx, sandbox.DomainRequest{Name: "shop.example.com", Sandbox: "box", Port: 8080})
			return err
		}, func(ctx context.Context, e *engine.Engine) (bool, error) {
			_, err := e.Domain(ctx, "shop.example.com")
			return found(err)
		}, func(ctx context.Context, e *engine.Engine) error { return e.RemoveDomain(ctx, "shop.example.com") }},

		{"a webhook", func(ctx context.Context, e *engine.Engine) error {
			_, err := e.CreateWebhook(ctx, sandbox.WebhookRequest{URL: "http://127.0.0.1:9/"})
			return err
		}, func(ctx context.Context, e *engine.Engine) (bool, error) {
			all, err := e.Webhooks(ctx)
			return len(all) > 0, err
		}, func(ctx context.Context, e *engine.Engine) error {
			all, err := e.Webhooks(ctx)
			for _, h := range all {
				if err := e.RemoveWebhook(ctx, h.ID); err != nil {
					return err
				}
			}
			return err
		}},

		{"a tag", tag("one"), func(ctx context.Context, e *engine.Engine) (bool, error) {
			s, err := e.Get(ctx, "box")
			return slices.Contains(s.Tags, "one"), err
		}, tag()},

		{"a secret", func(ctx context.Context, e *engine.Engine) error {
			_, err := e.SetSecret(ctx, "token", sandbox.SecretValue("a value that is kept"))
			return err
		}, func(ctx context.Context, e *engine.Engine) (bool, error) {
			_, err := e.Secret(ctx, "token")
			return found(err)
		}, func(ctx context.Context, e *engine.Engine) error { return e.RemoveSecret(ctx, "token") }},

		{"a policy", policy(sandbox.ProfileNone), func(ctx context.Context, e *engine.Engine) (bool, error) {
			p, err := e.Policy(ctx, "box")
			return p.Profile == sandbox.ProfileNone, err
		}, policy(sandbox.ProfileOpen)},

		{"a value of a policy", func(ctx context.Context, e *engine.Engine) error {
			return ignoreGuest(e.SetPolicy(ctx, "box", *setting("X-Key", textOf(ownValue))))
		}, func(ctx context.Context, e *engine.Engine) (bool, error) {
			p, err := e.Policy(ctx, "box")
			return p.HasValues(), err
		}, policy(sandbox.ProfileOpen)},

		{"a sandbox with a volume", func(ctx context.Context, e *engine.Engine) error {
			if _, err := e.CreateVolume(ctx, sandbox.VolumeRequest{Name: "shared"}); err != nil && sandbox.KindOf(err) != sandbox.Conflict {
				return err
			}
			_, err := e.Create(ctx, sandbox.CreateRequest{Name: "user", Volumes: []sandbox.VolumeMount{{Volume: "shared", Path: "/data"}}})
			return err
		}, func(ctx context.Context, e *engine.Engine) (bool, error) {
			_, err := e.Get(ctx, "user")
			return found(err)
		}, func(ctx context.Context, e *engine.Engine) error {
			if err := e.Remove(ctx, "user"); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
				return err
			}
			return e.RemoveVolume(ctx, "shared")
		}},
	}
}

// ignoreGuest leaves out that nothing in a machine here takes a certificate.
func ignoreGuest(_ []string, err error) error {
	if err != nil && strings.Contains(err.Error(), "guest") {
		return nil
	}
	return err
}

func policy(p sandbox.Profile) func(context.Context, *engine.Engine) error {
	return func(ctx context.Context, e *engine.Engine) error {
		_, err := e.SetPolicy(ctx, "box", sandbox.Policy{Profile: p})
		return err
	}
}

func tag(tags ...string) func(context.Context, *engine.Engine) error {
	return func(ctx context.Context, e *engine.Engine) error {
		_, err := e.Update(ctx, "box", sandbox.Update{Tags: &tags})
		return err
	}
}

// thingTown is a town with all that things need.
func thingTown(t *testing.T) (*town, *shelf) {
	x := newTown(t, sandbox.Running)
	if err := x.e.Close(); err != nil {
		t.Fatal(err)
	}
	sealer, err := secret.NewSealer(bytes.Repeat([]byte{3}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	s := &shelf{there: map[sandbox.ID]bool{}}
	x.more = func(c *engine.Config, f *fate) {
		c.Volumes, c.SignSecret = mortalVolumes{s, f}, []byte(strings.Repeat("s", pass.MinSecret))
		store := mortalStore{x.store, f}
		vault := secret.NewVault(store, sealer, nil)
		proxy, err := intercept.New(intercept.Config{Secrets: vault, Grants: secret.NewGrants(store), Values: secret.NewValues(store, sealer), Records: store, Sealer: sealer})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { proxy.Close() })
		c.Gateway, c.Vault, c.Credentials = passing{}, vault, proxy
	}
	if err := x.open(-1, ""); err != nil {
		t.Fatal(err)
	}
	return x, s
}

// kinds lists what the store holds.
func (x *town) kinds() (all []string) {
	x.t.Helper()
	entries, err := x.store.List(operator(x.t), "", "", 0)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, e := range entries {
		if kind, _, _ := strings.Cut(e.Key, "/"); kind != "event" && kind != "authority" { // which lasts as long as its sandbox
			all = append(all, kind)
		}
	}
	return all
}

// TestThingsCrash breaks what makes each thing, and what takes it away, at each step
// and in each way. What was acknowledged holds, after the next start too; what was not can
// be done again; at the end nothing is left.
func TestThingsCrash(t *testing.T) {
	for _, one := range things() {
		for _, undoing := range []bool{false, true} {
			name := one.name
			if undoing {
				name += ", taken away"
			}
			t.Run(name, func(t *testing.T) {
				for at := 0; crashThing(t, one, undoing, at); at++ {
				}
			})
		}
	}
}

// crashThing is false if there is no such step.
func crashThing(t *testing.T, one thing, undoing bool, at int) bool {
	t.Helper()
	for _, how := range []fault{errorBefore, errorAfter, killedBefore, killedAfter} {
		x, s := thingTown(t)
		before := x.kinds()
		verb, target := one.make, true
		if undoing {
			if err := one.make(operator(t), x.e); err != nil {
				t.Fatal(err)
			}
			verb, target = one.undo, false
		}
		x.fate.arm(at, how)
		err := verb(operator(t), x.e)
		steps := x.fate.taken()
		if len(steps) <= at {
			if err != nil || at == 0 {
				t.Fatalf("undisturbed: %v after %q", err, steps)
			}
			return false
		}
		if how == errorAfter && !strings.HasPrefix(steps[at], "commit") {
			continue // an error of the others means that it was not done
		}
		what := fmt.Sprintf("%s step %d (%s)", how, at, steps[at])
		if x.fate.isDead() {
			if err := x.open(-1, ""); err != nil {
				t.Fatalf("%s: open: %v", what, err)
			}
		}
		there, terr := one.there(operator(t), x.e)
		if terr != nil || err == nil && there != target {
			t.Errorf("%s: acknowledged %v, there %v, %v", what, err == nil, there, terr)
		}
		if there != target { // it can be done again
			if err := verb(operator(t), x.e); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
				t.Errorf("%s: again: %v", what, err)
			}
		}
		if err := one.undo(operator(t), x.e); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("%s: take away: %v", what, err)
		}
		if after := x.kinds(); !slices.Equal(after, before) {
			t.Errorf("%s: the store holds %q, before %q", what, after, before)
		}
		if len(s.there) > 0 {
			t.Errorf("%s: volumes are left: %v", what, s.there)
		}
		if live := x.h.world.ids(); len(live) != 1 {
			t.Errorf("%s: machines %q", what, live)
		}
	}
	return true
}
