package test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// TestVolumesOutliveAKill kills the server while a sandbox writes to a volume, while
// it is stopped, and after all of it was removed; in between the server is told to stop.
// What was written stays as long as it is wanted, and then nothing does.
func TestVolumesOutliveAKill(t *testing.T) {
	r := startReal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	v, err := r.CreateVolume(ctx, sandbox.VolumeRequest{Name: "data", SizeBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	other, err := r.CreateVolume(ctx, sandbox.VolumeRequest{Name: "other", SizeBytes: sandbox.MinVolume})
	if err != nil {
		t.Fatal(err)
	}
	box, err := r.Create(ctx, sandbox.CreateRequest{Name: "box", Volumes: []sandbox.VolumeMount{{Volume: "data", Path: "/data"}}})
	if err != nil {
		t.Fatal(err)
	}
	sh := func(id, line, want string) {
		t.Helper()
		if out, err := r.sh(ctx, id, line); err != nil || strings.TrimSpace(out) != want {
			t.Fatalf("%s: %q, %v, want %q", line, out, err, want)
		}
	}
	sh("box", "echo first > /data/file; setsid sh -c 'i=0; while :; do i=$((i+1)); echo $i > /data/count; done' > /dev/null 2>&1 < /dev/null & echo begun", "begun")

	// A volume that goes leaves the disk, though a sandbox runs that began while it was there.
	if err := r.RemoveVolume(ctx, "other"); err != nil {
		t.Fatal(err)
	}
	wantNone(ctx, t, "left of a volume that was removed", func() []string { return loops(t, filepath.Join(r.data, "volumes", string(other.ID))) })

	r.kill(t)
	r.again(t)
	sh("box", "cat /data/file; echo second > /data/file", "first")
	sh("box", "a=$(cat /data/count); while test \"$(cat /data/count)\" = \"$a\"; do sleep 0.1; done; echo goes on", "goes on")

	// A server that stops leaves nothing mounted, and the sandbox its volume.
	if err := r.stop(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if m := mounts(t, r.data); len(m) > 0 {
		t.Errorf("mounted after the stop: %q", m)
	}
	r.again(t)
	sh("box", "a=$(cat /data/count); while test \"$(cat /data/count)\" = \"$a\"; do sleep 0.1; done; cat /data/file", "second")
	if _, err := r.Stop(ctx, "box"); err != nil {
		t.Fatal(err)
	}

	r.kill(t)
	r.again(t)
	reader, err := r.Create(ctx, sandbox.CreateRequest{Name: "other", Volumes: []sandbox.VolumeMount{{Volume: string(v.ID), Path: "/data", ReadOnly: true}}})
	if err != nil {
		t.Fatal(err)
	}
	sh("other", "cat /data/file", "second")
	sh("box", "cat /data/file; echo third > /data/file", "second") // which wakes it
	sh("other", "cat /data/file", "third")
	if err := r.RemoveVolume(ctx, "data"); sandbox.KindOf(err) != sandbox.Conflict {
		t.Fatalf("a volume in use was removed: %v", err)
	}
	for _, id := range []sandbox.ID{box.ID, reader.ID} {
		if err := r.Remove(ctx, string(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.RemoveVolume(ctx, "data"); err != nil {
		t.Fatal(err)
	}

	r.kill(t)
	r.again(t)
	if all, err := r.Volumes(ctx); err != nil || len(all) != 0 {
		t.Errorf("volumes: %+v, %v", all, err)
	}
	wantNone(ctx, t, "left over", func() []string { return append(r.leftovers(t), loops(t, r.data)...) })

	if _, err := r.CreateVolume(ctx, sandbox.VolumeRequest{Name: "kept", SizeBytes: 16 << 20}); err != nil {
		t.Fatal(err)
	}
	last, err := r.Create(ctx, sandbox.CreateRequest{Volumes: []sandbox.VolumeMount{{Volume: "kept", Path: "/data"}}})
	if err != nil {
		t.Fatal(err)
	}
	bystander, err := r.Create(ctx, sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	sh(string(last.ID), "echo here > /data/file", "")
	if err := r.Remove(ctx, string(last.ID)); err != nil {
		t.Fatal(err)
	}
	r.kill(t) // which leaves it mounted, for the next server to unmount
	r.again(t)
	if err := r.stop(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	wantNone(ctx, t, "left mounted, with "+string(bystander.ID)+" running", func() []string { return append(mounts(t, r.data), loops(t, r.data)...) })
}

// wantNone waits until nothing is left: others may look at a new device, and engines that
// start have all of the host's mounts, for a moment.
func wantNone(ctx context.Context, t *testing.T, what string, list func() []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	left := list()
	for len(left) > 0 && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		left = list()
	}
	if len(left) > 0 {
		t.Errorf("%s: %q", what, left)
	}
}

// mounts lists what is mounted beneath a folder.
func mounts(t *testing.T, dir string) (all []string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, dir+"/") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

// loops lists the loop devices of files beneath a folder.
func loops(t *testing.T, dir string) (all []string) {
	t.Helper()
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(b), dir) {
			all = append(all, name)
		}
	}
	return all
}
