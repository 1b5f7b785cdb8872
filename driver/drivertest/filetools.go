package drivertest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// testFileTools: what can be done with files beyond reading and writing.
func testFileTools(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	ctx := within(t)
	put(t, c, "/workspace/src/a.go", "package a\n")
	put(t, c, "/workspace/src/deep/b.go", "package b\n")
	put(t, c, "/workspace/src/deep/c.txt", "0123")

	list, more, err := c.Find(ctx, sandbox.FindQuery{Path: "/workspace", Glob: "**/*.go"})
	if err != nil || more || !slices.Equal(paths(list), []string{"/workspace/src/a.go", "/workspace/src/deep/b.go"}) {
		t.Errorf("find: %q %v %v", paths(list), more, err)
	}
	if list, more, err = c.Find(ctx, sandbox.FindQuery{Path: "/workspace", Glob: "*.go", Limit: 1}); err != nil || !more || len(list) != 1 {
		t.Errorf("find one: %q %v %v", paths(list), more, err)
	}
	if list, _, err = c.Find(ctx, sandbox.FindQuery{Path: "/workspace", Glob: "*.go", After: list[0].Path}); err != nil || !slices.Equal(paths(list), []string{"/workspace/src/deep/b.go"}) {
		t.Errorf("find the rest: %q %v", paths(list), err)
	}

	three := int64(3)
	for _, o := range []sandbox.WriteOptions{{Append: true}, {At: &three}} {
		if _, err := c.WriteFile(ctx, "/workspace/src/deep/c.txt", o, strings.NewReader("xy")); err != nil {
			t.Errorf("write in place: %v", err)
		}
	}
	if got := output(t, c, "cat src/deep/c.txt"); got != "012xyy" {
		t.Errorf("after writes in place: %q", got)
	}
	before := output(t, c, "stat -c %i src/deep/c.txt")
	for _, text := range []string{"z", "012xyy"} {
		if _, err := c.WriteFile(ctx, "/workspace/src/deep/c.txt", sandbox.WriteOptions{InPlace: true}, strings.NewReader(text)); err != nil {
			t.Errorf("write in place: %v", err)
		}
		if got := output(t, c, "cat src/deep/c.txt; stat -c %i src/deep/c.txt"); got != text+before {
			t.Errorf("written in place: %q, want %q", got, text+before)
		}
	}

	mode, at := uint32(0o751), time.Date(2011, 12, 13, 14, 15, 16, 170_000_000, time.UTC)
	info, err := c.Change(ctx, "/workspace/src/a.go", sandbox.FileChange{Mode: &mode, Modified: &at})
	if err != nil || info.Mode != mode || !info.Modified.Equal(at) {
		t.Errorf("change: %+v, %v", info, err)
	}
	if info, err = c.Change(ctx, "/workspace/touched", sandbox.FileChange{Create: true}); err != nil || info.Type != sandbox.TypeFile {
		t.Errorf("touch: %+v, %v", info, err)
	}
	if info, err = c.Link(ctx, "/workspace/src/link", "a.go", "", false); err != nil || info.Target != "a.go" {
		t.Errorf("link: %+v, %v", info, err)
	}
	if _, err = c.Copy(ctx, "/workspace/src", "/workspace/copy", sandbox.CopyOptions{Recursive: true}); err != nil {
		t.Errorf("copy: %v", err)
	}
	if got := output(t, c, "cat copy/deep/c.txt; readlink copy/link"); got != "012xyya.go\n" {
		t.Errorf("the copy: %q", got)
	}
	if info, err = c.Stat(ctx, "/workspace/copy/a.go", false); err != nil || info.Mode != mode || !info.Modified.Equal(at) {
		t.Errorf("a copied file: %+v, %v", info, err)
	}
	hash, err := c.Hash(ctx, "/workspace/src/deep/b.go")
	if want := strings.Fields(output(t, c, "sha256sum src/deep/b.go"))[0]; err != nil || hash.SHA256 != want || hash.Size != 10 {
		t.Errorf("hash %+v, %v, want %s", hash, err, want)
	}
	testAttributes(t, c)
	stop(t, m)
}

// testAttributes: attributes are kept, or their absence is said.
func testAttributes(t *testing.T, c *guestclient.Client) {
	t.Helper()
	for _, path := range []string{"/workspace/touched", "/workspace/src"} {
		set := sandbox.Attributes{"lang": []byte("go"), "raw": {0xff, 0}}
		got, err := c.SetAttributes(within(t), path, sandbox.AttributeChange{Set: set})
		if sandbox.KindOf(err) == sandbox.Unsupported {
			t.Logf("LOUDLY: %s keeps no attributes: %v", path, err)
			continue
		}
		if err != nil || !bytes.Equal(got["raw"], set["raw"]) || string(got["lang"]) != "go" {
			t.Errorf("%s: set %q, %v", path, got, err)
		}
		if got, err = c.SetAttributes(within(t), path, sandbox.AttributeChange{Remove: []string{"raw", "none"}}); err != nil || len(got) != 1 {
			t.Errorf("%s: remove %q, %v", path, got, err)
		}
		if got, err = c.Attributes(within(t), path); err != nil || len(got) != 1 {
			t.Errorf("%s: get %q, %v", path, got, err)
		}
	}
}

func put(t *testing.T, c *guestclient.Client, path, text string) {
	t.Helper()
	if _, err := c.WriteFile(within(t), path, sandbox.WriteOptions{Parents: true}, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

// testArchives: tar streams pass in and out, and hostile ones touch nothing.
func testArchives(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	ctx := within(t)
	output(t, c, `mkdir -p tree/empty "tree/sp ace"; echo x > "tree/sp ace/f"; chmod 640 "tree/sp ace/f"; ln -s "sp ace" tree/soft
ln "tree/sp ace/f" tree/hard; touch -d @1000000000 tree/hard; chmod 750 tree/empty; truncate -s 300M tree/sparse; mkfifo tree/fifo`)
	for _, o := range []sandbox.ArchiveOptions{{}, {Gzip: true}} {
		body, err := c.Archive(ctx, "/workspace/tree", o)
		if err != nil {
			t.Fatal(err)
		}
		to := fmt.Sprintf("/workspace/to%v", o.Gzip)
		u, err := c.Unpack(ctx, to, sandbox.UnpackOptions{}, body)
		if err = errors.Join(err, body.Close()); err != nil || u.Files != 2 || u.Links != 2 || u.Folders != 3 || u.Bytes != 300<<20+2 {
			t.Fatalf("%+v, %v", u, err)
		}
		got := output(t, c, "cd "+strings.TrimPrefix(to, "/workspace/")+`; cat soft/f; stat -c "%a %Y" "sp ace/f" empty | cut -c1-14 | head -1; readlink soft; [ hard -ef "sp ace/f" ] && echo same; stat -c %a empty; stat -c "%s" sparse; ls -A`)
		if got != "x\n640 1000000000\nsp ace\nsame\n750\n314572800\nempty\nhard\nsoft\nsp ace\nsparse\n" {
			t.Errorf("unpacked: %q", got)
		}
	}
	if u, err := m.Usage(ctx); err != nil || u.DiskBytes > 200<<20 {
		t.Errorf("three files of 300 MiB of nothing take %d bytes, %v", u.DiskBytes, err)
	}
	output(t, c, "rm -r to* tree; echo secret > secret; mkdir in")
	for name, entries := range map[string][]tar.Header{
		"upwards":      {{Name: "../secret", Typeflag: tar.TypeReg}},
		"absolute":     {{Name: "/workspace/secret", Typeflag: tar.TypeReg}},
		"through link": {{Name: "l", Linkname: "..", Typeflag: tar.TypeSymlink}, {Name: "l/secret", Typeflag: tar.TypeReg}},
		"through abs":  {{Name: "a", Linkname: "/workspace", Typeflag: tar.TypeSymlink}, {Name: "a/secret", Typeflag: tar.TypeReg}},
		"hard link":    {{Name: "h", Linkname: "../secret", Typeflag: tar.TypeLink}},
		"device":       {{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"pipe":         {{Name: "p", Typeflag: tar.TypeFifo}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, e := range entries {
			e.Mode = 0o777
			if err := w.WriteHeader(&e); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := c.Unpack(ctx, "/workspace/in", sandbox.UnpackOptions{}, &b)
		wantKind(t, name, err, sandbox.Invalid)
		if got := output(t, c, "cat secret; stat -c %h secret; ls"); got != "secret\n1\nin\nsecret\n" {
			t.Fatalf("%s touched what lies outside: %q", name, got)
		}
	}
	output(t, c, "mkdir -p out/node_modules/x out/src/deep; touch out/node_modules/x/y out/src/a.log out/src/b out/src/deep/c out/a.log")
	for _, o := range []struct {
		excludes []string
		want     string
	}{{nil, "./ a.log node_modules/ node_modules/x/ node_modules/x/y src/ src/a.log src/b src/deep/ src/deep/c"},
		{[]string{"node_modules", "*.log"}, "./ src/ src/b src/deep/ src/deep/c"}, {[]string{"/a.log", "src/*"}, "./ node_modules/ node_modules/x/ node_modules/x/y src/"},
		{[]string{"**"}, "./"}} {
		if got := archived(t, c, "/workspace/out", o.excludes); got != o.want {
			t.Errorf("without %q: %s, want %s", o.excludes, got, o.want)
		}
	}
	if _, err := c.Archive(ctx, "/workspace/out", sandbox.ArchiveOptions{Excludes: []string{"[a"}}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("a malformed pattern: %v", err)
	}
	_, err := c.Unpack(ctx, "/workspace/in", sandbox.UnpackOptions{}, io.MultiReader(strings.NewReader("")))
	if err != nil {
		t.Errorf("an empty stream: %v", err)
	}
	stop(t, m)
}

// archived lists the names of a folder's tar stream, in order.
func archived(t *testing.T, c *guestclient.Client, path string, excludes []string) string {
	t.Helper()
	body, err := c.Archive(t.Context(), path, sandbox.ArchiveOptions{Excludes: excludes})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	var names []string
	for r := tar.NewReader(body); ; {
		h, err := r.Next()
		if err == io.EOF {
			slices.Sort(names)
			return strings.Join(names, " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}
