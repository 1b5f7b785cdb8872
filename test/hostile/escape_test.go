package hostile

import (
	"context"
	_ "embed"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

//go:embed escape.py
var escapeSource string

// TestEscape tries the ways out of a sandbox that are known, as root and as its user:
// none leads anywhere, nothing of the host's is to be had, and the sandbox is as well
// afterwards as before.
func TestEscape(t *testing.T) {
	s := rig.Start(t, "--warm", "0")
	ctx := t.Context()
	if _, err := s.CreateVolume(ctx, sandbox.VolumeRequest{Name: "shared", SizeBytes: sandbox.MinVolume}); err != nil {
		t.Fatal(err)
	}
	writer, err := s.Create(ctx, sandbox.CreateRequest{Volumes: []sandbox.VolumeMount{{Volume: "shared", Path: "/shared"}}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, s, writer.ID, "root", "echo kept > /shared/file; chmod 666 /shared/file; chmod 777 /shared")
	box, err := s.Create(ctx, sandbox.CreateRequest{Volumes: []sandbox.VolumeMount{{Volume: "shared", Path: "/shared", ReadOnly: true}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteFile(ctx, string(box.ID), "/opt/escape.py", sandbox.WriteOptions{User: "root"}, strings.NewReader(escapeSource)); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"root", "user"} {
		out := run(t, s, box.ID, user, "python3 /opt/escape.py /shared")
		tried, done := 0, ""
		for line := range strings.Lines(out) {
			switch verdict, what, _ := strings.Cut(strings.TrimSpace(line), " "); verdict {
			case "no":
				tried++
			case "done":
				done = what
			default:
				t.Errorf("%s gets %s", user, line)
			}
		}
		if done == "" || strconv.Itoa(tried) != done {
			t.Errorf("%s: %d of %q attempts were refused:\n%s", user, tried, done, out)
		}
	}
	if got := run(t, s, writer.ID, "user", "cat /shared/file"); got != "kept\n" {
		t.Errorf("the volume holds %q", got)
	}
	if got := run(t, s, box.ID, "user", "echo well"); got != "well\n" {
		t.Errorf("the sandbox says %q", got)
	}
	t.Run("file systems that lie", func(t *testing.T) { fileSystems(t, s) })
}

// run runs a line in a shell and returns what it printed. It must succeed.
func run(t *testing.T, s *rig.Server, id sandbox.ID, user, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	events, err := s.Exec(ctx, string(id), sandbox.Command{Shell: line, User: user, Lossless: true, Merge: true})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	var out strings.Builder
	for {
		e, err := events.Recv()
		if err != nil {
			t.Fatalf("%s: %v after %q", line, err, out.String())
		}
		out.Write(e.Data)
		if e.Exit != nil {
			if e.Exit.Code != 0 {
				t.Fatalf("%s: exit %d: %s", line, e.Exit.Code, out.String())
			}
			return out.String()
		}
	}
}
