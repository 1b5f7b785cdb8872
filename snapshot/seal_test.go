package snapshot_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/blob/memory"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/snapshot"
)

func sealing(t testing.TB, b blob.Store, seed uint64) *snapshot.Store {
	t.Helper()
	s, err := snapshot.New(snapshot.Config{Blobs: b, Key: noise(seed, snapshot.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stored is every blob's bytes.
func stored(t testing.TB, b blob.Store) (all [][]byte) {
	t.Helper()
	err := b.List(t.Context(), func(i blob.Info) error {
		r, err := b.Open(t.Context(), i.Digest, 0)
		if err != nil {
			return err
		}
		defer r.Close()
		one, err := io.ReadAll(r)
		all = append(all, one)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestSealedBlobsShowNothing(t *testing.T) {
	b := &memory.Store{}
	s := sealing(t, b, 1)
	dir := t.TempDir()
	secret := bytes.Repeat([]byte("the secret of this test. "), 100)
	write(t, dir+"/file", 3<<20, part{100, secret}, part{2 << 20, noise(1, 1<<20)})
	saved := save(t, s, dir)
	all := stored(t, b)
	if len(all) != 3 {
		t.Fatalf("%d blobs, want two chunks and a manifest", len(all))
	}
	for _, one := range all {
		if bytes.Contains(one, secret[:20]) || bytes.Contains(one, []byte("file")) || bytes.Contains(one, noise(1, 64)) || !bytes.HasPrefix(one, []byte("berthS1\n")) {
			t.Errorf("a blob shows what it holds: %.40q", one)
		}
	}
	if a, c := describe(t, dir), describe(t, load(t, s, saved.Digest)); a != c {
		t.Errorf("saved\n%sloaded\n%s", a, c)
	}
	again := save(t, s, dir, saved.Digest)
	if again.Added != 0 || again.Digest != saved.Digest {
		t.Errorf("the same with the same key adds %+v", again)
	}
	other := save(t, sealing(t, b, 2), dir, saved.Digest)
	if other.Added == 0 || other.Digest == saved.Digest {
		t.Errorf("another key shares blobs: %+v", other)
	}
}

func TestSealedWithoutItsKey(t *testing.T) {
	b := &memory.Store{}
	saved := save(t, sealing(t, b, 1), sample(t))
	for name, c := range map[string]struct {
		store *snapshot.Store
		kind  sandbox.Kind
		text  string
	}{
		"none":    {newStore(t, b), sandbox.Unsupported, "the server has no key"},
		"another": {sealing(t, b, 2), sandbox.Internal, "another key"},
	} {
		err := c.store.Load(t.Context(), saved.Digest, t.TempDir()+"/out")
		if sandbox.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) || !strings.Contains(sandbox.HintOf(err), "snapshots.key") {
			t.Errorf("%s: %v, %q", name, err, sandbox.HintOf(err))
		}
		// What cannot be read may be needed: nothing is swept.
		if _, err := c.store.Sweep(t.Context(), func(context.Context) ([]blob.Digest, error) { return []blob.Digest{saved.Digest}, nil }); err == nil {
			t.Errorf("%s: swept beside a manifest that cannot be read", name)
		}
	}
}

// TestSealedBesideOpen: a key that comes later does not lose what was stored before,
// and seals all that comes after it.
func TestSealedBesideOpen(t *testing.T) {
	b := &memory.Store{}
	dir := sample(t)
	open := save(t, newStore(t, b), dir)
	s := sealing(t, b, 1)
	if a, c := describe(t, dir), describe(t, load(t, s, open.Digest)); a != c {
		t.Errorf("saved\n%sloaded\n%s", a, c)
	}
	sealed := save(t, s, dir, open.Digest)
	if sealed.Digest == open.Digest || sealed.Added != sealed.Stored {
		t.Errorf("chunks that are not sealed are part of what is: %+v", sealed)
	}
}

func TestSealedExportsMove(t *testing.T) {
	dir := sample(t)
	from := sealing(t, &memory.Store{}, 1)
	saved := save(t, from, dir)
	file := export(t, from, saved.Digest)
	for name, to := range map[string]*snapshot.Store{"open": newStore(t, &memory.Store{}), "same key": from, "other key": sealing(t, &memory.Store{}, 2)} {
		got, _, err := to.Import(t.Context(), bytes.NewReader(file), nil, accept)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if a, c := describe(t, dir), describe(t, load(t, to, got.Digest)); a != c {
			t.Errorf("%s: exported\n%simported\n%s", name, a, c)
		}
		if again := export(t, to, got.Digest); !bytes.Equal(again, file) {
			t.Errorf("%s: exported again it is another file", name)
		}
		got.Release()
	}
}

func TestSealedDamage(t *testing.T) {
	b := &memory.Store{}
	s := sealing(t, b, 1)
	if _, err := snapshot.New(snapshot.Config{Blobs: b, Key: []byte("short")}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("a short key: %v", err)
	}
	// Sealed with the mark alone: not a manifest of ours.
	info, err := b.Put(t.Context(), strings.NewReader("berthS1\nshort"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Manifest(t.Context(), info.Digest); err == nil {
		t.Error("a blob that is cut short opens")
	}
}
