package secret_test

import (
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/secret"
)

func TestGrantsAreEachSandboxsOwn(t *testing.T) {
	g := secret.NewGrants(store(t, filepath.Join(t.TempDir(), "records.db")))
	ctx, parent, child, other := t.Context(), sandbox.NewID(), sandbox.NewID(), sandbox.NewID()
	if err := g.Grant(ctx, parent, "b", "a", "a", "c"); err != nil {
		t.Fatal(err)
	}
	if err := g.Revoke(ctx, parent, "c"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a fork that was cut short does it again
		if err := g.Inherit(ctx, parent, child); err != nil {
			t.Fatal(err)
		}
	}
	of, err := g.List(ctx, child)
	from, _ := g.List(ctx, parent)
	if err != nil || len(of) != 3 || of[0].ID == from[0].ID || !of[2].Revoked {
		t.Fatalf("%+v, %v", of, err)
	}
	if err := g.Revoke(ctx, parent, "a"); err != nil {
		t.Fatal(err)
	}
	may := func(id sandbox.ID, s string, want sandbox.Kind) {
		t.Helper()
		kind(t, g.Granted(ctx, id, s), want)
	}
	may(parent, "a", sandbox.Forbidden)
	may(parent, "b", "")
	may(child, "a", "")
	may(child, "c", sandbox.Forbidden)
	may(other, "a", sandbox.Forbidden)
	// The policy is set again: what was revoked stays so until somebody says so.
	if err := g.Grant(ctx, parent, "a", "b"); err != nil {
		t.Fatal(err)
	}
	may(parent, "a", sandbox.Forbidden)
	if err := g.Restore(ctx, parent, "a"); err != nil {
		t.Fatal(err)
	}
	may(parent, "a", "")
	kind(t, g.Revoke(ctx, other, "a"), sandbox.NotFound)
	kind(t, g.Revoke(ctx, other, "../a"), sandbox.Invalid)
	for range 2 {
		if err := g.Forget(ctx, parent); err != nil {
			t.Fatal(err)
		}
	}
	may(parent, "b", sandbox.Forbidden)
	may(child, "b", "")
}
