package gvisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// cloneFile makes the file at to, made if missing, hold what the one at from
// holds. Where both lie on one file system that can, they share it until one of
// them is written to; elsewhere the parts that hold data are copied.
func cloneFile(to, from string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return nil
	}
	return copySparse(dst, src)
}

// syncFile makes what a file holds lie on the disk.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fdatasync(int(f.Fd()))
}

// copySparse copies the parts of src that hold data into dst, which is emptied.
func copySparse(dst, src *os.File) error {
	st, err := src.Stat()
	if err != nil {
		return err
	}
	if err := errors.Join(dst.Truncate(0), dst.Truncate(st.Size())); err != nil {
		return err
	}
	return copyData(dst, src, st.Size())
}

// copyData copies those of the first size bytes of src that are data into dst.
func copyData(dst, src *os.File, size int64) error {
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(src.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // a hole up to the end
		}
		if err != nil {
			return &fs.PathError{Op: "seek data", Path: src.Name(), Err: err}
		}
		end, err := unix.Seek(int(src.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return &fs.PathError{Op: "seek hole", Path: src.Name(), Err: err}
		}
		if err := copyPart(dst, src, begin, end-begin); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// copyPart copies n bytes from one place of src to the same of dst, within the
// kernel where that can be.
func copyPart(dst, src *os.File, at, n int64) error {
	from, to := at, at
	for n > 0 {
		done, err := unix.CopyFileRange(int(src.Fd()), &from, int(dst.Fd()), &to, int(min(n, 1<<30)), 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
			_, err := io.CopyBuffer(io.NewOffsetWriter(dst, to), onlyReader{io.NewSectionReader(src, from, n)}, make([]byte, 1<<20))
			return err
		case err != nil:
			return &fs.PathError{Op: "copy", Path: src.Name(), Err: err}
		case done == 0:
			return fmt.Errorf("copy %s: %w", src.Name(), io.ErrUnexpectedEOF)
		}
		n -= int64(done)
	}
	return nil
}

// onlyReader hides what else a reader can do, so that the buffer given is used.
type onlyReader struct{ io.Reader }

// cloneFolder clones the files of a folder into another, which is made.
func cloneFolder(to, from string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			return &fs.PathError{Op: "copy", Path: filepath.Join(from, e.Name()), Err: errors.New("not a file")}
		}
		if err := cloneFile(filepath.Join(to, e.Name()), filepath.Join(from, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
