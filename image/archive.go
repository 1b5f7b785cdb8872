package image

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-dev/berth/sandbox"
)

// archiveSource is an image in a file or a folder on the server: an OCI layout,
// or what "docker save" writes.
type archiveSource struct {
	kind, path string
	caps       caps
}

func (a archiveSource) resolve(ctx context.Context) (root, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	files, err := openArchive(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &sandbox.Error{Kind: sandbox.NotFound, Err: err, Hint: "the path is one on the server; copy the archive there"}
	}
	if err != nil {
		return nil, err
	}
	read := readLayout
	if a.kind == "docker-archive" {
		read = readSaved
	}
	config, layers, err := read(files)
	if err == nil {
		var l *layered
		if l, err = newLayered(config, layers, a.caps, files.Close); err == nil {
			return l, nil
		}
	}
	return nil, errors.Join(err, files.Close())
}

// archive gives the files of an image's archive by name.
type archive interface {
	// open opens a regular file; one that is not there is fs.ErrNotExist.
	open(name string) (r io.ReadCloser, size int64, err error)
	Close() error
}

// document reads a small file of an archive.
func document(a archive, name string) ([]byte, error) {
	r, size, err := a.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notImage("it has no %.200s", name)
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > maxDocument {
		return nil, notImage("%.200s has %d bytes, at most %d are taken", name, size, maxDocument)
	}
	b, err := io.ReadAll(io.LimitReader(r, maxDocument))
	if err != nil {
		return nil, fmt.Errorf("read %.200s: %w", name, err)
	}
	return b, nil
}

// storedLayer is a layer in an archive.
func storedLayer(a archive, name string) (layer, error) {
	r, size, err := a.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return layer{}, notImage("its layer %.200s is missing", name)
	}
	if err != nil {
		return layer{}, err
	}
	open := func() (io.ReadCloser, error) {
		r, _, err := a.open(name)
		return r, err
	}
	return layer{open: open, size: size}, r.Close()
}

// readSaved reads the list that "docker save" puts into manifest.json.
func readSaved(a archive) (config []byte, layers []layer, err error) {
	raw, err := document(a, "manifest.json")
	if err != nil {
		return nil, nil, err
	}
	var images []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(raw, &images); err != nil {
		return nil, nil, notImage("manifest.json: %w", err)
	}
	if len(images) != 1 {
		return nil, nil, invalid("save one image into the archive", "the archive holds %d images", len(images))
	}
	if config, err = document(a, images[0].Config); err != nil {
		return nil, nil, err
	}
	for i, name := range images[0].Layers {
		if i == maxLayers {
			return nil, nil, notImage("it has %d layers", len(images[0].Layers))
		}
		l, err := storedLayer(a, name)
		if err != nil {
			return nil, nil, err
		}
		layers = append(layers, l)
	}
	return config, layers, nil
}

// maxIndexes bounds how deep the indexes of a layout refer to one another.
const maxIndexes = 4

// readLayout finds this machine's image in an OCI layout.
func readLayout(a archive) (config []byte, layers []layer, err error) {
	raw, err := document(a, "index.json")
	if err != nil {
		return nil, nil, err
	}
	for range maxIndexes {
		var index v1.IndexManifest
		if err := json.Unmarshal(raw, &index); err != nil {
			return nil, nil, notImage("index: %w", err)
		}
		d, err := choose(index.Manifests)
		if err != nil {
			return nil, nil, err
		}
		if raw, err = blobOf(a, d.Digest); err != nil {
			return nil, nil, err
		}
		if !d.MediaType.IsIndex() {
			return readManifest(a, raw)
		}
	}
	return nil, nil, notImage("its indexes refer to one another")
}

// choose picks the image for this machine.
func choose(all []v1.Descriptor) (v1.Descriptor, error) {
	has := ""
	for _, d := range all {
		if p := d.Platform; p != nil && (p.OS != "linux" || p.Architecture != runtime.GOARCH) {
			has = p.OS + "/" + p.Architecture
			continue
		}
		if d.MediaType.IsImage() || d.MediaType.IsIndex() {
			return d, nil
		}
	}
	if has != "" {
		return v1.Descriptor{}, wrongPlatform(has)
	}
	return v1.Descriptor{}, notImage("its index lists no image")
}

func readManifest(a archive, raw []byte) (config []byte, layers []layer, err error) {
	var m v1.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, nil, notImage("manifest: %w", err)
	}
	if config, err = blobOf(a, m.Config.Digest); err != nil {
		return nil, nil, err
	}
	for i, d := range m.Layers {
		if i == maxLayers {
			return nil, nil, notImage("it has %d layers", len(m.Layers))
		}
		l, err := storedLayer(a, blobName(d.Digest))
		if err != nil {
			return nil, nil, err
		}
		layers = append(layers, l)
	}
	return config, layers, nil
}

func blobName(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }

// blobOf reads a document and checks that it is what its name says.
func blobOf(a archive, h v1.Hash) ([]byte, error) {
	if h.Algorithm != "sha256" {
		return nil, notImage("digest %.100s is not of SHA-256", h)
	}
	b, err := document(a, blobName(h))
	if err != nil {
		return nil, err
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != h.Hex {
		return nil, invalid("the image is damaged: fetch or save it again", "blob %s holds the bytes of sha256:%s", h, got)
	}
	return b, nil
}

// openArchive opens a folder, or a file as a tar archive.
func openArchive(p string) (archive, error) {
	// Without blocking: the path may name a pipe that nobody writes to.
	f, err := os.OpenFile(p, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	switch {
	case info.IsDir():
		dir, err := os.OpenRoot(p)
		return folderArchive{dir}, errors.Join(err, f.Close())
	case info.Mode().IsRegular():
		a, err := indexTar(f)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return a, nil
	}
	return nil, errors.Join(notImage("%s is neither a file nor a folder", p), f.Close())
}
