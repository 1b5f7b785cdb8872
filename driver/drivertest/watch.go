package drivertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// sight is a watch under test.
type sight struct {
	t    *testing.T
	w    sandbox.Watch
	last sandbox.WatchEvent
}

func watchFiles(t *testing.T, c *guestclient.Client, r sandbox.WatchRequest) *sight {
	t.Helper()
	w, err := c.Watch(within(t), r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	s := &sight{t: t, w: w}
	s.last, err = w.Recv()
	if err != nil || s.last.Type != sandbox.WatchReady {
		t.Fatalf("the first event is %+v, %v", s.last, err)
	}
	return s
}

// until reads up to an event, written "type path" or "rename from path".
func (s *sight) until(want string) (all []string) {
	s.t.Helper()
	for {
		e, err := s.w.Recv()
		if err != nil {
			s.t.Fatalf("%v, after %q without %q", err, all, want)
		}
		s.last = e
		got := strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", e.Type, e.From, e.Path)), " ")
		if all = append(all, got); got == want {
			return all
		}
	}
}

// testWatch: what processes and calls do to files is told.
func testWatch(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	ctx := within(t)
	_, err := c.Watch(ctx, sandbox.WatchRequest{Path: "/workspace/none"})
	wantKind(t, "watch a missing path", err, sandbox.NotFound)
	output(t, c, "mkdir -p w/old/deep")
	req := sandbox.WatchRequest{Path: "/workspace/w", Recursive: true, Window: time.Millisecond, Exclude: []string{"node_modules"}}
	s := watchFiles(t, c, req)

	for _, step := range []struct{ line, want string }{
		{"echo 1 > w/old/deep/f", "create /workspace/w/old/deep/f"},
		{"echo 2 >> w/old/deep/f", "modify /workspace/w/old/deep/f"},
		{"chmod 600 w/old/deep/f", "attrib /workspace/w/old/deep/f"},
		{"mv w/old/deep/f w/g", "rename /workspace/w/old/deep/f /workspace/w/g"},
		{"mv w/old w/new", "rename /workspace/w/old /workspace/w/new"},
		{"echo > w/new/deep/h", "create /workspace/w/new/deep/h"},
		{"mv w/new away", "remove /workspace/w/new"},
		{"echo > away/deep/i; mv away w/back", "create /workspace/w/back/deep/i"},
		{"mkdir -p w/node_modules/x; echo > w/node_modules/x/y; rm w/g", "remove /workspace/w/g"},
		{"rm -r w/back", "remove /workspace/w/back"},
		{"rm -r w", "remove /workspace/w"},
		{"mkdir -p w/again; echo > w/again/j", "create /workspace/w/again/j"},
		{"echo > w/again/k", "create /workspace/w/again/k"},
	} {
		output(t, c, step.line)
		for _, e := range s.until(step.want) {
			if strings.Contains(e, "node_modules") {
				t.Errorf("%s: told of %q", step.line, e)
			}
		}
	}
	put(t, c, "/workspace/w/by-call", "x")
	if got := s.until("create /workspace/w/by-call"); slices.ContainsFunc(got, func(e string) bool { return strings.Contains(e, ".berth-") }) {
		t.Errorf("a write by call: %q", got)
	}
	s.race(c)

	req.Cursor = s.last.Cursor
	if err := s.w.Close(); err != nil {
		t.Error(err)
	}
	output(t, c, "echo > w/meanwhile")
	watchFiles(t, c, req).until("create /workspace/w/meanwhile")
	stop(t, m)
}

// race makes trees faster than they can be looked at.
func (s *sight) race(c *guestclient.Client) {
	s.t.Helper()
	output(s.t, c, `for i in 1 2 3 4 5 6 7 8 9; do mkdir -p w/r$i/a/b; echo > w/r$i/a/b/x; echo > w/r$i/a/y; done; echo > w/end`)
	got := s.until("create /workspace/w/end")
	for i := 1; i <= 9; i++ {
		for _, p := range []string{"", "/a", "/a/b", "/a/b/x", "/a/y"} {
			want, n := fmt.Sprintf("create /workspace/w/r%d%s", i, p), 0
			for _, g := range got {
				if g == want {
					n++
				}
			}
			if n != 1 {
				s.t.Errorf("%q came %d times", want, n)
			}
		}
	}
}
