package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// upload copies a local file or directory, or standard input, to dst.
func (t *transfer) upload(ctx context.Context, src string, dst endpoint) error {
	if src == "-" {
		if strings.HasSuffix(dst.path, "/") {
			return usage("name the file that standard input becomes", "%s names a directory", dst.path)
		}
		_, err := t.client.WriteFile(ctx, dst.id, path.Clean(dst.path), sandbox.WriteOptions{Parents: true}, t.counted(t.in))
		return err
	}
	info, err := os.Stat(src)
	if err != nil {
		return localError("copy", err)
	}
	if info.IsDir() && !t.recursive {
		return usage("copy it with: berth cp -r", "%s is a directory", src)
	}
	isDir, err := t.isRemoteDir(ctx, dst)
	if err != nil {
		return err
	}
	name, err := localName(src)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		t.total = info.Size()
		return t.uploadFile(ctx, src, info, dst.id, into(dst.path, name, isDir))
	}
	if contents(src) {
		return t.uploadTree(ctx, src, dst.id, path.Clean(dst.path))
	}
	return t.uploadTree(ctx, src, dst.id, into(dst.path, name, isDir))
}

// localName is the last element of a local path, "." and ".." resolved.
func localName(src string) (string, error) {
	abs, err := filepath.Abs(src)
	if err != nil {
		return "", localError("copy", err)
	}
	return filepath.Base(abs), nil
}

func (t *transfer) isRemoteDir(ctx context.Context, dst endpoint) (bool, error) {
	info, err := t.client.Stat(ctx, dst.id, path.Clean(dst.path), true)
	if err != nil && sandbox.KindOf(err) == sandbox.NotFound {
		// Is it the path or the sandbox? The write that follows tells.
		return false, nil
	}
	return info.Type == sandbox.TypeDir, err
}

func (t *transfer) uploadFile(ctx context.Context, src string, info fs.FileInfo, id, dst string) error {
	f, err := os.Open(src)
	if err != nil {
		return localError("copy", err)
	}
	defer f.Close()
	options := sandbox.WriteOptions{Parents: true}
	if info.Mode().IsRegular() { // a pipe's mode says nothing of the file to be
		options.Mode = uint32(info.Mode().Perm())
	}
	if _, err = t.client.WriteFile(ctx, id, dst, options, t.counted(f)); err == nil {
		t.files++
	}
	return err
}

// treeSize is the number of bytes in the files beneath dir.
func treeSize(ctx context.Context, dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		return 0, localError("copy", err)
	}
	return total, nil
}

// localError classes an error of this machine's file system.
func localError(op string, err error) error {
	var known *sandbox.Error
	if err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	kind := sandbox.Internal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind = sandbox.NotFound
	case errors.Is(err, fs.ErrPermission):
		kind = sandbox.Forbidden
	case errors.Is(err, fs.ErrExist):
		kind = sandbox.Conflict
	}
	return &sandbox.Error{Op: op, Kind: kind, Err: fmt.Errorf("%w", err)}
}
