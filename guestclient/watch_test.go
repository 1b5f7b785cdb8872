package guestclient_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// patience bounds the waits of these tests; none depends on its length.
const patience = time.Minute

// eye is a watch under test.
type eye struct {
	t    *testing.T
	w    sandbox.Watch
	last sandbox.WatchEvent
}

func look(t *testing.T, c *guestclient.Client, r sandbox.WatchRequest) *eye {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	w, err := c.Watch(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	e := &eye{t: t, w: w}
	if first := e.next(); first.Type != sandbox.WatchReady && r.Cursor == "" {
		t.Fatalf("the first event is %+v", first)
	}
	return e
}

func (e *eye) next() sandbox.WatchEvent {
	e.t.Helper()
	ev, err := e.w.Recv()
	if err != nil {
		e.t.Fatal(err)
	}
	e.last = ev
	return ev
}

// short writes an event in a word: "create /a/b", "rename /a -> /b".
func short(e sandbox.WatchEvent) string {
	if e.Type == sandbox.WatchRename {
		return fmt.Sprintf("rename %s -> %s", e.From, e.Path)
	}
	return strings.TrimSpace(string(e.Type) + " " + e.Path)
}

// until reads up to the event given and returns all of them.
func (e *eye) until(last string) (all []string) {
	e.t.Helper()
	for {
		ev, err := e.w.Recv()
		if err != nil {
			e.t.Fatalf("%v, after %q without %q", err, all, last)
		}
		e.last = ev
		all = append(all, short(ev))
		if short(ev) == last {
			return all
		}
	}
}

// expect reads up to the event given; what came must be exactly these.
func (e *eye) expect(want ...string) {
	e.t.Helper()
	if got := e.until(want[len(want)-1]); !slices.Equal(got, want) {
		e.t.Fatalf("got %q, want %q", got, want)
	}
}

// mark makes and removes a file, so that an end can be waited for.
func mark(t *testing.T, dir, name string) {
	t.Helper()
	do(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWatchTree(t *testing.T) {
	c, root := serveDir(t)
	dir := filepath.Join(root, "w")
	do(t, os.MkdirAll(filepath.Join(dir, "old/deep"), 0o755))
	e := look(t, c, sandbox.WatchRequest{Path: "/w", Recursive: true, Window: time.Millisecond})

	do(t, os.WriteFile(filepath.Join(dir, "old/deep/f"), []byte("x"), 0o644))
	e.expect("create /w/old/deep/f")
	do(t, os.Chmod(filepath.Join(dir, "old/deep/f"), 0o600))
	e.until("attrib /w/old/deep/f")
	if e.last.Entry != sandbox.TypeFile {
		t.Errorf("%+v", e.last)
	}
	do(t, os.Rename(filepath.Join(dir, "old/deep/f"), filepath.Join(dir, "g\xff")))
	e.expect("rename /w/old/deep/f -> /w/g\xff")

	// A folder takes what is beneath it along.
	do(t, os.Rename(filepath.Join(dir, "old"), filepath.Join(dir, "new")))
	e.expect("rename /w/old -> /w/new")
	do(t, os.WriteFile(filepath.Join(dir, "new/deep/h"), nil, 0o644))
	e.expect("create /w/new/deep/h")

	// Out of sight and back.
	do(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(root, "away")))
	e.expect("remove /w/new")
	do(t, os.WriteFile(filepath.Join(root, "away/deep/unseen"), nil, 0o644))
	do(t, os.Rename(filepath.Join(root, "away"), filepath.Join(dir, "back")))
	got := e.until("create /w/back/deep/unseen")
	if !slices.Contains(got, "create /w/back") || !slices.Contains(got, "create /w/back/deep") {
		t.Errorf("a folder that comes: %q", got)
	}
	do(t, os.WriteFile(filepath.Join(dir, "back/deep/after"), nil, 0o644))
	e.until("create /w/back/deep/after")

	do(t, os.RemoveAll(filepath.Join(dir, "back")))
	e.until("remove /w/back")

	// Berth's own writes show their end only.
	put(t, c, "/w/atomic", "bytes")
	mark(t, dir, "end")
	e.expect("create /w/atomic", "create /w/end")
}

// TestWatchRaces makes trees faster than they can be looked at: everything in
// them is told, once.
func TestWatchRaces(t *testing.T) {
	c, root := serveDir(t)
	dir := filepath.Join(root, "w")
	do(t, os.Mkdir(dir, 0o755))
	e := look(t, c, sandbox.WatchRequest{Path: "/w", Recursive: true})
	var want []string
	for i := range 40 {
		at := filepath.Join(dir, fmt.Sprint(i), "a", "b")
		do(t, os.MkdirAll(at, 0o755))
		for _, n := range []string{"x", "y"} {
			do(t, os.WriteFile(filepath.Join(at, n), []byte("1"), 0o644))
		}
		p := fmt.Sprintf("/w/%d", i)
		want = append(want, "create "+p, "create "+p+"/a", "create "+p+"/a/b", "create "+p+"/a/b/x", "create "+p+"/a/b/y")
	}
	mark(t, dir, "end")
	got := e.until("create /w/end")
	for _, w := range want {
		if n := count(got, w); n != 1 {
			t.Errorf("%q came %d times", w, n)
		}
	}
}

func count(list []string, s string) (n int) {
	for _, l := range list {
		if l == s {
			n++
		}
	}
	return n
}

// TestWatchRoot removes and makes again what is watched, and the folder above.
func TestWatchRoot(t *testing.T) {
	c, root := serveDir(t)
	dir := filepath.Join(root, "a/b")
	do(t, os.MkdirAll(dir, 0o755))
	e := look(t, c, sandbox.WatchRequest{Path: "/a/b", Recursive: true, Window: time.Millisecond})
	for range 3 {
		do(t, os.RemoveAll(filepath.Join(root, "a")))
		e.until("remove /a/b")
		do(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
		do(t, os.WriteFile(filepath.Join(dir, "sub/f"), nil, 0o644))
		e.until("create /a/b/sub/f")
		do(t, os.WriteFile(filepath.Join(dir, "sub/g"), nil, 0o644))
		e.until("create /a/b/sub/g")
	}
	// Another one in its place.
	do(t, os.MkdirAll(filepath.Join(root, "z/b"), 0o755))
	do(t, os.WriteFile(filepath.Join(root, "z/b/other"), nil, 0o644))
	do(t, os.Rename(filepath.Join(root, "a"), filepath.Join(root, "gone")))
	e.until("remove /a/b")
	do(t, os.Rename(filepath.Join(root, "z"), filepath.Join(root, "a")))
	e.until("create /a/b/other")
}

func TestWatchFile(t *testing.T) {
	c, root := serveDir(t)
	do(t, os.Mkdir(filepath.Join(root, "d"), 0o755))
	file := filepath.Join(root, "d/f")
	do(t, os.WriteFile(file, []byte("1"), 0o644))
	e := look(t, c, sandbox.WatchRequest{Path: "/d/f", Window: time.Millisecond})
	mark(t, filepath.Join(root, "d"), "other")
	do(t, os.WriteFile(file, []byte("2"), 0o644))
	e.expect("modify /d/f")
	put(t, c, "/d/f", "3") // takes its place
	e.until("create /d/f")
	do(t, os.Remove(file))
	e.until("remove /d/f")
	do(t, os.WriteFile(file, []byte("4"), 0o644))
	e.until("create /d/f")
}

func TestWatchPatterns(t *testing.T) {
	c, root := serveDir(t)
	dir := filepath.Join(root, "w")
	do(t, os.MkdirAll(filepath.Join(dir, "node_modules/x"), 0o755))
	e := look(t, c, sandbox.WatchRequest{Path: "/w", Recursive: true, Window: time.Millisecond,
		Include: []string{"*.go", "docs/**", "end"}, Exclude: []string{"node_modules", "*_test.go"}})
	for _, n := range []string{"a.go", "a.txt", "a_test.go", "node_modules/x/b.go", "docs/c/d.txt"} {
		do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, n)), 0o755))
		do(t, os.WriteFile(filepath.Join(dir, n), nil, 0o644))
	}
	do(t, os.Rename(filepath.Join(dir, "a.txt"), filepath.Join(dir, "b.go"))) // comes into sight
	do(t, os.Rename(filepath.Join(dir, "a.go"), filepath.Join(dir, "c.txt"))) // goes out of sight
	mark(t, dir, "end")
	got := e.until("create /w/end")
	slices.Sort(got)
	want := []string{"create /w/a.go", "create /w/b.go", "create /w/docs", "create /w/docs/c", "create /w/docs/c/d.txt", "create /w/end", "remove /w/a.go"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}

	flat := look(t, c, sandbox.WatchRequest{Path: "/w", Window: time.Millisecond})
	do(t, os.WriteFile(filepath.Join(dir, "docs/c/e.txt"), nil, 0o644))
	do(t, os.WriteFile(filepath.Join(dir, "top"), nil, 0o644))
	flat.expect("create /w/top")
}

// TestWatchWindow: many changes of one path are one event.
func TestWatchWindow(t *testing.T) {
	c, root := serveDir(t)
	dir := filepath.Join(root, "w")
	do(t, os.Mkdir(dir, 0o755))
	do(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o644))
	e := look(t, c, sandbox.WatchRequest{Path: "/w", Window: 2 * time.Second})
	for range 200 {
		do(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644))
		do(t, os.Chmod(filepath.Join(dir, "f"), 0o600))
	}
	mark(t, dir, "end")
	if got := e.until("create /w/end"); count(got, "modify /w/f") > 2 || count(got, "attrib /w/f") > 2 || count(got, "modify /w/f") < 1 {
		t.Errorf("%d events: %.300q", len(got), got)
	}
}

func TestWatchCursor(t *testing.T) {
	c, root := serveDir(t)
	dir := filepath.Join(root, "w")
	do(t, os.Mkdir(dir, 0o755))
	req := sandbox.WatchRequest{Path: "/w", Recursive: true, Window: time.Millisecond}
	e := look(t, c, req)
	mark(t, dir, "seen")
	e.until("create /w/seen")
	req.Cursor = e.last.Cursor
	do(t, e.w.Close())
	mark(t, dir, "missed1")
	mark(t, dir, "missed2")
	again := look(t, c, req)
	again.expect("create /w/missed1", "create /w/missed2")

	// Two readers of one watcher see the same.
	req.Cursor = again.last.Cursor
	third := look(t, c, req)
	mark(t, dir, "both")
	again.expect("create /w/both")
	third.expect("create /w/both")

	// More than is kept: an overflow, then what is left.
	do(t, again.w.Close())
	do(t, third.w.Close())
	for i := range 6000 {
		mark(t, dir, fmt.Sprintf("many%d", i))
	}
	mark(t, dir, "end")
	late := look(t, c, req)
	got := late.until("create /w/end")
	if !slices.Contains(got, "overflow") && len(got) < 6000 {
		t.Errorf("%d events without an overflow", len(got))
	}

	// A cursor of a watcher that is no more.
	req.Cursor = "abcdefghijklmnop-7"
	lost, err := c.Watch(t.Context(), req)
	do(t, err)
	defer lost.Close()
	if ev, err := lost.Recv(); err != nil || ev.Type != sandbox.WatchOverflow || ev.Reason == "" {
		t.Errorf("%+v, %v", ev, err)
	}
	other := sandbox.WatchRequest{Path: "/", Cursor: late.last.Cursor}
	_, err = c.Watch(t.Context(), other)
	wantKind(t, "a cursor of another watch", err, sandbox.Invalid)
}

// TestWatchSlowReader: a reader that does not read holds nothing up, and is told
// what it missed.
func TestWatchSlowReader(t *testing.T) {
	c, root := serveDir(t)
	dir := filepath.Join(root, "w")
	do(t, os.Mkdir(dir, 0o755))
	slow := look(t, c, sandbox.WatchRequest{Path: "/w", Recursive: true, Window: time.Millisecond})
	for i := range 300 {
		do(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755))
		for j := range 50 {
			mark(t, filepath.Join(dir, fmt.Sprint(i)), strings.Repeat("n", 200)+fmt.Sprint(j))
		}
	}
	mark(t, dir, "end")
	quick := look(t, c, sandbox.WatchRequest{Path: "/w"})
	mark(t, dir, "quick")
	quick.until("create /w/quick")
	got := slow.until("create /w/quick")
	if !slices.Contains(got, "overflow") && len(got) < 300*51+2 {
		t.Errorf("%d events and no overflow", len(got))
	}
}

func TestWatchRefusals(t *testing.T) {
	c := serve(t)
	for what, r := range map[string]sandbox.WatchRequest{
		"a relative path":  {Path: "w"},
		"a bad pattern":    {Path: "/workspace", Include: []string{"[a"}},
		"an empty pattern": {Path: "/workspace", Exclude: []string{""}},
		"stars":            {Path: "/workspace", Exclude: []string{strings.Repeat("**/", 9)}},
		"patterns":         {Path: "/workspace", Exclude: slices.Repeat([]string{"x"}, 65)},
		"a bad cursor":     {Path: "/workspace", Cursor: "x"},
		"a long window":    {Path: "/workspace", Window: time.Hour},
	} {
		_, err := c.Watch(t.Context(), r)
		wantKind(t, what, err, sandbox.Invalid)
	}
	_, err := c.Watch(t.Context(), sandbox.WatchRequest{Path: "/none"})
	wantKind(t, "a missing path", err, sandbox.NotFound)

	// A thousand watchers: some dozens, then a clear refusal; those that have
	// ended make room.
	var open []sandbox.Watch
	for range 1000 {
		w, err := c.Watch(t.Context(), sandbox.WatchRequest{Path: "/workspace"})
		if err != nil {
			wantKind(t, "one watcher too many", err, sandbox.Exhausted)
			break
		}
		open = append(open, w)
	}
	if len(open) < 16 || len(open) > 256 {
		t.Errorf("%d watchers", len(open))
	}
	for _, w := range open {
		w.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		w, err := c.Watch(ctx, sandbox.WatchRequest{Path: "/workspace"})
		if err == nil {
			w.Close()
			return
		}
		wantKind(t, "while the others end", err, sandbox.Exhausted)
	}
}
