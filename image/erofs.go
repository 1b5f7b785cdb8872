package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// imageUUID is every root image's: two builds of equal trees give equal bytes.
const imageUUID = "b3271e00-0000-4000-8000-000000000000"

// makeImage writes the tree w.root() into the EROFS image w.image() and
// returns its digest and size. Data is not packed into inodes
// (noinline_data), because a program whose pages are not aligned in the image
// cannot be mapped, hence not run. Extended attributes lie beside the inodes that
// have them (-x): few files have any.
func makeImage(ctx context.Context, w *work, say func(sandbox.Progress)) (digest string, size int64, err error) {
	const step = "write root image"
	total, err := countEntries(ctx, w.root())
	if err != nil {
		return "", 0, err
	}
	done := int64(0)
	say(sandbox.Progress{Step: step, Total: total, Unit: "files"})
	c := command{
		argv: []string{"mkfs.erofs", "-E", "noinline_data", "-x", "32767", "-U", imageUUID, w.image(), w.root()},
		lock: w.lock, enclosed: true,
	}
	err = c.run(ctx, func(line string) {
		if !strings.HasPrefix(line, "Processing") {
			return
		}
		if done++; done%500 == 0 && done <= total {
			say(sandbox.Progress{Step: step, Done: done, Total: total, Unit: "files"})
		}
	})
	if err != nil {
		return "", 0, err
	}
	say(sandbox.Progress{Step: step, Done: total, Total: total, Unit: "files"})
	// The tree goes before anything is synced: a journal's commit would write all
	// of it out first.
	if err := removeTree(w.root()); err != nil {
		return "", 0, err
	}
	return seal(ctx, w.image(), say)
}

// seal makes the image durable and names it by its bytes.
func seal(ctx context.Context, path string, say func(sandbox.Progress)) (digest string, size int64, err error) {
	const step = "check root image"
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	if err := errors.Join(f.Chmod(0o444), f.Sync()); err != nil {
		return "", 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	sum := sha256.New()
	for size < info.Size() {
		if err := ctx.Err(); err != nil {
			return "", 0, err
		}
		n, err := io.CopyN(sum, f, min(64<<20, info.Size()-size))
		if err != nil {
			return "", 0, err
		}
		size += n
		say(sandbox.Progress{Step: step, Done: size, Total: info.Size(), Unit: "bytes"})
	}
	return digestPrefix + hex.EncodeToString(sum.Sum(nil)), size, nil
}

func countEntries(ctx context.Context, dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, _ fs.DirEntry, err error) error {
		n++
		return errors.Join(err, ctx.Err())
	})
	return n, err
}
