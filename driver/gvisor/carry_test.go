package gvisor_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

func noise(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{7}), n) }

// TestCarryIntoFullDisk: a file that finds no room in the sandbox is refused as over
// the link, and leaves nothing.
func TestCarryIntoFullDisk(t *testing.T) {
	d := newDriver(t, t.TempDir())
	b := create(t, d, newSpec(t, func(l *sandbox.Limits) { l.MemoryBytes, l.DiskBytes = 256<<20, 64<<20 }))
	b.guest = guestclient.Of(b.Machine)
	_, err := b.guest.WriteFile(t.Context(), "/workspace/f", sandbox.WriteOptions{}, noise(96<<20))
	if sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("a file of 96 MiB on a disk of 64: %v", err)
	}
	if out := b.mustSh(t, "root", "ls -A /workspace"); out != "" {
		t.Errorf("what is left: %q", out)
	}
	if _, err := b.guest.WriteFile(t.Context(), "/workspace/f", sandbox.WriteOptions{}, noise(16<<20)); err != nil {
		t.Errorf("a smaller one: %v", err)
	}
}

// TestCarryEndsWithTheEngine: whoever moves a file learns that the machine is gone.
func TestCarryEndsWithTheEngine(t *testing.T) {
	d := newDriver(t, t.TempDir())
	b := create(t, d, newSpec(t))
	b.guest = guestclient.Of(b.Machine)
	if _, err := b.guest.WriteFile(t.Context(), "/workspace/f", sandbox.WriteOptions{}, noise(8<<20)); err != nil {
		t.Fatal(err)
	}
	body, _, err := b.guest.ReadFile(t.Context(), "/workspace/f", sandbox.ReadRange{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	killed := false
	_, err = io.Copy(writerFunc(func(p []byte) (int, error) {
		if !killed {
			killed = true
			if err := d.KillEngine(b.ID()); err != nil {
				t.Error(err)
			}
			if _, err := b.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		return len(p), nil
	}), body)
	if sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("read from a machine that was killed: %v", err)
	}
	_, err = b.guest.WriteFile(t.Context(), "/workspace/f", sandbox.WriteOptions{}, noise(8<<20))
	if sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("write to it: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestCarryWithAnOldEngine: a machine that an earlier build has made takes its files
// over the link.
func TestCarryWithAnOldEngine(t *testing.T) {
	defer gvisor.AsOldEngine()()
	d := newDriver(t, t.TempDir())
	b := create(t, d, newSpec(t))
	b.guest = guestclient.Of(b.Machine)
	const size = 3<<20 + 1
	want, err := io.ReadAll(noise(size))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first finds out
		if _, err := b.guest.WriteFile(t.Context(), "/workspace/f", sandbox.WriteOptions{}, noise(size)); err != nil {
			t.Fatal(err)
		}
		body, _, err := b.guest.ReadFile(t.Context(), "/workspace/f", sandbox.ReadRange{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body)
		if err = errors.Join(err, body.Close()); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, %d wanted, or other ones: %v", len(got), size, err)
		}
	}
	if _, ok := b.Machine.(driver.Carrier).Carry(); ok {
		t.Error("it is asked again and again")
	}
}
