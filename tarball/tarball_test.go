package tarball

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func openRoot(t testing.TB, dir string) *os.Root {
	t.Helper()
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRoundTrip packs a folder of everything and finds it again.
func TestRoundTrip(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	at := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	odd := "n\xff\xfe" + strings.Repeat("x", 200)
	must(t, os.MkdirAll(filepath.Join(from, "d/empty"), 0o755))
	must(t, os.WriteFile(filepath.Join(from, "d", odd), []byte("odd"), 0o640))
	must(t, os.WriteFile(filepath.Join(from, "zero"), nil, 0o444))
	must(t, os.Link(filepath.Join(from, "zero"), filepath.Join(from, "twin")))
	must(t, os.Symlink("d/nowhere", filepath.Join(from, "link")))
	must(t, unix.Mkfifo(filepath.Join(from, "pipe"), 0o600))
	f, err := os.Create(filepath.Join(from, "sparse"))
	must(t, err)
	_, err = f.WriteAt([]byte("end"), 40<<20)
	must(t, errors.Join(err, f.Close()))
	must(t, os.Chtimes(filepath.Join(from, "zero"), at, at))
	must(t, os.Chmod(filepath.Join(from, "d"), 0o750))
	must(t, os.Chtimes(filepath.Join(from, "d"), at, at))

	var skipped []string
	var stream bytes.Buffer
	packed, err := (&Packing{Root: openRoot(t, from), Name: ".", Skipped: func(n string) { skipped = append(skipped, n) }}).Run(t.Context(), &stream)
	must(t, err)
	if !slices.Equal(skipped, []string{"pipe"}) {
		t.Errorf("skipped %q", skipped)
	}
	unpacked, err := (&Unpacking{Root: openRoot(t, to), Mode: 0o777, Strict: true}).Run(t.Context(), &stream)
	must(t, err)
	if packed != unpacked || packed != (Counts{Files: 3, Folders: 3, Links: 2, Bytes: 40<<20 + 3 + 3}) {
		t.Errorf("packed %+v, unpacked %+v", packed, unpacked)
	}
	if b, err := os.ReadFile(filepath.Join(to, "d", odd)); err != nil || string(b) != "odd" {
		t.Errorf("%q, %v", b, err)
	}
	for _, n := range []string{"d", "zero"} {
		a, _ := os.Stat(filepath.Join(from, n))
		b, err := os.Stat(filepath.Join(to, n))
		if err != nil || a.Mode() != b.Mode() || !a.ModTime().Equal(b.ModTime()) {
			t.Errorf("%s: %v %v, %v", n, a, b, err)
		}
	}
	zero, _ := os.Stat(filepath.Join(to, "zero"))
	if two, err := os.Stat(filepath.Join(to, "twin")); err != nil || !os.SameFile(zero, two) {
		t.Errorf("the hard link is a file of its own: %v", err)
	}
	sparse, err := os.Stat(filepath.Join(to, "sparse"))
	must(t, err)
	if s := sparse.Sys().(*syscall.Stat_t); sparse.Size() != 40<<20+3 || s.Blocks*512 > 1<<20 {
		t.Errorf("%d bytes in %d blocks", sparse.Size(), s.Blocks)
	}
}

// entry of a stream that is made by hand.
type entry struct {
	name, link string
	kind       byte
	body       string
}

func stream(t testing.TB, entries ...entry) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		must(t, w.WriteHeader(&tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Size: int64(len(e.body)), Mode: 0o7777}))
		_, err := io.WriteString(w, e.body)
		must(t, err)
	}
	must(t, w.Close())
	return &b
}

// everything lists a tree: its names with what files hold and links say.
func everything(t testing.TB, dir string) map[string]string {
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		switch {
		case e.Type().IsRegular():
			b, err := os.ReadFile(p)
			all[rel] = string(b)
			return err
		case e.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			all[rel] = "-> " + target
			return err
		}
		all[rel] = "/"
		return nil
	}))
	return all
}

// TestHostile tries streams that reach for what lies outside, and expects that
// it is as it was.
func TestHostile(t *testing.T) {
	file := func(name string) entry { return entry{name: name, kind: tar.TypeReg, body: "evil"} }
	link := func(name, to string) entry { return entry{name: name, link: to, kind: tar.TypeSymlink} }
	hard := func(name, to string) entry { return entry{name: name, link: to, kind: tar.TypeLink} }
	for _, c := range []struct {
		name    string
		entries []entry
		loose   bool // refused also without Strict
		skipped bool // what is bad about it is left out when Strict
	}{
		{"upwards", []entry{file("../secret")}, true, false},
		{"upwards within", []entry{file("a/../../secret")}, true, false},
		{"upwards and back", []entry{file("a/../b")}, true, false},
		{"absolute", []entry{file("/secret")}, true, false},
		{"no name", []entry{file("")}, true, false},
		{"a folder upwards", []entry{{name: "../new/", kind: tar.TypeDir}}, true, false},
		{"hard link outside", []entry{hard("x", "../secret")}, true, false},
		{"hard link absolute", []entry{hard("x", "/etc/passwd")}, true, false},
		{"hard link through a link", []entry{link("l", ".."), hard("x", "l/secret")}, true, false},
		{"hard link to a link", []entry{link("l", "../secret"), hard("x", "l")}, true, false},
		{"through a link upwards", []entry{link("l", ".."), file("l/secret")}, true, true},
		{"through an absolute link", []entry{link("l", "/etc"), file("l/evil")}, true, true},
		{"through two links", []entry{{name: "d", kind: tar.TypeDir}, link("d/l", "../.."), link("m", "d/l"), file("m/secret")}, true, false},
		{"through an own link", []entry{{name: "d", kind: tar.TypeDir}, link("l", "d"), file("l/x")}, false, false},
		{"device", []entry{{name: "dev", kind: tar.TypeBlock}}, true, false},
		{"character device", []entry{{name: "dev", kind: tar.TypeChar}}, true, false},
		{"pipe", []entry{{name: "fifo", kind: tar.TypeFifo}}, true, false},
		{"unknown type", []entry{{name: "x", kind: 'Z'}}, true, false},
		{"a file over a folder", []entry{{name: "d", kind: tar.TypeDir}, file("d")}, true, false},
		{"a folder over a file", []entry{file("d"), {name: "d", kind: tar.TypeDir}}, true, false},
		{"a link over a folder", []entry{{name: "d", kind: tar.TypeDir}, link("d", "x")}, true, false},
		{"deep", []entry{file(strings.Repeat("d/", 1001) + "x")}, true, false},
		{"long", []entry{file(strings.Repeat("n", 300))}, true, false},
	} {
		for _, strict := range []bool{true, false} {
			outside := t.TempDir()
			must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
			must(t, os.Mkdir(filepath.Join(outside, "in"), 0o755))
			_, err := (&Unpacking{Root: openRoot(t, filepath.Join(outside, "in")), Mode: 0o7777, Strict: strict}).Run(t.Context(), stream(t, c.entries...))
			if err == nil && (strict && !c.skipped || !strict && c.loose) {
				t.Errorf("%s (strict %v): no error", c.name, strict)
			}
			got := everything(t, outside)
			maps.DeleteFunc(got, func(name, _ string) bool { return name == "in" || strings.HasPrefix(name, "in/") })
			if !maps.Equal(got, map[string]string{".": "/", "secret": "secret"}) {
				t.Errorf("%s (strict %v): outside is now %q", c.name, strict, got)
			}
			info, err := os.Stat(filepath.Join(outside, "secret"))
			if err != nil || info.Mode() != 0o600 || info.Sys().(*syscall.Stat_t).Nlink != 1 {
				t.Errorf("%s (strict %v): the secret is %v, %v", c.name, strict, info.Mode(), err)
			}
		}
	}
}

// TestStrictLinks: which links are kept where other programs work.
func TestStrictLinks(t *testing.T) {
	for _, c := range []struct {
		name, target string
		kept         bool
	}{
		{"l", "x", true}, {"l", "./x/y", true}, {"d/l", "../x", true}, {"d/e/l", "../../x", true},
		{"l", "..", false}, {"l", "../x", false}, {"d/l", "../../x", false}, {"l", "/x", false},
		{"l", "x/..", false}, {"d/l", "x/../..", false}, {"d/l", "../x/../y", false},
	} {
		dir := t.TempDir()
		skipped := 0
		_, err := (&Unpacking{Root: openRoot(t, dir), Strict: true, Skipped: func(string, string) { skipped++ }}).
			Run(t.Context(), stream(t, entry{name: c.name, link: c.target, kind: tar.TypeSymlink}))
		_, gone := os.Lstat(filepath.Join(dir, c.name))
		if err != nil || (gone == nil) != c.kept || (skipped == 0) != c.kept {
			t.Errorf("%s -> %s: %v, %v, skipped %d", c.name, c.target, err, gone, skipped)
		}
	}
}

// TestOverwrite: what is there is replaced as a whole, never written through.
func TestOverwrite(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	must(t, os.MkdirAll(filepath.Join(in, "kept"), 0o711))
	must(t, os.WriteFile(filepath.Join(dir, "victim"), []byte("old"), 0o644))
	must(t, os.Symlink("../victim", filepath.Join(in, "soft")))
	must(t, os.Link(filepath.Join(dir, "victim"), filepath.Join(in, "hard")))
	_, err := (&Unpacking{Root: openRoot(t, in), Mode: 0o777, Strict: true}).Run(t.Context(), stream(t,
		entry{name: "soft", kind: tar.TypeReg, body: "new"}, entry{name: "hard", kind: tar.TypeReg, body: "new"},
		entry{name: "kept/", kind: tar.TypeDir}, entry{name: "made/deep/x", kind: tar.TypeReg, body: "y"}))
	must(t, err)
	want := map[string]string{".": "/", "victim": "old", "in": "/", "in/soft": "new", "in/hard": "new", "in/kept": "/", "in/made": "/", "in/made/deep": "/", "in/made/deep/x": "y"}
	if got := everything(t, dir); !maps.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if info, _ := os.Stat(filepath.Join(in, "kept")); info.Mode().Perm() != 0o711 {
		t.Errorf("a folder that was there is now %v", info.Mode())
	}
	if info, _ := os.Stat(filepath.Join(in, "soft")); info.Mode() != 0o777 {
		t.Errorf("the file has mode %v", info.Mode())
	}
}

// TestBroken: a stream that is cut leaves no part of a file.
func TestBroken(t *testing.T) {
	dir := t.TempDir()
	whole := stream(t, entry{name: "a", kind: tar.TypeReg, body: "whole"}, entry{name: "b", kind: tar.TypeReg, body: strings.Repeat("x", 4000)})
	_, err := (&Unpacking{Root: openRoot(t, dir), Mode: 0o777}).Run(t.Context(), io.LimitReader(whole, 3000))
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
	if got := everything(t, dir); !maps.Equal(got, map[string]string{".": "/", "a": "whole"}) {
		t.Errorf("%q", got)
	}
	_, err = (&Unpacking{Root: openRoot(t, dir)}).Run(t.Context(), strings.NewReader(strings.Repeat("not a tar stream ", 100)))
	if !errors.Is(err, ErrMalformed) {
		t.Errorf("%v", err)
	}
	between := stream(t, entry{name: "a", kind: tar.TypeReg, body: "whole"}).Bytes()[:1024]
	if _, err = (&Unpacking{Root: openRoot(t, dir), Mode: 0o777}).Run(t.Context(), bytes.NewReader(between)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a stream without its end: %v", err)
	}
	if counts, err := (&Unpacking{Root: openRoot(t, dir)}).Run(t.Context(), bytes.NewReader(nil)); err != nil || counts != (Counts{}) {
		t.Errorf("nothing: %+v, %v", counts, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = (&Unpacking{Root: openRoot(t, dir)}).Run(ctx, whole); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// FuzzUnpack: whatever a stream says, what lies outside stays as it is.
func FuzzUnpack(f *testing.F) {
	f.Add(stream(f, entry{name: "a", kind: tar.TypeReg, body: "x"}, entry{name: "l", link: "..", kind: tar.TypeSymlink}, entry{name: "l/x", kind: tar.TypeReg}).Bytes(), true)
	f.Add(stream(f, entry{name: "../a", kind: tar.TypeReg}).Bytes(), false)
	f.Add(stream(f, entry{name: "d/", kind: tar.TypeDir}, entry{name: "d/l", link: "../..", kind: tar.TypeSymlink}, entry{name: "h", link: "d/l/x", kind: tar.TypeLink}).Bytes(), false)
	f.Fuzz(func(t *testing.T, data []byte, strict bool) {
		if len(data) > 1<<16 {
			return
		}
		outside := t.TempDir()
		must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
		must(t, os.Mkdir(filepath.Join(outside, "in"), 0o755))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a hole may be told to be endless
		defer cancel()
		_, _ = (&Unpacking{Root: openRoot(t, filepath.Join(outside, "in")), Mode: 0o7777, Strict: strict, Lenient: true, Attributes: true}).Run(ctx, bytes.NewReader(data))
		list, err := os.ReadDir(outside)
		must(t, err)
		b, err := os.ReadFile(filepath.Join(outside, "secret"))
		if err != nil || string(b) != "secret" || len(list) != 2 {
			t.Fatalf("outside changed: %v, %q, %v", list, b, err)
		}
	})
}

// TestAttributesAreKept packs a file with a capability and a user's attribute, and a
// folder with one.
func TestAttributesAreKept(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, []byte("x"), 0o755))
	want := map[string]string{"SCHILY.xattr.user.note": "a\x00note"}
	for _, path := range []string{file, dir} {
		if err := unix.Setxattr(path, "user.note", []byte("a\x00note"), 0); err != nil {
			t.Skipf("SKIPPED LOUDLY: this disk keeps no attributes: %v", err)
		}
	}
	capability := "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" // CAP_NET_BIND_SERVICE
	if os.Geteuid() == 0 {
		must(t, unix.Setxattr(file, "security.capability", []byte(capability), 0))
	}
	var b bytes.Buffer
	_, err := (&Packing{Root: openRoot(t, dir), Name: "."}).Run(t.Context(), &b)
	must(t, err)
	seen := 0
	for r := tar.NewReader(bytes.NewReader(b.Bytes())); ; seen++ {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		must(t, err)
		for k, v := range want {
			if h.PAXRecords[k] != v {
				t.Errorf("%s: %s is %q", h.Name, k, h.PAXRecords[k])
			}
		}
		if h.Typeflag == tar.TypeReg && os.Geteuid() == 0 && h.PAXRecords["SCHILY.xattr.security.capability"] != capability {
			t.Errorf("%s lost its capability: %q", h.Name, h.PAXRecords)
		}
	}
	if seen != 2 {
		t.Errorf("%d entries", seen)
	}
	for _, wanted := range []bool{true, false} {
		to := t.TempDir()
		_, err := (&Unpacking{Root: openRoot(t, to), Mode: 0o7777, Attributes: wanted}).Run(t.Context(), bytes.NewReader(inFolder(t, b.Bytes())))
		must(t, err)
		for _, path := range []string{to + "/d", to + "/d/file"} {
			if got := attribute(path, "user.note") == "a\x00note"; got != wanted {
				t.Errorf("%s has its attribute: %v, wanted %v", path, got, wanted)
			}
		}
		if got := attribute(to+"/d/file", "security.capability") == capability; os.Geteuid() == 0 && got != wanted {
			t.Errorf("it has its capability: %v, wanted %v", got, wanted)
		}
	}
}

// attribute is "" if there is none.
func attribute(path, name string) string {
	buf := make([]byte, 100)
	n, err := unix.Lgetxattr(path, name, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// inFolder is a stream whose entries lie in a folder d.
func inFolder(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			must(t, w.Close())
			return out.Bytes()
		}
		must(t, err)
		h.Name = "d/" + h.Name
		must(t, w.WriteHeader(h))
		_, err = io.Copy(w, r)
		must(t, err)
	}
}

// TestMalformedAttributes: what would make a program other than it was is refused, by name.
func TestMalformedAttributes(t *testing.T) {
	for name, records := range map[string]map[string]string{
		"a capability of no version": {"SCHILY.xattr.security.capability": "no"},
		"too many":                   manyAttributes(),
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		must(t, w.WriteHeader(&tar.Header{Name: "x", Typeflag: tar.TypeReg, Mode: 0o755, PAXRecords: records, Format: tar.FormatPAX}))
		must(t, w.Close())
		dir := t.TempDir()
		_, err := (&Unpacking{Root: openRoot(t, dir), Mode: 0o7777, Attributes: true}).Run(t.Context(), &b)
		var entry *EntryError
		if !errors.As(err, &entry) || entry.Name != "x" {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: left: %v, %v", name, left, err)
		}
	}
}

func manyAttributes() map[string]string {
	all := map[string]string{}
	for i := range maxAttributes + 1 {
		all[fmt.Sprintf("%suser.%d", attributePrefix, i)] = "x"
	}
	return all
}
