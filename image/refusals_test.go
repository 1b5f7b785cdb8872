package image

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

func wantRefusal(t *testing.T, what string, err error, want sandbox.Kind) {
	t.Helper()
	var e *sandbox.Error
	if sandbox.KindOf(err) != want || sandbox.HintOf(err) == "" || !errors.As(err, &e) || !strings.HasPrefix(err.Error(), "build template") {
		t.Errorf("%s: kind %q, hint %q, want %q: %v", what, sandbox.KindOf(err), sandbox.HintOf(err), want, err)
	}
}

func TestBuildRefusals(t *testing.T) {
	needRoot(t)
	dirName := t.TempDir()
	text := filepath.Join(dirName, "text")
	writeFile(t, text, []byte(strings.Repeat("not an image\n", 100)))
	zipped := filepath.Join(dirName, "zipped")
	writeFile(t, zipped, append([]byte("\x1f\x8b\x08\x00"), make([]byte, 600)...))
	emptyTar := filepath.Join(dirName, "empty.tar")
	writeFile(t, emptyTar, archiveOf(t))
	pipe := filepath.Join(dirName, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	hostile := savedImage(t, imageOf(t, gzipLayer(t, file("../../escape", "x"))))
	damagedFolder, _ := layoutOf(t, sample(t))
	damageLargest(t, damagedFolder)
	s := openStore(t, t.TempDir())
	for from, want := range map[string]sandbox.Kind{
		"":                             sandbox.Invalid,
		"bookworm":                     sandbox.Invalid,
		"distribution:":                sandbox.Invalid,
		"distribution:../x":            sandbox.Invalid,
		"distribution:--mode=root":     sandbox.Invalid,
		"oci:UPPER CASE":               sandbox.Invalid,
		"floppy:a":                     sandbox.Invalid,
		"docker-archive:relative":      sandbox.Invalid,
		"docker-archive:/no/such":      sandbox.NotFound,
		"docker-archive:" + text:       sandbox.Invalid,
		"oci-archive:" + text:          sandbox.Invalid,
		"docker-archive:" + zipped:     sandbox.Invalid,
		"docker-archive:" + emptyTar:   sandbox.Invalid,
		"oci-archive:" + emptyTar:      sandbox.Invalid,
		"oci-archive:" + dirName:       sandbox.Invalid,
		"docker-archive:" + pipe:       sandbox.Invalid,
		"docker-archive:" + hostile:    sandbox.Invalid,
		"oci-archive:" + damagedFolder: sandbox.Invalid,
	} {
		_, err := s.Build(t.Context(), sandbox.BuildRequest{Name: "bad", From: from}, nil)
		wantRefusal(t, from, err, want)
	}
	_, err := s.Build(t.Context(), sandbox.BuildRequest{Name: "../bad", From: "docker-archive:" + hostile}, nil)
	wantRefusal(t, "name", err, sandbox.Invalid)
	wantNoWork(t, s)
	if list, err := s.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("list: %v, %v", list, err)
	}
}

// damageLargest flips a bit in the largest blob of a layout.
func damageLargest(t *testing.T, folder string) {
	t.Helper()
	blobs, err := filepath.Glob(filepath.Join(folder, "blobs/sha256/*"))
	if err != nil || len(blobs) == 0 {
		t.Fatalf("blobs: %v, %v", blobs, err)
	}
	var largest []byte
	at := ""
	for _, p := range blobs {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(b, []byte("{")) && len(b) > len(largest) {
			largest, at = b, p
		}
	}
	largest[len(largest)/2] ^= 1
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	writeFile(t, at, largest)
}
