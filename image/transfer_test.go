package image

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// rootStore is a store, and the digest of a root image of some pieces in it, if size
// is not 0.
func rootStore(t testing.TB, size int) (*Store, string) {
	t.Helper()
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if size == 0 {
		return s, ""
	}
	b := make([]byte, size)
	rand.Read(b[:size/2])
	sum := sha256.Sum256(b)
	e := entry{Key: "a test", Template: sandbox.Template{Name: "gone", Account: "main", Digest: digestPrefix + hex.EncodeToString(sum[:]), Size: int64(size),
		Env: map[string]string{"PATH": "/bin"}, User: "user", Workdir: "/workspace", Source: "a test"}}
	if err := os.WriteFile(s.RootPath(e.Template), b, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := writeEntry(s.imageInfoPath(e.Template.Digest), e); err != nil {
		t.Fatal(err)
	}
	return s, e.Template.Digest
}

// written is the stream of a root image.
func written(t testing.TB, s *Store, digest string) []byte {
	t.Helper()
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	if err := s.WriteRoot(t.Context(), digest, out); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func take(t testing.TB, s *Store, stream []byte) (string, error) {
	t.Helper()
	in := tar.NewReader(bytes.NewReader(stream))
	h, err := in.Next()
	if err != nil {
		return "", err
	}
	digest, err := s.TakeRoot(t.Context(), h, in)
	if err == nil {
		if _, err := in.Next(); err != io.EOF {
			t.Errorf("something of it is left: %v", err)
		}
	}
	return digest, err
}

func TestRootsMove(t *testing.T) {
	from, digest := rootStore(t, pieceSize+4096)
	stream := written(t, from, digest)
	to, _ := rootStore(t, 0)
	for range 2 { // the second finds it there
		got, err := take(t, to, stream)
		if err != nil || got != digest {
			t.Fatalf("%s, %v", got, err)
		}
	}
	a, err := from.Get(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	b, err := to.Get(t.Context(), digest)
	if err != nil || b.Name != "" || b.Account != "" || b.Env["PATH"] != "/bin" || b.User != a.User || b.Workdir != a.Workdir || b.Size != a.Size {
		t.Errorf("%+v, %v", b, err)
	}
	one, _ := os.ReadFile(from.RootPath(a))
	other, err := os.ReadFile(to.RootPath(b))
	if err != nil || !bytes.Equal(one, other) {
		t.Errorf("its bytes are others: %v", err)
	}
	gone, err := to.Prune(t.Context(), func(string) bool { return false })
	if err != nil || len(gone) != 1 {
		t.Errorf("unclaimed it stays: %q, %v", gone, err)
	}
}

// edited is a stream with its entries changed.
func edited(t testing.TB, stream []byte, change func(i int, h *tar.Header, body []byte) []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	in := tar.NewReader(bytes.NewReader(stream))
	for i := 0; ; i++ {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		body, rerr := io.ReadAll(in)
		if err != nil || rerr != nil {
			t.Fatal(err, rerr)
		}
		body = change(i, h, body)
		h.Size = int64(len(body))
		if body == nil {
			continue
		}
		if err := out.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		out.Write(body)
	}
	out.Close()
	return b.Bytes()
}

func TestRootsThatAreNone(t *testing.T) {
	from, digest := rootStore(t, pieceSize+4096)
	_, otherDigest := rootStore(t, 4096)
	stream := written(t, from, digest)
	for name, bad := range map[string][]byte{
		"cut": stream[:len(stream)/2],
		"a piece that is missing": edited(t, stream, func(i int, _ *tar.Header, b []byte) []byte {
			if i == 2 {
				return nil
			}
			return b
		}),
		"a piece twice": edited(t, stream, func(i int, h *tar.Header, b []byte) []byte {
			if i == 2 {
				h.Name = pieceName(0)
			}
			return b
		}),
		"a piece that is no frame": edited(t, stream, func(i int, _ *tar.Header, b []byte) []byte {
			if i == 1 {
				return []byte("no frame")
			}
			return b
		}),
		"another's digest": edited(t, stream, func(i int, _ *tar.Header, b []byte) []byte {
			if i == 0 {
				return bytes.ReplaceAll(b, []byte(digest), []byte(otherDigest))
			}
			return b
		}),
		"no digest": edited(t, stream, func(i int, _ *tar.Header, b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(digest), []byte("../../etc/passwd"))
		}),
		"a size of its own": edited(t, stream, func(i int, _ *tar.Header, b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(`"size":`), []byte(`"size":9`))
		}),
		"another beginning": edited(t, stream, func(i int, h *tar.Header, b []byte) []byte {
			h.Name = strings.TrimSuffix(h.Name, ".json")
			return b
		}),
		"no words": edited(t, stream, func(i int, h *tar.Header, b []byte) []byte {
			if i == 0 {
				return []byte("{")
			}
			return b
		}),
	} {
		to, _ := rootStore(t, 0)
		if _, err := take(t, to, bad); sandbox.KindOf(err) != sandbox.Invalid || sandbox.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		left, _ := filepath.Glob(filepath.Join(to.dir, "*", "*"))
		if len(left) > 0 {
			t.Errorf("%s: left %q", name, left)
		}
	}
}

// FuzzTakeRoot: whatever a stream says, what is kept has the bytes that its name says.
func FuzzTakeRoot(f *testing.F) {
	from, digest := rootStore(f, 8192)
	f.Add(written(f, from, digest))
	f.Fuzz(func(t *testing.T, stream []byte) {
		to, _ := rootStore(t, 0)
		in := tar.NewReader(bytes.NewReader(stream))
		h, err := in.Next()
		if err != nil {
			return
		}
		got, err := to.TakeRoot(t.Context(), h, in)
		if err != nil {
			return
		}
		b, err := os.ReadFile(to.RootPath(sandbox.Template{Digest: got}))
		if sum := sha256.Sum256(b); err != nil || digestPrefix+hex.EncodeToString(sum[:]) != got {
			t.Errorf("%s is not what is kept under it: %v", got, err)
		}
	})
}
