package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

const (
	adminKeyFile = "admin.key"
	lockFile     = "lock"
)

// dataDirectory is a server's data directory, held by this process alone.
type dataDirectory struct {
	path string
	lock *os.File
}

// openDataDirectory makes the directory if it is missing (mode 0700) and takes
// its lock. Another live server on it is a Conflict that names its pid; a killed
// one's lock is waited for.
func openDataDirectory(ctx context.Context, path string) (*dataDirectory, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, &sandbox.Error{Op: "open data directory", Kind: sandbox.Invalid, Err: err}
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, dataError(path, err)
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return nil, dataError(path, err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, dataError(path, err)
	}
	if err := takeLock(ctx, lock); err != nil {
		lock.Close()
		return nil, err
	}
	return &dataDirectory{path: path, lock: lock}, nil
}

// lockWait is how long the lock of a server that has ended may stay taken.
const lockWait = 10 * time.Second

// takeLock locks f and writes this process's id into it. It does not wait for a
// server that lives. One that was killed while it started a program leaves the lock
// with that child until the child has become the program: that is waited for.
func takeLock(ctx context.Context, f *os.File) error {
	waited, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return dataError(f.Name(), err)
		}
		pid := holder(f)
		if !gone(pid) || waited.Err() != nil {
			return errors.Join(inUse(f, pid), ctx.Err())
		}
		select {
		case <-waited.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := f.Truncate(0); err != nil {
		return dataError(f.Name(), err)
	}
	if _, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0); err != nil {
		return dataError(f.Name(), err)
	}
	return nil
}

// holder returns the process id that the lock's holder wrote into it, or 0 if it
// has not yet.
func holder(f *os.File) int {
	b := make([]byte, 20)
	n, _ := f.ReadAt(b, 0) // what cannot be read is a holder without a name
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

// gone reports whether there is no process pid any more.
func gone(pid int) bool {
	return pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

func inUse(f *os.File, pid int) error {
	by := "a server that starts"
	if pid > 0 {
		by = fmt.Sprintf("process %d", pid)
	}
	return &sandbox.Error{Op: "lock data directory", Kind: sandbox.Conflict,
		Err:  fmt.Errorf("%s is in use by %s", filepath.Dir(f.Name()), by),
		Hint: "stop that server, or give this one another directory with --data"}
}

// Close lets go of the directory.
func (d *dataDirectory) Close() error { return d.lock.Close() }

var keyPattern = regexp.MustCompile(`^berth_[0-9a-f]{40}$`)

// adminKey returns the administrator's key, made at the first start.
func (d *dataDirectory) adminKey() (string, error) {
	path := filepath.Join(d.path, adminKeyFile)
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.makeAdminKey(path)
	case err != nil:
		return "", dataError(path, err)
	}
	key := strings.TrimSpace(string(b))
	if !keyPattern.MatchString(key) {
		return "", &sandbox.Error{Op: "read admin key", Kind: sandbox.Invalid,
			Err:  fmt.Errorf("%s does not hold a key", path),
			Hint: "a key is berth_ and 40 hex digits; remove the file to have a new one made"}
	}
	return key, nil
}

// makeAdminKey writes a new key.
func (d *dataDirectory) makeAdminKey(path string) (string, error) {
	var raw [20]byte
	rand.Read(raw[:]) // never fails: it ends the program instead
	key := "berth_" + hex.EncodeToString(raw[:])

	return key, writeSecret(path, key+"\n")
}

// writeSecret writes a file that only its owner reads, so that path holds all of
// it or does not exist.
func writeSecret(path, text string) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return dataError(path, err)
	}
	defer os.Remove(tmp.Name()) // gone already when all went well
	_, err = io.WriteString(tmp, text)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return dataError(path, err)
	}
	return nil
}

// syncDir makes a rename in dir survive the loss of power.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// dataError classes what the operating system said about the data directory.
func dataError(path string, err error) error {
	e := &sandbox.Error{Op: "open data directory " + path, Kind: sandbox.Internal, Err: err,
		Hint: "choose another directory with --data"}
	switch {
	case errors.Is(err, fs.ErrPermission):
		e.Kind, e.Hint = sandbox.Forbidden, "run it as root, or choose a directory of your own with --data"
	case errors.Is(err, unix.ENOSPC):
		e.Kind, e.Hint = sandbox.Exhausted, "free some space, or choose another disk with --data"
	}
	return e
}
