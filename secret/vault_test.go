package secret_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/record/bolt"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/secret"
)

const account = "main"

func sealer(t *testing.T, b byte) *secret.Sealer {
	t.Helper()
	s, err := secret.NewSealer(bytes.Repeat([]byte{b}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func store(t *testing.T, path string) record.Store {
	t.Helper()
	s, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func vault(t *testing.T) (*secret.Vault, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "records.db")
	return secret.NewVault(store(t, path), sealer(t, 1), nil), path
}

// used is a copy of a secret's value.
func used(t *testing.T, v *secret.Vault, account, name string) (string, error) {
	t.Helper()
	var s string
	err := v.Use(t.Context(), account, name, func(b sandbox.SecretValue) error { s = string([]byte(b)); return nil })
	return s, err
}

func kind(t *testing.T, err error, want sandbox.Kind) {
	t.Helper()
	if sandbox.KindOf(err) != want {
		t.Errorf("kind %q (%v), want %q", sandbox.KindOf(err), err, want)
	}
}

func TestAValueComesBackForUseAlone(t *testing.T) {
	v, path := vault(t)
	const value = "ghp_0123456789abcdefghij"
	s, err := v.Put(t.Context(), account, "github", sandbox.SecretValue(value))
	if err != nil || s.Version != 1 || s.Name != "github" || s.Created.IsZero() {
		t.Fatalf("%+v, %v", s, err)
	}
	if got, err := used(t, v, account, "github"); got != value || err != nil {
		t.Errorf("used %q, %v", got, err)
	}
	again, err := v.Put(t.Context(), account, "github", sandbox.SecretValue("new"))
	if err != nil || again.Version != 2 || !again.Created.Equal(s.Created) {
		t.Errorf("%+v, %v", again, err)
	}
	if got, _ := used(t, v, account, "github"); got != "new" {
		t.Errorf("after the change it is %q", got)
	}
	all, err := v.List(t.Context(), account)
	if err != nil || len(all) != 1 || all[0] != again {
		t.Errorf("%+v, %v", all, err)
	}
	file, err := os.ReadFile(path)
	if err != nil || bytes.Contains(file, []byte(value)) {
		t.Errorf("the file holds the value, or cannot be read: %v", err)
	}
	if !bytes.Contains(file, []byte("github")) {
		t.Error("the file does not hold the name: it was not this file")
	}
}

func TestAccountsAreApart(t *testing.T) {
	v, _ := vault(t)
	for _, a := range []string{"main", "other", "mai"} {
		if _, err := v.Put(t.Context(), a, "k", sandbox.SecretValue("of "+a)); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Remove(t.Context(), "other", "k"); err != nil {
		t.Fatal(err)
	}
	if got, err := used(t, v, "main", "k"); got != "of main" {
		t.Errorf("%q, %v", got, err)
	}
	_, err := used(t, v, "other", "k")
	kind(t, err, sandbox.NotFound)
	all, _ := v.List(t.Context(), "mai")
	if len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

func TestWhatIsMovedOrDamagedDoesNotOpen(t *testing.T) {
	s := sealer(t, 1)
	sealed, err := s.Seal("a", []byte("value"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := s.Open("a", sealed); string(b) != "value" || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	for what, f := range map[string]func() error{
		"another label": func() error { _, err := s.Open("b", sealed); return err },
		"another key":   func() error { _, err := sealer(t, 2).Open("a", sealed); return err },
		"cut":           func() error { _, err := s.Open("a", sealed[:len(sealed)-1]); return err },
		"nothing":       func() error { _, err := s.Open("a", nil); return err },
		"one bit": func() error {
			b := bytes.Clone(sealed)
			b[len(b)-1] ^= 1
			_, err := s.Open("a", b)
			return err
		},
	} {
		if err := f(); sandbox.KindOf(err) != sandbox.Internal {
			t.Errorf("%s: %v", what, err)
		} else if strings.Contains(err.Error(), "value") {
			t.Errorf("%s: the error tells %v", what, err)
		}
	}
}

func TestAnotherKeyIsNoticed(t *testing.T) {
	records := store(t, filepath.Join(t.TempDir(), "records.db"))
	for range 2 {
		if err := sealer(t, 1).Prove(t.Context(), records); err != nil {
			t.Fatal(err)
		}
	}
	err := sealer(t, 2).Prove(t.Context(), records)
	kind(t, err, sandbox.Invalid)
	if sandbox.HintOf(err) == "" {
		t.Error("no hint")
	}
}

func TestBadInput(t *testing.T) {
	v, _ := vault(t)
	big := sandbox.SecretValue(bytes.Repeat([]byte("x"), sandbox.MaxSecretValue+1))
	for _, c := range []struct {
		account, name string
		value         sandbox.SecretValue
	}{
		{account, "", sandbox.SecretValue("v")},
		{account, "a/b", sandbox.SecretValue("v")},
		{account, "../x", sandbox.SecretValue("v")},
		{account, strings.Repeat("a", 64), sandbox.SecretValue("v")},
		{account, "a\n", sandbox.SecretValue("v")},
		{"", "a", sandbox.SecretValue("v")},
		{"a/b", "a", sandbox.SecretValue("v")},
		{account, "a", nil},
		{account, "a", big},
	} {
		_, err := v.Put(t.Context(), c.account, c.name, c.value)
		kind(t, err, sandbox.Invalid)
	}
	kind(t, v.Remove(t.Context(), account, "none"), sandbox.NotFound)
	_, err := v.Get(t.Context(), account, "none")
	kind(t, err, sandbox.NotFound)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Put(ended, account, "a", sandbox.SecretValue("v")); err == nil {
		t.Error("an ended context puts")
	}
}

func TestPutsAtOnceAllCount(t *testing.T) {
	v, _ := vault(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, err := v.Put(t.Context(), account, "k", sandbox.SecretValue(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if s, err := v.Get(t.Context(), account, "k"); s.Version != 8 || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestAValueDoesNotPrint(t *testing.T) {
	v := sandbox.SecretValue("hush")
	for _, s := range []string{fmt.Sprint(v), fmt.Sprintf("%v %s %+v %#v", v, v, v, v), fmt.Sprintf("%v", struct{ V sandbox.SecretValue }{v})} {
		if strings.Contains(s, "hush") || strings.Contains(s, "104") {
			t.Errorf("it prints %q", s)
		}
	}
}

func TestKeyFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := strings.Repeat("0f", secret.KeySize)
	key, err := secret.ReadKey(write("good", good+"\n", 0o600))
	if err != nil || len(key) != secret.KeySize || key[0] != 0x0f {
		t.Errorf("%x, %v", key, err)
	}
	for name, c := range map[string]struct {
		path string
		want sandbox.Kind
	}{
		"open":    {write("open", good, 0o644), sandbox.Forbidden},
		"short":   {write("short", good[2:], 0o600), sandbox.Invalid},
		"long":    {write("long", strings.Repeat(good, 9), 0o600), sandbox.Invalid},
		"not hex": {write("text", strings.Repeat("zz", secret.KeySize), 0o600), sandbox.Invalid},
		"none":    {filepath.Join(dir, "none"), sandbox.NotFound},
	} {
		if _, err := secret.ReadKey(c.path); sandbox.KindOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		} else if sandbox.HintOf(err) == "" {
			t.Errorf("%s: no hint", name)
		}
	}
}
