package drivertest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// testFiles: the file calls and the processes see one file system.
func testFiles(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	ctx := within(t)

	info, err := c.WriteFile(ctx, "/workspace/a/b/hello.txt", sandbox.WriteOptions{Parents: true, Mode: 0o755}, strings.NewReader("#!/bin/sh\necho hello\n"))
	if err != nil || info.Size != 21 || info.Mode != 0o755 || info.Name != "hello.txt" || info.Type != sandbox.TypeFile {
		t.Fatalf("write: %+v, %v", info, err)
	}
	if got := output(t, c, "./a/b/hello.txt"); got != "hello\n" {
		t.Errorf("run what was written: %q", got)
	}
	output(t, c, "printf inside > a/from-inside; ln -s from-inside a/link")
	if got := read(t, c, "/workspace/a/link", sandbox.ReadRange{}); string(got) != "inside" {
		t.Errorf("read what was made inside: %q", got)
	}
	if got := read(t, c, "/workspace/a/from-inside", sandbox.ReadRange{Offset: 2, Length: 3}); string(got) != "sid" {
		t.Errorf("range: %q", got)
	}
	link, err := c.Stat(ctx, "/workspace/a/link", false)
	if err != nil || link.Type != sandbox.TypeSymlink || link.Target != "from-inside" {
		t.Errorf("link: %+v, %v", link, err)
	}
	if info, err = c.WriteFile(ctx, "/workspace/a/link", sandbox.WriteOptions{}, strings.NewReader("through")); err != nil || info.Type != sandbox.TypeFile {
		t.Errorf("write through a link: %+v, %v", info, err)
	}
	if got := output(t, c, "cat a/from-inside; readlink a/link"); got != "throughfrom-inside\n" {
		t.Errorf("after a write through a link: %q", got)
	}

	list, more, err := c.ListDir(ctx, "/workspace", 3, 0, "")
	if err != nil || more || !slices.Equal(paths(list), []string{"/workspace/a", "/workspace/a/b", "/workspace/a/b/hello.txt", "/workspace/a/from-inside", "/workspace/a/link"}) {
		t.Errorf("list: %q %v %v", paths(list), more, err)
	}
	if _, err := c.MakeDir(ctx, "/workspace/d", 0o700, "", false); err != nil {
		t.Errorf("make: %v", err)
	}
	if err := c.Move(ctx, "/workspace/a/b/hello.txt", "/workspace/d/moved", false); err != nil {
		t.Errorf("move: %v", err)
	}
	if got := output(t, c, "./d/moved"); got != "hello\n" {
		t.Errorf("after the move: %q", got)
	}
	testFileRefusals(t, c)
	if err := c.Remove(ctx, "/workspace/a", true); err != nil {
		t.Errorf("remove: %v", err)
	}
	if got := output(t, c, "ls"); got != "d\n" {
		t.Errorf("after the removal: %q", got)
	}
	stop(t, m)
}

// testFileRefusals expects /workspace with a/, a/from-inside and d/moved.
func testFileRefusals(t *testing.T, c *guestclient.Client) {
	t.Helper()
	ctx := within(t)
	_, err := c.Stat(ctx, "/workspace/none", false)
	wantKind(t, "stat nothing", err, sandbox.NotFound)
	_, err = c.Stat(ctx, "workspace", false)
	wantKind(t, "a relative path", err, sandbox.Invalid)
	_, err = c.Stat(ctx, "/a\x00b", false)
	wantKind(t, "a NUL in a path", err, sandbox.Invalid)
	_, err = c.Stat(ctx, "/"+strings.Repeat("n", 300), false)
	wantKind(t, "a long name", err, sandbox.Invalid)
	_, _, err = c.ReadFile(ctx, "/workspace/none", sandbox.ReadRange{})
	wantKind(t, "read nothing", err, sandbox.NotFound)
	_, _, err = c.ReadFile(ctx, "/workspace/a", sandbox.ReadRange{})
	wantKind(t, "read a folder", err, sandbox.Invalid)
	_, _, err = c.ReadFile(ctx, "/workspace/d/moved", sandbox.ReadRange{Offset: 1 << 40})
	wantKind(t, "read behind the end", err, sandbox.Invalid)
	_, err = c.WriteFile(ctx, "/workspace/none/file", sandbox.WriteOptions{}, strings.NewReader("x"))
	wantKind(t, "write without the folder", err, sandbox.NotFound)
	_, err = c.WriteFile(ctx, "/workspace/a", sandbox.WriteOptions{}, strings.NewReader("x"))
	wantKind(t, "write over a folder", err, sandbox.Invalid)
	_, err = c.WriteFile(ctx, "/workspace/d/moved/x", sandbox.WriteOptions{Parents: true}, strings.NewReader("x"))
	wantKind(t, "write beneath a file", err, sandbox.Invalid)
	_, err = c.MakeDir(ctx, "/workspace/a", 0, "", false)
	wantKind(t, "make what is there", err, sandbox.Conflict)
	if _, err = c.MakeDir(ctx, "/workspace/a", 0, "", true); err != nil {
		t.Errorf("make what is there, with parents: %v", err)
	}
	wantKind(t, "move onto something", c.Move(ctx, "/workspace/a/from-inside", "/workspace/d/moved", false), sandbox.Conflict)
	wantKind(t, "move nothing", c.Move(ctx, "/workspace/none", "/workspace/x", false), sandbox.NotFound)
	wantKind(t, "move into itself", c.Move(ctx, "/workspace/a", "/workspace/a/b/c", false), sandbox.Invalid)
	wantKind(t, "remove nothing", c.Remove(ctx, "/workspace/none", true), sandbox.NotFound)
	wantKind(t, "remove what is not empty", c.Remove(ctx, "/workspace/a", false), sandbox.Conflict)
	wantKind(t, "remove the root", c.Remove(ctx, "/", true), sandbox.Invalid)
	_, _, err = c.ListDir(ctx, "/workspace/d/moved", 1, 0, "")
	wantKind(t, "list a file", err, sandbox.Invalid)
}

func read(t *testing.T, c *guestclient.Client, path string, r sandbox.ReadRange) []byte {
	t.Helper()
	body, _, err := c.ReadFile(within(t), path, r)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return data
}

func paths(list []sandbox.FileInfo) []string {
	var p []string
	for _, f := range list {
		p = append(p, f.Path)
	}
	return p
}

// noise is n bytes that no compression makes smaller, the same on every call.
func noise(n int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{1}), n)
}

// testLargeFiles: many bytes pass unchanged, and a body that breaks off leaves
// the old file.
func testLargeFiles(t *testing.T, h Harness) {
	const size = 24<<20 + 17
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	ctx := within(t)
	if _, err := c.WriteFile(ctx, "/workspace/big", sandbox.WriteOptions{}, noise(size)); err != nil {
		t.Fatal(err)
	}
	body, info, err := c.ReadFile(ctx, "/workspace/big", sandbox.ReadRange{})
	if err != nil || info.Size != size {
		t.Fatalf("%+v, %v", info, err)
	}
	defer body.Close()
	got, want := sha256.New(), sha256.New()
	if n, err := io.Copy(got, body); err != nil || n != size {
		t.Fatalf("%d bytes came back: %v", n, err)
	}
	io.Copy(want, noise(size))
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Error("other bytes came back")
	}

	broken := errors.New("the disk of the caller broke")
	_, err = c.WriteFile(ctx, "/workspace/big", sandbox.WriteOptions{}, io.MultiReader(noise(3<<20), errReader{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("a broken body: %v", err)
	}
	eventually(t, "nothing but the old file is left", func() bool {
		list, _, err := c.ListDir(ctx, "/workspace", 1, 0, "")
		return err == nil && len(list) == 1 && list[0].Size == size
	})

	// A process that prints as much loses nothing when it is asked not to.
	r := run(t, c, sandbox.Command{Argv: []string{"cat", "big"}, Lossless: true})
	sum := sha256.Sum256(r.stdout.Bytes())
	if r.missed != 0 || !bytes.Equal(sum[:], want.Sum(nil)) {
		t.Errorf("cat gave %d bytes and missed %d", r.stdout.Len(), r.missed)
	}
	stop(t, m)
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }
