package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxOwner is the largest uid or gid: the one above means "none".
const maxOwner = 1<<32 - 2

func checkOwner(h *tar.Header) error {
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) > maxOwner || int64(h.Gid) > maxOwner {
		return invalid("the image is malformed or hostile", "owner %d:%d is out of range", h.Uid, h.Gid)
	}
	return nil
}

// describe gives an open file or folder its owner, attributes and mode, in the
// order in which none undoes another.
func describe(f *os.File, h *tar.Header) error {
	if err := f.Chown(h.Uid, h.Gid); err != nil {
		return err
	}
	if err := unix.Fchmod(int(f.Fd()), uint32(h.Mode)&0o7777); err != nil {
		return fmt.Errorf("set mode: %w", err)
	}
	return setAttributes(f, h.PAXRecords)
}

const (
	xattrRecord  = "SCHILY.xattr."
	maxAttribute = 64 << 10 // bytes, the kernel's own bound
)

// setAttributes sets file capabilities and the user's own attributes. Others
// (labels of a security module, a union file system's marks) belong to the host
// that made the image.
func setAttributes(f *os.File, records map[string]string) error {
	for record, value := range records {
		name, ok := strings.CutPrefix(record, xattrRecord)
		isUser := strings.HasPrefix(name, "user.")
		if !ok || (name != "security.capability" && !isUser) {
			continue
		}
		if len(value) > maxAttribute || len(name) > unix.NAME_MAX {
			return invalid("the image is malformed or hostile", "attribute %.100q has %d bytes", name, len(value))
		}
		err := unix.Fsetxattr(int(f.Fd()), name, []byte(value), 0)
		if isUser && (errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ERANGE)) {
			continue // this disk has no room for it; programs do not rely on it
		}
		if errors.Is(err, unix.EINVAL) {
			return invalid("the image is malformed or hostile", "attribute %s is malformed", name)
		}
		if err != nil {
			return fmt.Errorf("set attribute %s: %w", name, err)
		}
	}
	return nil
}

// lastTime is the latest time taken over from an image.
var lastTime = time.Unix(1<<32-1, 0)

func timespecs(at time.Time) [2]unix.Timespec {
	if at.Before(time.Unix(0, 0)) {
		at = time.Unix(0, 0)
	}
	if at.After(lastTime) {
		at = lastTime
	}
	ts := unix.Timespec{Sec: at.Unix(), Nsec: int64(at.Nanosecond())}
	return [2]unix.Timespec{ts, ts}
}

func setTime(f *os.File, at time.Time) error {
	ts := timespecs(at)
	if err := unix.UtimesNanoAt(int(f.Fd()), "", ts[:], unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("set time: %w", err)
	}
	return nil
}
