package image

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// The entries of test layers.
func dir(name string) tar.Header  { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }
func gone(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
func file(name, text string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text)), Uname: text}
}
func symlink(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777}
}
func hardlink(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to}
}

// archiveOf writes a layer. A file's text travels in its Uname.
func archiveOf(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		text := ""
		if h.Typeflag == tar.TypeReg {
			text, h.Uname = h.Uname, ""
		}
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1_700_000_000, 0)
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatalf("%s: %v", h.Name, err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatalf("%s: %v", h.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var smallCaps = caps{bytes: 1 << 20, entries: 500}

// unpackInto applies layers to a new tree beneath a folder that must not change.
func unpackInto(t testing.TB, c caps, layers ...[]byte) (root string, err error) {
	t.Helper()
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	root = filepath.Join(outside, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	tr, err := openTree(root)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	u := newUnpacker(tr, c)
	for _, l := range layers {
		if err = u.apply(context.Background(), bytes.NewReader(l)); err != nil {
			break
		}
	}
	if err == nil {
		err = u.finish()
	}
	checkOutside(t, outside)
	return root, err
}

// checkOutside checks that unpacking touched nothing but the root.
func checkOutside(t testing.TB, outside string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(outside, "secret"))
	if err != nil || string(text) != "secret" {
		t.Errorf("a file outside of the root was changed: %q, %v", text, err)
	}
	names, err := os.ReadDir(outside)
	if err != nil || len(names) != 2 {
		t.Errorf("outside of the root: %v, %v; want the secret and the root alone", names, err)
	}
}

// listing is every entry of the tree with its content or target.
func listing(t testing.TB, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.Walk(root, func(p string, info os.FileInfo, err error) error {
		if err != nil || p == root {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		switch {
		case info.IsDir():
			found[rel] = "/"
		case info.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink(p)
			found[rel] = "-> " + to
			return err
		default:
			b, err := os.ReadFile(p)
			found[rel] = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestLayersStack(t *testing.T) {
	needRoot(t)
	for name, c := range map[string]struct {
		layers [][]tar.Header
		want   map[string]string
	}{
		"upper file wins": {
			[][]tar.Header{{dir("a/"), file("a/f", "1"), file("a/g", "1")}, {file("a/f", "2")}},
			map[string]string{"a": "/", "a/f": "2", "a/g": "1"},
		},
		"missing folders are made": {
			[][]tar.Header{{file("./a/b/c/f", "1")}},
			map[string]string{"a": "/", "a/b": "/", "a/b/c": "/", "a/b/c/f": "1"},
		},
		"whiteout of a file and a folder": {
			[][]tar.Header{{file("a/f", "1"), file("a/d/x/y", "1"), file("a/g", "1")}, {gone("a/.wh.f"), gone("a/.wh.d"), gone("a/.wh.never")}},
			map[string]string{"a": "/", "a/g": "1"},
		},
		"whiteout spares its own layer, in any order": {
			[][]tar.Header{{file("a/f", "1"), file("d/old", "1")}, {file("a/f", "2"), gone("a/.wh.f"), gone(".wh.d"), file("d/new", "2")}},
			map[string]string{"a": "/", "a/f": "2", "d": "/", "d/new": "2"},
		},
		"opaque folder": {
			[][]tar.Header{{file("a/f", "1"), file("a/d/g", "1"), file("b", "1")}, {dir("a/"), file("a/d/h", "2"), gone("a/.wh..wh..opq"), file("a/i", "2")}},
			map[string]string{"a": "/", "a/d": "/", "a/d/h": "2", "a/i": "2", "b": "1"},
		},
		"whiteout of a symbolic link spares its target": {
			[][]tar.Header{{file("real/f", "1"), symlink("link", "real")}, {gone(".wh.link")}},
			map[string]string{"real": "/", "real/f": "1"},
		},
		"links are followed within the root only": {
			[][]tar.Header{{dir("run/"), dir("var/"), symlink("var/run", "/run"), symlink("up", "../../../../..")}, {file("var/run/pid", "1"), file("up/f", "1")}},
			map[string]string{"run": "/", "run/pid": "1", "var": "/", "var/run": "-> /run", "up": "-> ../../../../..", "f": "1"},
		},
		"a folder takes a link's place, a file a folder's": {
			[][]tar.Header{{dir("real/"), symlink("l", "real"), file("d/x", "1")}, {dir("l/"), file("l/f", "2"), file("d", "2")}},
			map[string]string{"real": "/", "l": "/", "l/f": "2", "d": "2"},
		},
		"a file takes a link's place, its target stays": {
			[][]tar.Header{{file("real", "1"), symlink("l", "real")}, {file("l", "2")}},
			map[string]string{"real": "1", "l": "2"},
		},
		"hard links": {
			[][]tar.Header{{file("a/f", "1"), hardlink("b/g", "a/f"), hardlink("a/f", "a/f"), symlink("s", "a/f"), hardlink("s2", "s")}, {hardlink("b/h", "./a/f"), gone("a/.wh.f")}},
			map[string]string{"a": "/", "b": "/", "b/g": "1", "b/h": "1", "s": "-> a/f", "s2": "-> a/f"},
		},
		"devices are left out": {
			[][]tar.Header{{{Name: "dev/sda", Typeflag: tar.TypeBlock}, {Name: "dev/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, {Name: "p", Typeflag: tar.TypeFifo}}},
			map[string]string{"dev": "/"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range c.layers {
				layers = append(layers, archiveOf(t, l...))
			}
			root, err := unpackInto(t, smallCaps, layers...)
			if err != nil {
				t.Fatal(err)
			}
			got := listing(t, root)
			for p, want := range c.want {
				if got[p] != want {
					t.Errorf("%s: %q, want %q", p, got[p], want)
				}
			}
			for p := range got {
				if _, ok := c.want[p]; !ok {
					t.Errorf("%s is there: %q", p, got[p])
				}
			}
		})
	}
}

func TestHostileLayers(t *testing.T) {
	needRoot(t)
	deep := strings.Repeat("d/", 200)
	for name, c := range map[string]struct {
		want    sandbox.Kind
		entries []tar.Header
	}{
		"upward":                       {sandbox.Invalid, []tar.Header{file("../escape", "x")}},
		"upward within":                {sandbox.Invalid, []tar.Header{file("a/../../escape", "x")}},
		"absolute":                     {sandbox.Invalid, []tar.Header{file("/etc/escape", "x")}},
		"absolute hard link":           {sandbox.Invalid, []tar.Header{hardlink("a", "/etc/passwd")}},
		"upward hard link":             {sandbox.Invalid, []tar.Header{hardlink("a", "../secret")}},
		"hard link through a link":     {sandbox.Invalid, []tar.Header{symlink("up", ".."), hardlink("a", "up/secret")}},
		"hard link to a folder":        {sandbox.Invalid, []tar.Header{dir("d/"), hardlink("a", "d")}},
		"hard link to nothing":         {sandbox.Invalid, []tar.Header{hardlink("a", "b")}},
		"hard link to the root":        {sandbox.Invalid, []tar.Header{hardlink("a", ".")}},
		"whiteout of the parent":       {sandbox.Invalid, []tar.Header{dir("d/"), gone("d/.wh...")}},
		"whiteout of the folder":       {sandbox.Invalid, []tar.Header{dir("d/"), gone("d/.wh..")}},
		"whiteout of nothing":          {sandbox.Invalid, []tar.Header{gone("d/.wh.")}},
		"root as a file":               {sandbox.Invalid, []tar.Header{file(".", "x")}},
		"root as a link":               {sandbox.Invalid, []tar.Header{symlink("./", "/etc")}},
		"folder through a file":        {sandbox.Invalid, []tar.Header{file("a", "x"), file("a/b", "x")}},
		"folder through a loop":        {sandbox.Invalid, []tar.Header{symlink("a", "b"), symlink("b", "a"), file("a/b", "x")}},
		"folder through a dangling":    {sandbox.Invalid, []tar.Header{symlink("a", "none"), file("a/b", "x")}},
		"long element":                 {sandbox.Invalid, []tar.Header{file(strings.Repeat("x", 256), "x")}},
		"long name":                    {sandbox.Invalid, []tar.Header{file(strings.Repeat("x/", 3000)+"x", "x")}},
		"long target":                  {sandbox.Invalid, []tar.Header{symlink("a", strings.Repeat("x", 5000))}},
		"nested too deep by links":     {sandbox.Invalid, []tar.Header{dir(deep), symlink("l", deep), dir("l/" + deep)}},
		"too many entries":             {sandbox.Exhausted, many(501)},
		"too large":                    {sandbox.Exhausted, []tar.Header{file("a", strings.Repeat("x", 1<<19)), file("b", strings.Repeat("x", 1<<19)), file("c", "x")}},
		"owner out of range":           {sandbox.Invalid, []tar.Header{{Name: "a", Typeflag: tar.TypeReg, Uid: 1<<32 - 1, Format: tar.FormatPAX}}},
		"capability that is malformed": {sandbox.Invalid, []tar.Header{{Name: "a", Typeflag: tar.TypeReg, Mode: 0o755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "no"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := unpackInto(t, smallCaps, archiveOf(t, c.entries...))
			if sandbox.KindOf(err) != c.want || sandbox.HintOf(err) == "" {
				t.Errorf("kind %q, hint %q, want %q: %v", sandbox.KindOf(err), sandbox.HintOf(err), c.want, err)
			}
		})
	}
}

func many(n int) (all []tar.Header) {
	for i := range n {
		all = append(all, file(fmt.Sprint("f", i), ""))
	}
	return all
}

// TestHostileSparse claims a huge file that costs nothing to store.
func TestHostileSparse(t *testing.T) {
	needRoot(t)
	b := archiveOf(t, file("a", strings.Repeat("x", 512)))
	copy(b[124:136], "77777777777\x00") // 8 GiB - 1
	fixSum(b[:512])
	_, err := unpackInto(t, smallCaps, b)
	if sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("kind %q: %v", sandbox.KindOf(err), err)
	}
}

// fixSum makes a changed header's checksum right.
func fixSum(h []byte) {
	copy(h[148:156], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

func TestBrokenLayers(t *testing.T) {
	needRoot(t)
	whole := archiveOf(t, file("a", strings.Repeat("x", 2000)))
	for name, b := range map[string][]byte{
		"cut in a header": whole[:300],
		"cut in a file":   whole[:1000],
		"not an archive":  bytes.Repeat([]byte("hello "), 400),
	} {
		if _, err := unpackInto(t, smallCaps, b); sandbox.KindOf(err) != sandbox.Invalid || sandbox.HintOf(err) == "" {
			t.Errorf("%s: kind %q, hint %q: %v", name, sandbox.KindOf(err), sandbox.HintOf(err), err)
		}
	}
}

func TestMetadataIsKept(t *testing.T) {
	needRoot(t)
	at := time.Unix(1_600_000_000, 0)
	capability := "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	root, err := unpackInto(t, smallCaps, archiveOf(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o711, ModTime: at},
		tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o1770, Uid: 7, Gid: 8, ModTime: at},
		tar.Header{Name: "d/f", Typeflag: tar.TypeReg, Mode: 0o6755, Uid: 70000, Gid: 4_000_000_000, ModTime: at, Format: tar.FormatPAX,
			PAXRecords: map[string]string{"SCHILY.xattr.security.capability": capability, "SCHILY.xattr.trusted.overlay.opaque": "y"}},
		tar.Header{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "f", Uid: 9, Gid: 9, ModTime: at},
	))
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]struct {
		mode     uint32
		uid, gid uint32
	}{
		"":    {unix.S_IFDIR | 0o711, 0, 0},
		"d":   {unix.S_IFDIR | 0o1770, 7, 8},
		"d/f": {unix.S_IFREG | 0o6755, 70000, 4_000_000_000},
		"d/l": {unix.S_IFLNK | 0o777, 9, 9},
	} {
		info, err := os.Lstat(filepath.Join(root, p))
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		if st.Mode != want.mode || st.Uid != want.uid || st.Gid != want.gid || !info.ModTime().Equal(at) {
			t.Errorf("%q: mode %o, owner %d:%d, time %v; want %o, %d:%d, %v", p, st.Mode, st.Uid, st.Gid, info.ModTime(), want.mode, want.uid, want.gid, at)
		}
	}
	buf := make([]byte, 100)
	n, err := unix.Getxattr(filepath.Join(root, "d/f"), "security.capability", buf)
	if err != nil || string(buf[:n]) != capability {
		t.Errorf("capability %q, %v", buf[:max(n, 0)], err)
	}
	if n, _ := unix.Listxattr(filepath.Join(root, "d/f"), buf); strings.Contains(string(buf[:max(n, 0)]), "trusted") {
		t.Error("the mark of a union file system was taken over")
	}
}

func TestUnpackEndsWithItsContext(t *testing.T) {
	needRoot(t)
	tr, err := openTree(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = newUnpacker(tr, smallCaps).apply(ctx, bytes.NewReader(archiveOf(t, file("a", "x"))))
	if err != context.Canceled {
		t.Errorf("apply: %v", err)
	}
}

func filesOf(names []string) (all []tar.Header) {
	for _, n := range names {
		all = append(all, file(n, strings.Repeat(n, 50)))
	}
	return all
}
