package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/loopfs"
	"github.com/berth-dev/berth/sandbox"
)

// The store is a file system of the driver's own that its folder lies on, for hosts
// whose disk cannot share files copy-on-write: XFS in one file beside the folder,
// with all of its room taken from the disk at once, so that the disk cannot run full
// beneath it. Layers that lie on it are cloned in the time of their number of
// extents. It is mounted from the start of a driver until Close, or for as long as a
// machine on it lives.
//
// Without it, and on a disk that cannot share files, a fork copies what the sandbox
// has written, while it stands still.

// minStore is the least size of a store: XFS takes no less.
const minStore = 512 << 20

// storeFile is the file that holds the store of a folder.
func storeFile(dir string) string { return dir + ".xfs" }

// openStore mounts a folder's store, and makes it if there is none and size is not
// 0. A store that is smaller grows to size.
func openStore(dir string, size int64) error {
	file := storeFile(dir)
	_, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (size == 0 || canClone(dir)):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		err = makeStore(dir, file, size)
	}
	if err != nil {
		return err
	}
	mounted, err := loopfs.Mounted(dir)
	if err != nil {
		return err
	}
	if !mounted {
		// The device goes with the mount. The engine maps the programs that lie in a
		// layer from there.
		if err := loopfs.Mount(file, dir, "xfs"); err != nil {
			return storeFault(err)
		}
	}
	return growStore(dir, file, size)
}

// closeStore unmounts a folder's store, unless a machine on it lives.
func closeStore(dir string) error {
	if _, err := os.Stat(storeFile(dir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := loopfs.Unmount(dir); err != nil && !errors.Is(err, loopfs.ErrInUse) {
		return err
	}
	return nil
}

// makeStore makes the file, whole or not at all. The folder must hold no machines:
// they would be beneath the mount.
func makeStore(dir, file string, size int64) error {
	if size < minStore {
		return &sandbox.Error{Op: "make store", Kind: sandbox.Invalid, Err: fmt.Errorf("%d bytes are too few", size), Hint: fmt.Sprintf("a store has %d MiB or more", minStore>>20)}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, err := sandbox.ParseID(e.Name()); err == nil {
			return &sandbox.Error{Op: "make store", Kind: sandbox.Conflict, Err: fmt.Errorf("sandboxes lie in %s already", dir),
				Hint: "remove all sandboxes first, or start without a store"}
		}
	}
	f, err := os.OpenFile(file+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(file + ".new") // it has its other name if all went well
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		return fmt.Errorf("take %d MiB for the store: %w", size>>20, err)
	}
	out, err := exec.Command("mkfs.xfs", "-q", "-m", "reflink=1", file+".new").CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return &sandbox.Error{Op: "make store", Kind: sandbox.Unsupported, Err: err, Hint: "install xfsprogs"}
	}
	if err != nil {
		return fmt.Errorf("make store: %w: %.300s", err, out)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func storeFault(err error) error {
	return &sandbox.Error{Op: "mount store", Kind: sandbox.Unsupported, Err: err, Hint: "the kernel needs XFS and loop devices: modprobe xfs loop"}
}

// growStore makes a store larger. One that is as large already stays as it is.
func growStore(dir, file string, size int64) error {
	st, err := os.Stat(file)
	if err != nil || st.Size() >= size {
		return err
	}
	f, err := os.OpenFile(file, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		return fmt.Errorf("take %d MiB for the store: %w", size>>20, err)
	}
	device, err := sourceOf(dir)
	if err != nil {
		return err
	}
	d, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.IoctlSetInt(int(d.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return os.NewSyscallError("grow "+device, err)
	}
	if out, err := exec.Command("xfs_growfs", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("grow store: %w: %.300s", err, out)
	}
	return nil
}

// Shares reports whether what sandboxes write in a driver's folder is shared with
// their forks rather than copied.
func Shares(dir string) bool { return canClone(dir) }

// canClone reports whether files in a folder can share what they hold.
func canClone(dir string) bool {
	from, err := os.CreateTemp(dir, ".clone-")
	if err != nil {
		return false
	}
	defer os.Remove(from.Name())
	defer from.Close()
	to, err := os.CreateTemp(dir, ".clone-")
	if err != nil {
		return false
	}
	defer os.Remove(to.Name())
	defer to.Close()
	_, err = from.Write(make([]byte, 4096))
	return err == nil && unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil
}

// sourceOf is the device that is mounted on a folder.
func sourceOf(dir string) (string, error) {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	device := ""
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > 1 && f[1] == dir {
			device = f[0] // the last one is on top
		}
	}
	if device == "" {
		return "", fmt.Errorf("nothing is mounted on %s", dir)
	}
	return device, nil
}
