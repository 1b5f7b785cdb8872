package gvisor_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver/gvisor"
)

// TestAnEngineOfItsOwn starts machines with an engine that is no file of any disk.
func TestAnEngineOfItsOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: gVisor sandboxes need root")
	}
	dir := filepath.Join(t.TempDir(), "machines")
	opened := 0
	program := func() (fs.File, error) { opened++; return os.Open("/proc/self/exe") }
	anew := func() *gvisor.Driver {
		d, err := gvisor.New(gvisor.Config{Dir: dir, Guest: guestBinary, Engine: program, Exe: "/bin/false"})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := anew()
	m, err := d.Create(t.Context(), newSpec(t))
	if err != nil {
		t.Fatal(err)
	}
	state, id := m.State(), m.ID()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	// The driver's end takes the program away from none that runs.
	d = anew()
	t.Cleanup(func() {
		if _, err := d.Sweep(context.Background(), nil); err != nil {
			t.Error(err)
		}
		d.Close()
	})
	if m, err = d.Recover(t.Context(), id, state); err != nil {
		t.Fatal(err)
	}
	if out := client(t, m).mustSh(t, "user", "echo here"); out != "here" {
		t.Errorf("got %q", out)
	}
	b := create(t, d, newSpec(t))
	if out := b.mustSh(t, "user", "echo there"); out != "there" {
		t.Errorf("got %q", out)
	}
	create(t, d, newSpec(t))
	if err := d.OverwriteProgram(); !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ETXTBSY) {
		t.Errorf("the engine's program can be changed: %v", err)
	}
	if opened != 2 {
		t.Errorf("the program was loaded %d times by two drivers", opened)
	}
}
