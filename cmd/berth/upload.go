package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// uploadTree copies the directory src to dst, which may exist.
func (t *transfer) uploadTree(ctx context.Context, src, id, dst string) error {
	var err error
	if t.total, err = treeSize(ctx, src); err != nil {
		return err
	}
	return filepath.WalkDir(src, func(name string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return localError("copy", err)
		}
		rel, err := filepath.Rel(src, name)
		if err != nil {
			return localError("copy", err)
		}
		return t.uploadEntry(ctx, name, entry, id, path.Join(dst, filepath.ToSlash(rel)))
	})
}

// uploadEntry copies one entry of a tree. A directory comes before what it holds.
func (t *transfer) uploadEntry(ctx context.Context, name string, entry fs.DirEntry, id, dst string) error {
	info, err := entry.Info()
	if err != nil {
		return localError("copy", err)
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		_, err := t.client.MakeDir(ctx, id, dst, uint32(mode.Perm()), "", true)
		return err
	case mode.IsRegular():
		return t.uploadFile(ctx, name, info, id, dst)
	case mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(name)
		if err != nil {
			return localError("copy", err)
		}
		return t.link(ctx, id, target, dst)
	}
	t.skipped = append(t.skipped, name)
	return nil
}

// link makes a symbolic link in the sandbox, by the sandbox's own ln.
func (t *transfer) link(ctx context.Context, id, target, dst string) error {
	events, err := t.client.Exec(ctx, id, sandbox.Command{
		Argv: []string{"ln", "-sfn", "--", target, path.Base(dst)}, Cwd: path.Dir(dst), Merge: true})
	if err != nil {
		return err
	}
	defer events.Close()
	var said []byte
	for {
		event, err := events.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return sandbox.Errorf("link "+dst, sandbox.Unavailable, "the stream ended too early")
		case err != nil:
			return err
		case event.Exit == nil:
			said = append(said, event.Data[:min(len(event.Data), 1024-min(len(said), 1024))]...)
		case event.Exit.Code == 0:
			t.files++
			return nil
		default:
			return sandbox.Errorf("link "+dst, sandbox.Internal, "%s", strings.TrimSpace(string(said)))
		}
	}
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
