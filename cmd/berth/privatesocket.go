package main

import (
	"net"
	"os"
	"path/filepath"
)

// listenPrivately opens a socket that nobody else can ever have opened: it is made
// in a folder of its own, closed to others, and then moved to its place.
func listenPrivately(path string) (_ net.Listener, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".berth-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it is not there any more
	if err = os.Chmod(made, 0o600); err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
