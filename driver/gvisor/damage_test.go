package gvisor_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/sandbox"
)

// damages are ways in which a file is not what was written.
func damages(good []byte) map[string][]byte {
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	return map[string][]byte{"cut": good[:len(good)/2], "empty": nil, "flipped": flipped}
}

// whileDamaged calls try with each damage done to a file, and with the file removed, and
// puts it right again.
func whileDamaged(t *testing.T, path string, try func(how string)) {
	t.Helper()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for how, b := range damages(good) {
		if bytes.Equal(b, good) {
			continue // there is nothing to cut
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		try(filepath.Base(path) + ", " + how)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	try("without " + filepath.Base(path))
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
}

// touchAll has every page of a machine's memory used.
func touchAll(t *testing.T, d *gvisor.Driver, m driver.Machine) error {
	t.Helper()
	_, err := d.Pause(t.Context(), m, driver.KeepMemory)
	return err
}

// TestDamagedMemoryIsRefused damages one file of a save at a time. Memory itself is not
// read before it is used: there the damage is found then.
func TestDamagedMemoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir)
	spec := newSpec(t)
	b := create(t, d, spec)
	saved, err := d.Pause(t.Context(), b.Machine, driver.KeepMemory)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, string(spec.ID), "saved")
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		whileDamaged(t, filepath.Join(folder, e.Name()), func(how string) {
			if e.Name() == "cold.img" && strings.HasSuffix(how, "flipped") {
				return // see TestFlippedBitOfMemory
			}
			m, err := d.Resume(t.Context(), spec, saved)
			if err == nil {
				m.Stop(t.Context())
				t.Fatalf("%s: it was resumed", how)
			}
			if e.Name() != "cold.img" && (sandbox.KindOf(err) != sandbox.Internal || !strings.Contains(err.Error(), e.Name())) {
				t.Errorf("%s: %v", how, err)
			}
		})
	}
	m, err := d.Resume(t.Context(), spec, saved)
	if err != nil {
		t.Fatal("what was put right again:", err)
	}
	client(t, m).mustSh(t, "user", "echo alive")
}

// TestFlippedBitOfMemory flips one bit of the memory that was saved: whoever comes to
// it first ends with the sandbox, or does not write it down.
func TestFlippedBitOfMemory(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir)
	b := create(t, d, newSpec(t))
	put(t, b, soakBinary(t), "/tmp/soak")
	b.load(t, 24)
	captured := t.TempDir()
	if err := d.Capture(t.Context(), b.Machine, driver.KeepMemory, captured); err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(captured, "engine", "cold.img")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Clone(good)
	for at := 2048; at < len(bad); at += 64 << 10 { // so that nobody gets past it
		bad[at] ^= 4
	}
	if err := os.WriteFile(path, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := newSpec(t)
	m, err := d.Restore(t.Context(), spec, captured)
	if err == nil {
		var exit driver.Exit
		c := client(t, m)
		_ = c.tryAsk(t, "verify")
		exit, err = m.Wait(t.Context())
		if err == nil && !strings.Contains(exit.Reason, "saved memory is damaged: bytes ") {
			t.Errorf("it ended: %+v", exit)
		}
	} else if !strings.Contains(err.Error(), "saved memory is damaged: bytes ") {
		t.Errorf("restore: %v", err)
	}

	// One bit, in what no program looks at: it is not handed on.
	one := bytes.Clone(good)
	at := bytes.LastIndexFunc(one, func(r rune) bool { return r != 0 })
	one[at] ^= 1
	if err := os.WriteFile(path, one, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err = d.Restore(t.Context(), newSpec(t), captured)
	if err != nil {
		if !strings.Contains(err.Error(), "saved memory is damaged: bytes ") {
			t.Errorf("restore: %v", err)
		}
		return
	}
	client(t, m)
	if err := touchAll(t, d, m); err == nil {
		t.Error("a flipped bit was saved again")
	}
}

// TestDamagedCaptureIsRefused damages one file of a captured folder at a time.
func TestDamagedCaptureIsRefused(t *testing.T) {
	d := newDriver(t, t.TempDir())
	b := create(t, d, newSpec(t))
	captured := t.TempDir()
	if err := d.Capture(t.Context(), b.Machine, driver.KeepMemory, captured); err != nil {
		t.Fatal(err)
	}
	spec := newSpec(t)
	for _, name := range []string{"about.json", "machine.json", "engine/checkpoint.img", "engine/pages_meta.img", "engine/pages.img", "engine/cold.idx"} {
		whileDamaged(t, filepath.Join(captured, name), func(how string) {
			m, err := d.Restore(t.Context(), spec, captured)
			if err == nil {
				m.Stop(t.Context())
				t.Fatalf("%s: it was restored", how)
			}
			if k := sandbox.KindOf(err); k != sandbox.Invalid && k != sandbox.Unsupported {
				t.Errorf("%s: %v", how, err)
			}
		})
	}
	m, err := d.Restore(t.Context(), spec, captured)
	if err != nil {
		t.Fatal("what was put right again:", err)
	}
	client(t, m).mustSh(t, "user", "echo alive")
}
