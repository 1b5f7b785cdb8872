package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// download copies a file or directory of a sandbox to dst, or to standard
// output. What the sandbox says of its files is not trusted: names are single
// elements, and nothing is written outside dst.
func (t *transfer) download(ctx context.Context, src endpoint, dst string) error {
	remote := path.Clean(src.path)
	if dst == "-" {
		return t.downloadStream(ctx, src.id, remote)
	}
	info, err := t.client.Stat(ctx, src.id, remote, true)
	if err != nil {
		return err
	}
	local, err := os.Stat(dst)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return localError("copy", err)
	}
	isDir := err == nil && local.IsDir()
	name := path.Base(remote)
	if name == "/" {
		name = src.id
	}
	if info.Type != sandbox.TypeDir {
		t.total = info.Size
		return t.downloadOne(ctx, src.id, remote, into(dst, name, isDir))
	}
	if !t.recursive {
		return usage("copy it with: berth cp -r", "%s is a directory", remote)
	}
	target := into(dst, name, isDir)
	if contents(src.path) {
		target = dst
	}
	return t.downloadTree(ctx, src.id, remote, target)
}

// downloadStream copies a file to standard output.
func (t *transfer) downloadStream(ctx context.Context, id, remote string) error {
	signalIgnoreBrokenPipe()
	body, _, err := t.client.ReadFile(ctx, id, remote, sandbox.ReadRange{})
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(t.out, body)
	if errors.Is(err, unix.EPIPE) {
		return &exitError{code: exitBrokenPipe}
	}
	return copyError(remote, err)
}

// downloadOne copies one file to a local path that the user named.
func (t *transfer) downloadOne(ctx context.Context, id, remote, dst string) error {
	if info, err := os.Stat(dst); err == nil && !info.Mode().IsRegular() {
		return t.downloadSpecial(ctx, id, remote, dst)
	}
	dir, name := filepath.Split(dst)
	if dir == "" {
		dir = "."
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return localError("copy", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return localError("copy", err)
	}
	defer root.Close()
	return t.downloadFile(ctx, id, remote, root, name)
}

// downloadSpecial copies a file into a local device or pipe.
func (t *transfer) downloadSpecial(ctx context.Context, id, remote, dst string) error {
	f, err := os.OpenFile(dst, os.O_WRONLY, 0)
	if err != nil {
		return localError("copy", err)
	}
	defer f.Close()
	body, _, err := t.client.ReadFile(ctx, id, remote, sandbox.ReadRange{})
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err = io.Copy(f, t.counted(body)); err != nil {
		return copyError(remote, err)
	}
	t.files++
	return localError("copy", f.Close())
}

// downloadFile writes one file beneath root: under a name of its own first, so
// that the path holds the old bytes or all of the new ones.
func (t *transfer) downloadFile(ctx context.Context, id, remote string, root *os.Root, name string) (err error) {
	body, info, err := t.client.ReadFile(ctx, id, remote, sandbox.ReadRange{})
	if err != nil {
		return err
	}
	defer body.Close()
	// setuid and the like are not given to files that a sandbox wrote.
	mode := fs.FileMode(info.Mode & 0o777)
	part := path.Join(path.Dir(name), ".berth-"+rand.Text())
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
	if err != nil {
		return localError("copy", err)
	}
	defer func() {
		if err != nil {
			f.Close()
			root.Remove(part)
		}
	}()
	if _, err := io.Copy(f, t.counted(body)); err != nil {
		return copyError(remote, err)
	}
	if err := f.Chmod(mode); err != nil {
		return localError("copy", err)
	}
	if err := f.Close(); err != nil {
		return localError("copy", err)
	}
	if err := root.Rename(part, name); err != nil {
		return localError("copy", err)
	}
	t.files++
	return nil
}

// copyError tells an error of the local disk from one of the stream.
func copyError(remote string, err error) error {
	if err == nil {
		return nil
	}
	op := "copy " + remote
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		if errno == unix.ENOSPC || errno == unix.EDQUOT {
			return &sandbox.Error{Op: op, Kind: sandbox.Exhausted, Err: err, Hint: "free some space where it is copied to"}
		}
		return &sandbox.Error{Op: op, Kind: sandbox.Internal, Err: err}
	}
	var known *sandbox.Error
	if errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	return &sandbox.Error{Op: op, Kind: sandbox.Unavailable, Err: err, Hint: "try again: nothing of the file was kept"}
}
