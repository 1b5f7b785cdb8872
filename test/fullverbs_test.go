package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

// fullVerb is a verb that is tried on a full disk, and again when there is room.
type fullVerb struct {
	what string
	do   func(ctx context.Context) error
}

// TestEveryVerbOnAFullDisk: with little left of the server's disk, with not a byte, and with no
// file more to be had, every verb either does what it should or says that there is no room, what
// was there stays, and nothing is left of what was begun.
func TestEveryVerbOnAFullDisk(t *testing.T) {
	s := startOnSmallDisk(t, "size=1g,nr_inodes=4096", "--warm", "0")
	box, err := s.Create(t.Context(), sandbox.CreateRequest{Limits: sandbox.Limits{MemoryBytes: 256 << 20, DiskBytes: 64 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	id := string(box.ID)
	if _, err := s.WriteFile(t.Context(), id, "/workspace/kept", sandbox.WriteOptions{}, strings.NewReader("kept")); err != nil {
		t.Fatal(err)
	}
	verbs := fullVerbs(s, id)
	before := files(t, s.Data)
	for _, leave := range []int64{1 << 20, 64 << 10, 4 << 10, 0} {
		fill(t, s.Data, leave)
		tryFull(t, s, id, fmt.Sprint("with ", leave, " bytes left"), verbs)
	}
	emptied(t, s)
	takeFiles(t, s.Data)
	tryFull(t, s, id, "with no file left", verbs)
	emptied(t, s)
	for _, v := range verbs {
		if err := v.do(t.Context()); err != nil {
			t.Errorf("%s once there is room: %v (%s)", v.what, err, sandbox.HintOf(err))
		}
	}
	if got := read(t, s, id, "/workspace/kept"); got != "kept" {
		t.Errorf("the file holds %q", got)
	}
	var more []string
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		more = slices.DeleteFunc(files(t, s.Data), func(name string) bool { return slices.Contains(before, name) })
		if len(more) == 0 {
			return
		}
	}
	t.Errorf("left over: %q", more)
}

// tryFull tries verbs while there is no room. The sandbox must stay whole.
func tryFull(t *testing.T, s *rig.Server, id, when string, verbs []fullVerb) {
	t.Helper()
	for _, v := range verbs {
		err := v.do(t.Context())
		if err != nil && (sandbox.KindOf(err) != sandbox.Exhausted || sandbox.HintOf(err) == "") {
			t.Errorf("%s %s: %v (%s)", v.what, when, err, sandbox.HintOf(err))
		}
		t.Logf("%s %s: %v", v.what, when, err)
		if b, err := s.Get(t.Context(), id); err != nil || b.State == sandbox.Failed {
			t.Fatalf("after %s %s: %+v, %v", v.what, when, b, err)
		}
	}
}

// takeFiles makes files until a disk has no more.
func takeFiles(t *testing.T, disk string) {
	t.Helper()
	dir := filepath.Join(disk, "fill")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		err := os.WriteFile(filepath.Join(dir, strconv.Itoa(n)), nil, 0o600)
		if errors.Is(err, unix.ENOSPC) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// emptied takes away what fills the disk, and waits until the server has seen that.
func emptied(t *testing.T, s *rig.Server) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(s.Data, "fill")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server sees that there is room", func() bool {
		st, err := s.Status(t.Context())
		return err == nil && st.Disk != nil && !st.Disk.Low
	})
}

// files lists what lies beneath a server's data, but for the programs that its driver keeps.
func files(t *testing.T, data string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) { // it has gone meanwhile
			return nil
		}
		if err == nil && filepath.Ext(path) != ".erofs" {
			all = append(all, strings.TrimPrefix(path, data))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// fullVerbs are those of one sandbox and those that make more, in an order in which
// each finds what it needs. What they make they remove.
func fullVerbs(s *rig.Server, id string) []fullVerb {
	box := func(verb func(context.Context, string) (sandbox.Sandbox, error)) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := verb(ctx, id)
			return err
		}
	}
	return []fullVerb{
		{"exec", func(ctx context.Context) error {
			p, err := s.StartProcess(ctx, id, sandbox.Command{Argv: []string{"true"}})
			if err == nil {
				_, err = s.WaitProcess(ctx, id, p.ID)
			}
			return err
		}},
		{"write a file", func(ctx context.Context) error {
			_, err := s.WriteFile(ctx, id, "/workspace/new", sandbox.WriteOptions{}, strings.NewReader(strings.Repeat("x", 1<<20)))
			return err
		}},
		{"open a terminal", func(ctx context.Context) error {
			term, _, err := s.OpenTerminal(ctx, id, sandbox.TerminalRequest{New: true, Argv: []string{"cat"}})
			if err == nil {
				err = s.CloseTerminal(ctx, id, term.ID)
			}
			return err
		}},
		{"update", func(ctx context.Context) error {
			tags := []string{"full"}
			_, err := s.Update(ctx, id, sandbox.Update{Tags: &tags})
			return err
		}},
		{"set a policy", func(ctx context.Context) error {
			_, err := s.SetPolicy(ctx, id, sandbox.Policy{Profile: sandbox.ProfileNone})
			return err
		}},
		{"share a port", func(ctx context.Context) error {
			_, err := s.Share(ctx, id, 8000, sandbox.ShareRequest{})
			return err
		}},
		{"set a secret", func(ctx context.Context) error {
			_, err := s.SetSecret(ctx, "full", sandbox.SecretValue("value"))
			return err
		}},
		{"create a key", func(ctx context.Context) error {
			k, err := s.CreateKey(ctx, sandbox.KeyRequest{Label: "full"})
			if err == nil {
				err = s.RemoveKey(ctx, k.Key.ID)
			}
			return err
		}},
		{"create a volume", func(ctx context.Context) error {
			v, err := s.CreateVolume(ctx, sandbox.VolumeRequest{Name: "full", SizeBytes: sandbox.MinVolume})
			if err == nil {
				err = s.RemoveVolume(ctx, string(v.ID))
			}
			return err
		}},
		{"snapshot", func(ctx context.Context) error {
			snap, err := s.Snapshot(ctx, id, sandbox.SnapshotRequest{})
			if err == nil {
				err = s.RemoveSnapshot(ctx, string(snap.ID))
			}
			return err
		}},
		{"back up", func(ctx context.Context) error {
			b, err := s.Backup(ctx, id, sandbox.BackupRequest{Path: "/workspace"})
			if err == nil {
				err = s.RemoveBackup(ctx, string(b.ID))
			}
			return err
		}},
		{"fork", func(ctx context.Context) error {
			f, err := s.Fork(ctx, id, sandbox.ForkRequest{Count: 1})
			if err == nil && f.Children[0].Err != nil {
				err = f.Children[0].Err
			}
			if err == nil {
				err = s.Remove(ctx, string(f.Children[0].Sandbox.ID))
			}
			return err
		}},
		{"copy a file", func(ctx context.Context) error {
			_, err := s.CopyFile(ctx, id, "/workspace/kept", "/workspace/copy", sandbox.CopyOptions{Replace: true})
			return err
		}},
		{"snapshot, and back to it", func(ctx context.Context) error {
			snap, err := s.Snapshot(ctx, id, sandbox.SnapshotRequest{Keep: sandbox.KeepDisk})
			if err != nil {
				return err
			}
			_, err = s.Rollback(ctx, id, sandbox.RollbackRequest{Snapshot: string(snap.ID)})
			return errors.Join(err, s.RemoveSnapshot(ctx, string(snap.ID)))
		}},
		{"create", func(ctx context.Context) error {
			b, err := s.Create(ctx, sandbox.CreateRequest{})
			if err == nil {
				err = s.Remove(ctx, string(b.ID))
			}
			return err
		}},
		{"pause", box(s.Pause)}, {"resume", box(s.Resume)}, {"stop", box(s.Stop)}, {"start", box(s.Start)},
		{"collect", func(ctx context.Context) error {
			_, err := s.Collect(ctx, false)
			return err
		}},
	}
}

// read returns what a file of a sandbox holds.
func read(t *testing.T, s *rig.Server, id, path string) string {
	t.Helper()
	body, _, err := s.ReadFile(t.Context(), id, path, sandbox.ReadRange{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	var b strings.Builder
	if _, err := io.Copy(&b, body); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
