package image

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

const nonBlocking = unix.O_NONBLOCK

// folderArchive is a folder; links out of it are not followed.
type folderArchive struct{ root *os.Root }

func (d folderArchive) open(name string) (io.ReadCloser, int64, error) {
	f, err := d.root.OpenFile(path.Clean(name), os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		var refused *fs.PathError
		if errors.As(err, &refused) && !errors.Is(err, fs.ErrNotExist) {
			err = notImage("%w", err)
		}
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notImage("%.200s is not a regular file", name)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

func (d folderArchive) Close() error { return d.root.Close() }

// maxArchiveEntries bounds the entries of an image's own archive: a few for
// each layer.
const maxArchiveEntries = 20_000

// tarArchive is a tar file whose entries are read in place.
type tarArchive struct {
	f       *os.File
	files   map[string]section
	aliases map[string]string
}

// section is where in the archive a file's bytes are.
type section struct{ offset, size int64 }

// indexTar finds the files of a tar archive. It owns f if it succeeds.
func indexTar(f *os.File) (*tarArchive, error) {
	a := &tarArchive{f: f, files: map[string]section{}, aliases: map[string]string{}}
	in := tar.NewReader(f) // reads no further than the header it returns
	for range maxArchiveEntries {
		h, err := in.Next()
		if err == io.EOF {
			return a, nil
		}
		if err != nil {
			return nil, a.notTar(err)
		}
		if err := a.add(h); err != nil {
			return nil, err
		}
	}
	return nil, notImage("its archive has more than %d entries", maxArchiveEntries)
}

// add takes one entry into the index.
func (a *tarArchive) add(h *tar.Header) error {
	name := path.Clean(h.Name)
	for record := range h.PAXRecords {
		if strings.HasPrefix(record, "GNU.sparse.") {
			return notImage("entry %.200q is sparse", h.Name) // its size costs nothing to claim
		}
	}
	switch h.Typeflag {
	case tar.TypeReg:
		at, err := a.f.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		a.files[name] = section{at, h.Size}
	case tar.TypeGNUSparse:
		return notImage("entry %.200q is sparse", h.Name)
	case tar.TypeSymlink: // equal layers are saved once
		a.aliases[name] = path.Join(path.Dir(name), h.Linkname)
	case tar.TypeLink:
		a.aliases[name] = path.Clean(h.Linkname)
	}
	return nil
}

// notTar says what the file is instead, where that helps.
func (a *tarArchive) notTar(err error) error {
	var system *fs.PathError
	if errors.As(err, &system) {
		return err
	}
	magic := make([]byte, 6)
	if _, readErr := a.f.ReadAt(magic, 0); readErr == nil {
		for begins, program := range map[string]string{"\x1f\x8b": "gzip -d", "\x28\xb5\x2f\xfd": "zstd -d", "\xfd7zXZ\x00": "xz -d"} {
			if strings.HasPrefix(string(magic), begins) {
				return invalid("decompress it first, with "+program, "the archive is compressed")
			}
		}
	}
	return notImage("its archive cannot be read: %w", err)
}

func (a *tarArchive) open(name string) (io.ReadCloser, int64, error) {
	name = path.Clean(name)
	if to, ok := a.aliases[name]; ok {
		name = to // one step: links to links are not followed
	}
	s, ok := a.files[name]
	if !ok {
		return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return io.NopCloser(io.NewSectionReader(a.f, s.offset, s.size)), s.size, nil
}

func (a *tarArchive) Close() error { return a.f.Close() }
