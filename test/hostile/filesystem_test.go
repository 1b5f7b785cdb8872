package hostile

import (
	"context"
	_ "embed"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

//go:embed fuse.py
var fuseSource string

// fileSystems has a sandbox that may mount FUSE file systems serve such as lie, break off and
// never answer: those who use them get errors and can be ended, the sandbox is well, and with
// one that holds up all who ask it is put aside, copied and removed as ever.
func fileSystems(t *testing.T, s *rig.Server) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	box, err := s.Create(ctx, sandbox.CreateRequest{Limits: sandbox.Limits{MemoryBytes: 256 << 20, FuseMounts: 4}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteFile(ctx, string(box.ID), "/opt/fuse.py", sandbox.WriteOptions{User: "root"}, strings.NewReader(fuseSource)); err != nil {
		t.Fatal(err)
	}
	for _, a := range []struct {
		user, what, folder string
		least              int // attempts
	}{{"root", "requests", "/mnt", 30}, {"user", "requests", "/home/user", 30}, {"user", "whole", "/home/user", 45}} {
		lines := strings.Split(strings.TrimSpace(run(t, s, box.ID, a.user, "python3 /opt/fuse.py "+a.what+" "+a.folder)), "\n")
		for _, line := range lines[:len(lines)-1] {
			if !strings.HasPrefix(line, "well ") {
				t.Errorf("%s: %s", a.user, line)
			}
		}
		if end := lines[len(lines)-1]; end != "done" || len(lines) < a.least {
			t.Errorf("%s, %s: after %d lines it says %q", a.user, a.what, len(lines), end)
		}
	}
	wedged(ctx, t, s, box.ID)
}

// wedged has a file system hold up all who ask it, and does to its sandbox what is done to
// others.
func wedged(ctx context.Context, t *testing.T, s *rig.Server, id sandbox.ID) {
	t.Helper()
	const folder = "/mnt/wedge"
	run(t, s, id, "root", "mkdir "+folder)
	p, err := s.StartProcess(ctx, string(id), sandbox.Command{Argv: []string{"python3", "/opt/fuse.py", "wedge", folder}, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WaitLine(ctx, string(id), p.ID, sandbox.LineWait{Regexp: "^wedged$"}); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(ctx, time.Second)
	if _, _, err := s.ReadFile(brief, string(id), folder+"/file", sandbox.ReadRange{}); err == nil {
		t.Error("a file is read that nobody serves")
	}
	cancel()
	well := func(id sandbox.ID, when string) {
		t.Helper()
		if got := run(t, s, id, "user", "echo well"); got != "well\n" {
			t.Errorf("%s it says %q", when, got)
		}
	}
	well(id, "wedged")
	for range 2 {
		if _, err := s.Pause(ctx, string(id)); err != nil {
			t.Fatalf("pause: %v", err)
		}
		if _, err := s.Resume(ctx, string(id)); err != nil {
			t.Fatalf("resume: %v", err)
		}
		well(id, "after a pause")
	}
	fork, err := s.Fork(ctx, string(id), sandbox.ForkRequest{Count: 2})
	if err != nil {
		t.Fatalf("fork: %v", err)
	}
	for _, child := range fork.Children {
		if child.Err != nil {
			t.Errorf("a fork: %v", child.Err)
			continue
		}
		well(child.Sandbox.ID, "as a fork")
		if err := s.Remove(ctx, string(child.Sandbox.ID)); err != nil {
			t.Errorf("remove a fork: %v", err)
		}
	}
	// The end of those who wait is the end of it all.
	run(t, s, id, "root", "pkill -KILL -f 'fuse.py wedg[e]'; pkill -KILL fusermount; while mountpoint -q "+folder+"; do bash -c 'exec -a fusermount /.berth/berth-guest -uzq "+folder+"'; sleep 0.1; done")
	well(id, "afterwards")
	if _, err := s.Stop(ctx, string(id)); err != nil {
		t.Errorf("stop: %v", err)
	}
	well(id, "after a new start")
}
