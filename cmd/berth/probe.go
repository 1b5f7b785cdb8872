package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// probePrefix begins the names of the folders in which sandboxes are tried.
const probePrefix = "berth-doctor-"

// probeGVisor starts a tiny sandbox in a folder of its own, and removes it. What
// probes that were killed have left goes first.
func probeGVisor(ctx context.Context) (found driver.Capabilities, err error) {
	left := sweepProbes(ctx)
	folder, err := probeFolder()
	if err != nil {
		return found, &sandbox.Error{Op: "probe", Kind: sandbox.Internal, Err: err, Hint: "TMPDIR must name a folder that can be written to"}
	}
	defer folder.Close()
	defer func() { err = errors.Join(err, os.RemoveAll(folder.Name())) }()
	d, err := openProbe(folder.Name())
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	found, err = d.Probe(ctx)
	if left != nil {
		found.Warnings = append(found.Warnings, fmt.Sprintf("what an earlier doctor left cannot be removed: %v", left))
	}
	return found, err
}

// probeFolder makes a folder and holds its lock, by which others know that it is in
// use, until it is closed.
func probeFolder() (*os.File, error) {
	for {
		path, err := os.MkdirTemp("", probePrefix)
		if err != nil {
			return nil, err
		}
		folder, err := lockFolder(path)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(path))
		}
		if folder != nil {
			return folder, nil
		} // another one has swept it before it was locked
	}
}

// lockFolder opens and locks a folder of this user's alone. It is nil if somebody
// holds it, if it has gone, or is another's.
func lockFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	now, err := os.Lstat(path) // by now, with the lock in hand
	if err != nil || !os.SameFile(info, now) || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		f.Close()
		return nil, nil
	}
	return f, nil
}

// sweepProbes removes the folders whose probes were killed, with what is left of their
// sandboxes.
func sweepProbes(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return nil // no probe of this user's has made anything
	}
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), probePrefix) {
			err = errors.Join(err, sweepProbe(ctx, filepath.Join(os.TempDir(), e.Name())))
		}
	}
	return err
}

func sweepProbe(ctx context.Context, path string) error {
	folder, err := lockFolder(path)
	if folder == nil || err != nil {
		return err
	}
	defer folder.Close()
	d, err := openProbe(path)
	if err != nil {
		return err
	}
	_, err = d.Sweep(ctx, nil)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	return os.RemoveAll(path)
}
