package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/tarball"
)

// uploadTree copies what the directory src holds into dst, which may exist, as
// one stream.
func (t *transfer) uploadTree(ctx context.Context, src, id, dst string) error {
	var err error
	if t.total, err = treeSize(ctx, src); err != nil {
		return err
	}
	root, err := os.OpenRoot(src)
	if err != nil {
		return localError("copy", err)
	}
	defer root.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	packing := &tarball.Packing{Root: root, Name: ".", Skipped: func(name string) {
		t.skip(path.Join(src, name), "it is neither a file, a directory nor a symbolic link")
	}}
	out, in := io.Pipe()
	packed := make(chan tarball.Counts, 1)
	go func() {
		counts, err := packing.Run(ctx, in)
		in.CloseWithError(localError("copy", err))
		packed <- counts
	}()
	_, err = t.client.Unpack(ctx, id, dst, sandbox.UnpackOptions{}, t.counted(out))
	out.CloseWithError(errors.New("the copy has ended"))
	cancel()
	t.finish(<-packed)
	return err
}

// downloadTree copies what the directory remote holds into the local directory
// dst. The stream is the sandbox's: nothing outside of dst is touched, and no
// link that leads there is made.
func (t *transfer) downloadTree(ctx context.Context, id, remote, dst string) error {
	body, err := t.client.Archive(ctx, id, remote, sandbox.ArchiveOptions{})
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = os.Stat(dst)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(dst, 0o777); err != nil {
		return localError("copy", err)
	}
	root, err := os.OpenRoot(dst)
	if err != nil {
		return localError("copy", err)
	}
	defer root.Close()
	// setuid and the like are not given to files that a sandbox wrote.
	u := &tarball.Unpacking{Root: root, Mode: 0o777, New: isNew, Strict: true, Lenient: true,
		Skipped: func(name, reason string) { t.skip(path.Join(remote, name), reason) }}
	counts, err := u.Run(ctx, t.counted(body))
	t.finish(counts)
	return treeError(remote, err)
}

// treeError tells what is wrong with a stream from what the local disk says.
func treeError(remote string, err error) error {
	var entry *tarball.EntryError
	if errors.As(err, &entry) {
		return &sandbox.Error{Op: "copy " + remote, Kind: sandbox.Conflict, Err: entry,
			Hint: "what came before it was copied; try an empty directory"}
	}
	return copyError(remote, err)
}
