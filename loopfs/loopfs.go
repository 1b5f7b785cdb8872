// Package loopfs mounts file systems that lie in files.
package loopfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tries bounds the search for a free device, for others may be faster.
const tries = 16

// Mount mounts the file system of the given kind that lies in file on the folder
// dir; both are absolute paths. A device that backs the file already is used again:
// two would destroy what it holds. The device goes with its last mount. Programs on
// the file system may be mapped and run, but have no more rights than their callers,
// and device files do nothing.
func Mount(file, dir, kind string) error {
	device, release, err := attach(file)
	if err != nil {
		return err
	}
	defer release()
	// Not MS_NOEXEC: programs lie there.
	if err := unix.Mount(device, dir, kind, unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", file, dir, err)
	}
	return nil
}

// ErrInUse says that somebody on this host has a file of the file system open.
var ErrInUse = errors.New("it is in use")

// Unmount undoes Mount, with all that was written on the disk, and removes the folder if
// it is empty. Nothing that is mounted there, or no such folder, is no error. A sandbox that
// was given the folder keeps it: it has it in a namespace of its own.
func Unmount(dir string) error {
	err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
	if err == nil || errors.Is(err, unix.EINVAL) {
		// Engines that began meanwhile hold copies of the host's mounts, which would keep
		// the device for as long as they live. Such copies end with the folder.
		err = unix.Rmdir(dir)
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTEMPTY):
		return nil
	case errors.Is(err, unix.EBUSY):
		return ErrInUse
	}
	return &os.PathError{Op: "unmount", Path: dir, Err: err}
}

// attach finds or makes the device of a file. Until release it stays.
func attach(file string) (device string, release func(), err error) {
	if path, f, err := backing(file); err != nil || f != nil {
		return path, func() { f.Close() }, err
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", nil, err
	}
	defer control.Close()
	behind, err := os.OpenFile(file, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", nil, err
	}
	defer behind.Close()
	for range tries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", nil, os.NewSyscallError("find loop device", err)
		}
		path := "/dev/loop" + strconv.Itoa(n)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return "", nil, err
		}
		config := unix.LoopConfig{Fd: uint32(behind.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
		copy(config.Info.File_name[:], file)
		err = unix.IoctlLoopConfigure(int(f.Fd()), &config)
		if err == nil {
			return path, func() { f.Close() }, nil
		}
		f.Close()
		if !errors.Is(err, unix.EBUSY) {
			return "", nil, os.NewSyscallError("set up "+path, err)
		}
	}
	return "", nil, errors.New("every loop device is taken by others")
}

// backing finds the device that has a file behind it already; nil if none has.
func backing(file string) (path string, device *os.File, err error) {
	all, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return "", nil, err
	}
	for _, name := range all {
		b, err := os.ReadFile(name)
		if err != nil || strings.TrimRight(string(b), "\n") != file {
			continue // one that goes away has no file any more
		}
		path := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(name)))
		device, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return "", nil, err
		}
		// It may have gone before it was opened, and be another's by now.
		if again, err := os.ReadFile(name); err == nil && strings.TrimRight(string(again), "\n") == file {
			return path, device, nil
		}
		device.Close()
	}
	return "", nil, nil
}

// Mounted reports whether something is mounted on a folder.
func Mounted(dir string) (bool, error) {
	var here, above unix.Stat_t
	if err := unix.Stat(dir, &here); err != nil {
		return false, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if err := unix.Stat(filepath.Dir(dir), &above); err != nil {
		return false, &os.PathError{Op: "stat", Path: filepath.Dir(dir), Err: err}
	}
	return here.Dev != above.Dev, nil
}
