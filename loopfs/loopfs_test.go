package loopfs_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/loopfs"
)

// image makes a file with an empty file system in it.
func image(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: mounts need root; nothing of loopfs is tested by this run")
	}
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 16<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", file).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	return file
}

// devices are those that have the file behind them.
func devices(t *testing.T, file string) (all []string) {
	t.Helper()
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(b)) == file {
			all = append(all, name)
		}
	}
	return all
}

// free waits until no device has the file: others, such as those who look at new
// devices, may hold one open for a moment.
func free(t *testing.T, what, file string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		d := devices(t, file)
		if len(d) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: devices %q are left", what, d)
		}
	}
}

func mount(t *testing.T, file, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if is, err := loopfs.Mounted(dir); err != nil || is {
		t.Fatalf("mounted before: %v, %v", is, err)
	}
	if err := loopfs.Mount(file, dir, "ext4"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) }) // unless the test has done so
	if is, err := loopfs.Mounted(dir); err != nil || !is {
		t.Fatalf("mounted: %v, %v", is, err)
	}
}

func unmount(t *testing.T, dir string) {
	t.Helper()
	if err := loopfs.Unmount(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the folder is there yet: %v", err)
	}
}

// TestMount shows what it holds, again after it was unmounted, and that its device
// goes with its last mount.
func TestMount(t *testing.T) {
	file := image(t)
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	mount(t, file, one)
	if err := os.WriteFile(filepath.Join(one, "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	mount(t, file, two) // through the same device: two would destroy what it holds
	if d := devices(t, file); len(d) != 1 {
		t.Errorf("devices %q", d)
	}
	if b, err := os.ReadFile(filepath.Join(two, "file")); err != nil || string(b) != "kept" {
		t.Errorf("%q, %v", b, err)
	}
	held, err := os.Open(filepath.Join(one, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := loopfs.Unmount(one); !errors.Is(err, loopfs.ErrInUse) {
		t.Errorf("unmount what is in use: %v", err)
	}
	held.Close()
	unmount(t, one)
	if err := loopfs.Unmount(one); err != nil {
		t.Errorf("unmount again: %v", err)
	}
	if d := devices(t, file); len(d) != 1 {
		t.Errorf("after the first of two: devices %q", d)
	}
	unmount(t, two)
	free(t, "after the last", file)
	mount(t, file, one)
	if b, err := os.ReadFile(filepath.Join(one, "file")); err != nil || string(b) != "kept" {
		t.Errorf("%q, %v", b, err)
	}
	unmount(t, one)
}

// TestMountGivesNoRights: what lies in the file was written by somebody's sandbox.
func TestMountGivesNoRights(t *testing.T) {
	file, dir := image(t), filepath.Join(t.TempDir(), "dir")
	mount(t, file, dir)
	defer unmount(t, dir)
	device := filepath.Join(dir, "null")
	if err := unix.Mknod(device, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	if f, err := os.OpenFile(device, os.O_WRONLY, 0); err == nil {
		f.Close()
		t.Error("a device file does something")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if st.Flags&unix.ST_NOSUID == 0 || st.Flags&unix.ST_NODEV == 0 {
		t.Errorf("flags %#x", st.Flags)
	}
}

func TestMountRefuses(t *testing.T) {
	good := image(t)
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "at")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, file, dir string }{
		{"no file system", bad, at}, {"no file", filepath.Join(dir, "gone"), at}, {"a link", link, at}, {"no folder", good, filepath.Join(dir, "gone")},
	} {
		if err := loopfs.Mount(c.file, c.dir, "ext4"); err == nil {
			unix.Unmount(c.dir, unix.MNT_DETACH)
			t.Errorf("%s: it was mounted", c.name)
		}
		free(t, c.name, c.file)
	}
	if is, err := loopfs.Mounted(at); err != nil || is {
		t.Errorf("mounted: %v, %v", is, err)
	}
	if _, err := loopfs.Mounted(filepath.Join(dir, "gone")); err == nil {
		t.Error("a folder that is not there was looked at")
	}
}
