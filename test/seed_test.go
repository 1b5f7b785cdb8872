package test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// makeSeed makes the data directory whose templates every transcript starts
// with. On gVisor that is the real template base, kept for the next run beneath
// BERTH_TEST_DATA; the fake driver runs no root, so a small archive will do.
func (s *suite) makeSeed(t *testing.T) string {
	t.Helper()
	dir, args := t.TempDir(), []string{"template", "build", "base"}
	if s.driver == "fake" {
		args = append(args, "--from", "docker-archive:"+s.small)
	} else if kept := os.Getenv("BERTH_TEST_DATA"); kept != "" {
		dir = kept
	}
	i := &instance{suite: s, data: dir, log: filepath.Join(t.TempDir(), "server.log")}
	if err := i.start(); err != nil {
		t.Fatal(err)
	}
	err := s.run([]string{"BERTH_URL=" + i.url, "BERTH_DATA=" + dir}, args...)
	if err := i.stop(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(i.log))
	}
	return dir
}

// smallArchive writes an image with a handful of files, as "docker save" does.
func smallArchive(t *testing.T) string {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, f := range []struct{ name, text string }{
		{"etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"},
		{"etc/group", "root:x:0:\n"},
		{"etc/hostname", "small\n"},
	} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	img, err := mutate.Append(empty.Image, mutate.Addendum{Layer: layerOf(t, layer.Bytes())})
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("berth.test/small:1")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "small.tar")
	if err := tarball.WriteToFile(path, tag, img); err != nil {
		t.Fatal(err)
	}
	return path
}

func layerOf(t *testing.T, b []byte) v1.Layer {
	t.Helper()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return layer
}
