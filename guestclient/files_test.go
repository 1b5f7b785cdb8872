package guestclient_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

func put(t *testing.T, c *guestclient.Client, path, text string) {
	t.Helper()
	if _, err := c.WriteFile(t.Context(), path, sandbox.WriteOptions{Parents: true}, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, c *guestclient.Client, path string, r sandbox.ReadRange) (string, error) {
	t.Helper()
	body, _, err := c.ReadFile(t.Context(), path, r)
	if err != nil {
		return "", err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	return string(data), err
}

// TestPages lists a tree in pages of every size and gets the same list.
func TestPages(t *testing.T) {
	c := serve(t)
	var want []string
	for _, d := range []string{"a", "a-b", "a.b", "b", "é", "\xff"} { // "a/x" follows "a", before "a-b"
		want = append(want, "/w/"+d)
		for _, f := range []string{"1", "2", "x.y"} {
			put(t, c, "/w/"+d+"/"+f, "")
			want = append(want, "/w/"+d+"/"+f)
		}
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []string
		after := ""
		for {
			page, more, err := c.ListDir(t.Context(), "/w", 2, limit, after)
			if err != nil || len(page) > limit {
				t.Fatalf("limit %d: %d entries, %v", limit, len(page), err)
			}
			for _, f := range page {
				got = append(got, f.Path)
			}
			if !more {
				break
			}
			after = got[len(got)-1]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("limit %d: %q, want %q", limit, got, want)
		}
	}
	// A cursor whose entry was removed goes on behind where it was.
	page, _, err := c.ListDir(t.Context(), "/w", 2, 0, "/w/a/15")
	if err != nil || page[0].Path != "/w/a/2" {
		t.Errorf("%+v %v", page, err)
	}
	if page, _, err = c.ListDir(t.Context(), "/w", 1, 0, "/w/aa/zz"); err != nil || page[0].Path != "/w/b" {
		t.Errorf("%+v %v", page, err)
	}
	_, _, err = c.ListDir(t.Context(), "/w", 1, 0, "/elsewhere")
	wantKind(t, "a cursor of another folder", err, sandbox.Invalid)
	_, _, err = c.ListDir(t.Context(), "/w", -1, 0, "")
	wantKind(t, "a negative depth", err, sandbox.Invalid)
}

func TestManyEntries(t *testing.T) {
	c, dir := serveDir(t)
	if err := os.Mkdir(filepath.Join(dir, "many"), 0o755); err != nil {
		t.Fatal(err)
	}
	const n = 25_000
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, "many", fmt.Sprintf("%05d", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	count, after := 0, ""
	for {
		page, more, err := c.ListDir(t.Context(), "/many", 1, 0, after)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range page {
			if f.Name != fmt.Sprintf("%05d", count) {
				t.Fatalf("entry %d is %q", count, f.Name)
			}
			count++
		}
		if !more {
			break
		}
		after = page[len(page)-1].Path
	}
	if count != n {
		t.Errorf("%d entries", count)
	}
}

// TestNoLinkLeavesTheScratch: a process may make any link; the file calls do not
// follow it out.
func TestNoLinkLeavesTheScratch(t *testing.T) {
	c, dir := serveDir(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"abs": outside, "up": "../../../../../../../" + outside, "file": outside + "/secret", "dangling": outside + "/new"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"/abs/secret", "/up/secret", "/file", "/abs/../abs/secret", "/../../../../" + outside + "/secret"} {
		if _, err := get(t, c, p, sandbox.ReadRange{}); err == nil {
			t.Errorf("%s was read", p)
		}
	}
	for _, p := range []string{"/abs/new", "/up/new", "/file", "/dangling", "/abs/x/y"} {
		_, err := c.WriteFile(t.Context(), p, sandbox.WriteOptions{Parents: true}, strings.NewReader("x"))
		wantKind(t, "write "+p, err, sandbox.Invalid)
	}
	_, err := c.Stat(t.Context(), "/file", true)
	wantKind(t, "stat", err, sandbox.Invalid)
	if sandbox.HintOf(err) == "" {
		t.Error("no hint")
	}
	_, _, err = c.ListDir(t.Context(), "/abs", 1, 0, "")
	wantKind(t, "list", err, sandbox.Invalid)
	wantKind(t, "remove", c.Remove(t.Context(), "/abs/secret", true), sandbox.Invalid)
	wantKind(t, "move", c.Move(t.Context(), "/abs/secret", "/stolen", false), sandbox.Invalid)
	_, err = c.Start(t.Context(), sandbox.Command{Argv: []string{"true"}, Cwd: "/abs"})
	wantKind(t, "start in", err, sandbox.Invalid)
	left, err := os.ReadDir(outside)
	if err != nil || len(left) != 1 {
		t.Errorf("outside: %v %v", left, err)
	}
	if err := c.Remove(t.Context(), "/abs", true); err != nil {
		t.Errorf("removing the link itself: %v", err)
	}
	if _, err := os.Stat(filepath.Join(outside, "secret")); err != nil {
		t.Error(err)
	}
}

// TestABodyThatBreaksLeavesNothing neither in place nor beside it.
func TestABodyThatBreaksLeavesNothing(t *testing.T) {
	c, dir := serveDir(t)
	put(t, c, "/w/file", "old")
	broken := errors.New("broken on the way")
	for _, body := range []io.Reader{
		brokenReader{broken},
		io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), brokenReader{broken}),
	} {
		_, err := c.WriteFile(t.Context(), "/w/file", sandbox.WriteOptions{}, body)
		if !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
	}
	for {
		entries, err := os.ReadDir(filepath.Join(dir, "w"))
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 1 {
			break // the guest notices soon
		}
	}
	if got, err := get(t, c, "/w/file", sandbox.ReadRange{}); got != "old" || err != nil {
		t.Errorf("%q %v", got, err)
	}
}

type brokenReader struct{ err error }

func (r brokenReader) Read([]byte) (int, error) { return 0, r.err }

func TestModesAndRanges(t *testing.T) {
	c, dir := serveDir(t)
	info, err := c.WriteFile(t.Context(), "/f", sandbox.WriteOptions{Mode: 0o4750}, strings.NewReader("0123456789"))
	if err != nil || info.Mode != 0o4750 {
		t.Fatalf("%+v %v", info, err)
	}
	if info, err = c.WriteFile(t.Context(), "/f", sandbox.WriteOptions{}, strings.NewReader("0123456789")); err != nil || info.Mode != 0o4750 {
		t.Errorf("a mode that is not given stays: %o %v", info.Mode, err)
	}
	_, err = c.WriteFile(t.Context(), "/f", sandbox.WriteOptions{Mode: 0o10000}, strings.NewReader(""))
	wantKind(t, "a mode out of range", err, sandbox.Invalid)
	for _, r := range []struct {
		offset, length int64
		want           string
	}{{0, 0, "0123456789"}, {3, 0, "3456789"}, {3, 4, "3456"}, {8, 100, "89"}, {10, 0, ""}} {
		if got, err := get(t, c, "/f", sandbox.ReadRange{Offset: r.offset, Length: r.length}); got != r.want || err != nil {
			t.Errorf("%d+%d: %q %v", r.offset, r.length, got, err)
		}
	}
	_, err = get(t, c, "/f", sandbox.ReadRange{Offset: 11})
	wantKind(t, "behind the end", err, sandbox.Invalid)
	_, err = get(t, c, "/f", sandbox.ReadRange{Offset: -1})
	wantKind(t, "before the beginning", err, sandbox.Invalid)

	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = get(t, c, "/fifo", sandbox.ReadRange{})
	wantKind(t, "read a pipe", err, sandbox.Invalid)
	_, err = c.WriteFile(t.Context(), "/fifo", sandbox.WriteOptions{}, strings.NewReader("x"))
	wantKind(t, "write a pipe", err, sandbox.Invalid)
	_, err = c.WriteFile(t.Context(), "/f/below", sandbox.WriteOptions{Parents: true}, strings.NewReader("x"))
	wantKind(t, "write beneath a file", err, sandbox.Invalid)
}
