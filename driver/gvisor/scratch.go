package gvisor

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// scratch is a folder for what a machine's memory is written to on its way into
// others. It lies in the host's memory, on a file system that is mounted nowhere:
// it ends with the descriptors of its files, whatever becomes of this process.
type scratch struct{ root *os.File }

// scratchSpare is the memory that is left to the host by a scratch.
const scratchSpare = 512 << 20

// newScratch makes a scratch for so many bytes of memory. It is nil if the host
// has not so much to give, or no such file system: then the disk serves.
func newScratch(bytes int64) (*scratch, error) {
	free, err := freeMemory()
	if err != nil || free < bytes+scratchSpare {
		return nil, err
	}
	root, err := mountScratch(bytes + scratchSpare/2)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &scratch{root: root}, nil
}

// path names the folder for this process and the engine's commands.
func (s *scratch) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.root.Fd()) }

// close lets go of the folder. Files that are open stay.
func (s *scratch) close() error { return s.root.Close() }

// freeMemory is what the host can give away without swapping.
func freeMemory() (int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(b), "MemAvailable:")
	fields := strings.Fields(after)
	if len(fields) < 2 || fields[1] != "kB" {
		return 0, errors.New("/proc/meminfo: no MemAvailable")
	}
	n, err := strconv.ParseInt(fields[0], 10, 64)
	return n << 10, err
}

// mountScratch makes a tmpfs, in pages as large as can be had, that is mounted
// nowhere.
func mountScratch(bytes int64) (*os.File, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open tmpfs: %w", err)
	}
	defer unix.Close(fs)
	_ = unix.FsconfigSetString(fs, "huge", "always") // faster; a kernel may not have it
	for key, value := range map[string]string{"size": strconv.FormatInt(bytes, 10), "mode": "0700"} {
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return nil, fmt.Errorf("set %s of tmpfs: %w", key, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("make tmpfs: %w", err)
	}
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, fmt.Errorf("mount tmpfs: %w", err)
	}
	return os.NewFile(uintptr(root), "scratch"), nil
}
