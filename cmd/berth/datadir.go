package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

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
// its lock. Another live server on it is a Conflict that names its pid.
func openDataDirectory(path string) (*dataDirectory, error) {
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
	if err := takeLock(lock); err != nil {
		lock.Close()
		return nil, err
	}
	return &dataDirectory{path: path, lock: lock}, nil
}

// takeLock locks f without waiting and writes this process's id into it.
func takeLock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		b := make([]byte, 20)
		n, _ := f.ReadAt(b, 0)
		return &sandbox.Error{Op: "lock data directory", Kind: sandbox.Conflict,
			Err:  fmt.Errorf("%s is in use by process %s", filepath.Dir(f.Name()), holder(string(b[:n]))),
			Hint: "stop that server, or give this one another directory with --data"}
	}
	if err != nil {
		return dataError(f.Name(), err)
	}
	if err := f.Truncate(0); err != nil {
		return dataError(f.Name(), err)
	}
	if _, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0); err != nil {
		return dataError(f.Name(), err)
	}
	return nil
}

func holder(s string) string {
	if s = strings.TrimSpace(s); s != "" {
		return s
	}
	return "(starting)"
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
