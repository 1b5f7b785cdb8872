package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// captures returns the driver's way to write machines down with what keep says.
// Where there is none, that must be said as Unsupported, and ok is false.
func (b *bed) captures(keep driver.Keep) (s driver.Snapshotter, ok bool) {
	b.t.Helper()
	s, ok = b.d.(driver.Snapshotter)
	if !ok {
		b.t.Logf("LOUDLY: the driver %s writes no machine down", b.d.Class())
		b.end()
		return nil, false
	}
	err := s.Capture(within(b.t), b.m, keep, b.t.TempDir())
	if sandbox.KindOf(err) == sandbox.Unsupported {
		b.t.Logf("LOUDLY: the driver %s does not capture the %s of what runs: %v", b.d.Class(), keep, err)
		b.end()
		return nil, false
	}
	if err != nil {
		b.t.Fatalf("capture %s: %v (%s)", keep, err, sandbox.HintOf(err))
	}
	return s, true
}

func (b *bed) capture(s driver.Snapshotter, keep driver.Keep) (dir string) {
	b.t.Helper()
	dir = b.t.TempDir()
	if err := s.Capture(within(b.t), b.m, keep, dir); err != nil {
		b.t.Fatalf("capture %s: %v (%s)", keep, err, sandbox.HintOf(err))
	}
	return dir
}

// about reads what a captured folder says of itself.
func about(t *testing.T, dir string) driver.About {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, driver.AboutName))
	if err != nil {
		t.Fatal(err)
	}
	var a driver.About
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// testCapture: what was captured makes machines as it was, again and again, when
// the one that it was is long gone, and in a later process.
func testCapture(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	s, ok := b.captures(driver.KeepMemory)
	if !ok {
		return
	}
	c := b.startCounter()
	output(t, b.guest, "echo kept > file")
	dir := b.capture(s, driver.KeepMemory)
	then := *c
	b.follow(c, 5)
	output(t, b.guest, "echo later > file")
	a := about(t, dir)
	if a.Keep != driver.KeepMemory || a.Class != b.d.Class() || a.Memory <= 0 || a.Disk <= 0 || a.Limits != b.spec.Limits || a.Taken.IsZero() {
		t.Errorf("about: %+v", a)
	}
	if err := s.Fits(a); err != nil {
		t.Errorf("it does not fit where it was made: %v", err)
	}
	first := b.restore(b.d, dir)
	second := b.restore(b.d, dir)
	b.wantRestored(then, first, second)
	// What was restored can be captured, paused and resumed like any other.
	mine := then
	first.follow(&mine, 1)
	again := first.capture(s, driver.KeepMemory)
	third := b.restore(b.d, again)
	other := mine
	third.follow(&other, 3)
	saved := first.pause(driver.KeepMemory)
	aside := t.TempDir()
	if err := s.CaptureSaved(within(t), first.spec.ID, saved, aside); err != nil {
		t.Fatalf("capture what is paused: %v", err)
	}
	fourth := b.restore(b.d, aside)
	first.resume(saved)
	over(t, second, third, fourth)
	first.endAmong()
	b.end()

	b.gone = false
	if h.Reopen != nil {
		b.later(h.Reopen)
	}
	last := b.restore(b.d, dir)
	b.wantRestored(then, last)
	over(t, last)
	b.gone = true
	nothingLeft(t, h)
}

// wantRestored checks machines that were made of a folder.
func (b *bed) wantRestored(then counter, beds ...*bed) {
	b.t.Helper()
	for i, k := range beds {
		mine := then
		k.follow(&mine, 3)
		if got := output(b.t, k.guest, "cat file; hostname"); got != "kept\n"+k.spec.Hostname+"\n" {
			b.t.Errorf("machine %d has %q", i, got)
		}
		output(b.t, k.guest, "echo changed > file")
	}
}

// testCaptureDisk: the disk alone, of what runs and of what is stopped.
func testCaptureDisk(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	s, ok := b.d.(driver.Snapshotter)
	if !ok {
		t.Logf("LOUDLY: the driver %s writes no machine down", b.d.Class())
		b.end()
		return
	}
	c := b.startCounter()
	output(t, b.guest, "echo kept > file; mkdir -p deep/er; head -c 3000000 /dev/zero | tr '\\0' x > deep/er/big; ln -s file link")
	dir := b.capture(s, driver.KeepDisk)
	b.follow(c, 5)
	output(t, b.guest, "echo later > file; rm deep/er/big")
	if a := about(t, dir); a.Keep != driver.KeepDisk || a.Memory != 0 || len(a.CPU) != 0 {
		t.Errorf("about: %+v", a)
	}
	saved := b.pause(driver.KeepDisk)
	stopped := t.TempDir()
	if err := s.CaptureSaved(within(t), b.spec.ID, saved, stopped); err != nil {
		t.Fatalf("capture what is stopped: %v", err)
	}
	for from, want := range map[string]string{dir: "kept\nkept\n3000000\n", stopped: "later\nlater\n"} {
		k := b.restore(b.d, from)
		if list, err := k.guest.Processes(within(t)); err != nil || len(list) > 0 {
			t.Errorf("it runs %+v, %v", list, err)
		}
		if got := output(t, k.guest, "cat file link; test ! -e deep/er/big || wc -c < deep/er/big"); got != want {
			t.Errorf("it has %q, want %q", got, want)
		}
		over(t, k)
	}
	b.resume(saved)
	b.end()
}

// testCaptureRefusals: what does not fit or is not whole makes no machine, and
// says why.
func testCaptureRefusals(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	s, ok := b.d.(driver.Snapshotter)
	if !ok {
		t.Logf("LOUDLY: the driver %s writes no machine down", b.d.Class())
		b.end()
		return
	}
	keep := driver.KeepMemory
	if err := s.Capture(within(t), b.m, keep, t.TempDir()); sandbox.KindOf(err) == sandbox.Unsupported {
		keep = driver.KeepDisk
	}
	output(t, b.guest, "head -c 20000000 /dev/zero | tr '\\0' x > big")
	dir := b.capture(s, keep)
	for name, spoil := range map[string]func(*driver.About){
		"format": func(a *driver.About) { a.Format++ },
		"class":  func(a *driver.About) { a.Class = "another" },
		"keep":   func(a *driver.About) { a.Keep = "half" },
		"engine": func(a *driver.About) { a.Engine = "gvisor of another day" },
		"arch":   func(a *driver.About) { a.Arch = "pdp11" },
		"cpu":    func(a *driver.About) { a.CPU = append(a.CPU, "flux_capacitor") },
	} {
		if keep == driver.KeepDisk && (name == "engine" || name == "arch" || name == "cpu") {
			continue
		}
		a := about(t, dir)
		spoil(&a)
		wantKind(t, "another "+name, s.Fits(a), sandbox.Unsupported)
		wantKind(t, "restore another "+name, b.spoiled(s, dir, func(copied string) { writeAbout(t, copied, a) }), sandbox.Unsupported)
	}
	for what, spoil := range map[string]func(copied string){
		"no about":      func(c string) { os.Remove(filepath.Join(c, driver.AboutName)) },
		"half an about": func(c string) { os.WriteFile(filepath.Join(c, driver.AboutName), []byte(`{"format":1,`), 0o600) },
		"a huge about": func(c string) {
			os.WriteFile(filepath.Join(c, driver.AboutName), append([]byte(`{"format":1,"class":"`), make([]byte, 1<<20)...), 0o600)
		},
		"links in it": func(c string) {
			entries, _ := os.ReadDir(c)
			for _, e := range entries {
				if e.Name() != driver.AboutName {
					os.Rename(filepath.Join(c, e.Name()), filepath.Join(c, e.Name()+".real"))
					os.Symlink(e.Name()+".real", filepath.Join(c, e.Name()))
				}
			}
		},
	} {
		wantKind(t, what, b.spoiled(s, dir, spoil), sandbox.Invalid)
	}
	small := b.kin(1)[0]
	small.Limits.DiskBytes = 16 << 20
	_, err := s.Restore(within(t), small, dir)
	wantKind(t, "a disk that is too small", err, sandbox.Exhausted)
	taken := b.kin(1)[0]
	taken.ID = b.spec.ID
	_, err = s.Restore(within(t), taken, dir)
	wantKind(t, "an id in use", err, sandbox.Conflict)
	ended, cancel := context.WithCancel(within(t))
	cancel()
	if _, err := s.Restore(ended, b.kin(1)[0], dir); !errors.Is(err, context.Canceled) {
		t.Errorf("in an ended context: %v", err)
	}
	if err := s.Capture(ended, b.m, keep, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("capture in an ended context: %v", err)
	}
	wantKind(t, "nothing that can be kept", s.Capture(within(t), b.m, "half", t.TempDir()), sandbox.Invalid)
	wantKind(t, "a machine of another driver", s.Capture(within(t), stranger{}, keep, t.TempDir()), sandbox.Invalid)
	m := b.m
	stop(t, m)
	b.m = nil
	wantKind(t, "a machine that has ended", s.Capture(within(t), m, keep, t.TempDir()), sandbox.Unavailable)
	b.end()
}

// spoiled restores from a copy of a folder that was changed, and returns why that
// was refused.
func (b *bed) spoiled(s driver.Snapshotter, dir string, change func(copied string)) error {
	b.t.Helper()
	copied := b.t.TempDir()
	if err := linkFolder(copied, dir); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(copied, driver.AboutName)); err != nil {
		b.t.Fatal(err)
	}
	writeAbout(b.t, copied, about(b.t, dir))
	change(copied)
	m, err := s.Restore(within(b.t), b.kin(1)[0], copied)
	if err == nil {
		stop(b.t, m)
	}
	return err
}

// linkFolder makes hard links of all that a folder holds.
func linkFolder(to, from string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		return os.Link(path, filepath.Join(to, rel))
	})
}

func writeAbout(t *testing.T, dir string, a driver.About) {
	t.Helper()
	b, err := json.Marshal(a)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, driver.AboutName), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
