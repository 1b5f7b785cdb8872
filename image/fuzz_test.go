package image

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// FuzzLayer unpacks two layers: nothing outside of the root changes, and what
// is refused is refused for a reason that has a kind.
func FuzzLayer(f *testing.F) {
	needRoot(f)
	for _, entries := range [][]tar.Header{
		{dir("a/"), file("a/f", "1"), symlink("a/l", "/.."), hardlink("a/h", "a/f")},
		{file("../x", "1"), symlink("up", ".."), file("up/secret", "1")},
		{gone("a/.wh.f"), gone("a/.wh..wh..opq"), gone(".wh.a")},
		{symlink("root", "../root"), file("root/secret", "x"), {Name: "c", Typeflag: tar.TypeChar}},
	} {
		f.Add(archiveOf(f, dir("a/"), file("a/f", "0")), archiveOf(f, entries...))
	}
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		_, err := unpackInto(t, caps{bytes: 1 << 20, entries: 100}, lower, upper)
		if err != nil && sandbox.KindOf(err) == sandbox.Internal {
			t.Errorf("refused without a reason: %v", err)
		}
	})
}

// FuzzDecompress reads what claims to be compressed, within a budget.
func FuzzDecompress(f *testing.F) {
	f.Add([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x28\xb5\x2f\xfd\x00\x58\x01\x00\x00"))
	f.Add([]byte("plain"))
	f.Fuzz(func(t *testing.T, b []byte) {
		plain, done, err := decompress(bytes.NewReader(b))
		if err != nil {
			return
		}
		defer done()
		left := int64(1 << 20)
		if n, _ := io.Copy(io.Discard, &budget{plain, &left}); n > 1<<20 {
			t.Errorf("read %d bytes", n)
		}
	})
}

// memory is an archive of one document under many names.
type memory map[string][]byte

func (m memory) open(name string) (io.ReadCloser, int64, error) {
	b, ok := m[name]
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
}

func (m memory) Close() error { return nil }

// FuzzDocuments reads hostile manifests, indexes and configurations.
func FuzzDocuments(f *testing.F) {
	f.Add([]byte(`[{"Config":"c","Layers":["a","b"]}]`))
	f.Add([]byte(`{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size":3}]}`))
	f.Add([]byte(`{"architecture":"amd64","os":"linux","config":{"Env":["A=b"],"User":"1:2"},"rootfs":{"type":"layers","diff_ids":["sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := memory{"manifest.json": b, "index.json": b, "a": b, "c": b}
		_, layers, err := readSaved(a)
		wantKinded(t, err)
		_, _, err = readLayout(a)
		wantKinded(t, err)
		_, _, err = readManifest(a, b)
		wantKinded(t, err)
		if len(layers) == 0 {
			layers = []layer{{}}
		}
		l, err := newLayered(b, layers, defaultCaps, a.Close)
		wantKinded(t, err)
		if err == nil {
			c, err := readConfig(l.config.Config)
			wantKinded(t, err)
			if err == nil && (c.workdir != "" && c.workdir[0] != '/' || strings.ContainsAny(c.user, "\n:")) {
				t.Errorf("configuration %+v", c)
			}
		}
	})
}

func wantKinded(t *testing.T, err error) {
	t.Helper()
	if err != nil && sandbox.KindOf(err) == sandbox.Internal {
		t.Errorf("refused without a reason: %v", err)
	}
}

// FuzzAccounts adds the user to any account file.
func FuzzAccounts(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/bash\nnode:x:1000:1000::/home/node:/bin/bash\n")
	f.Add("user:x:5:5:::\n\n:::\n+::::::")
	f.Fuzz(func(t *testing.T, text string) {
		const line = "user:x:1000:1000::/home/user:/bin/bash"
		out := withAccount(text, "user", line)
		if !strings.HasSuffix(out, "\n") || strings.Count("\n"+out, "\nuser:") != 1 || !strings.Contains("\n"+out, "\n"+line+"\n") {
			t.Errorf("%q became %q", text, out)
		}
		if again := withAccount(out, "user", line); again != out {
			t.Errorf("%q, again %q", out, again)
		}
	})
}

// FuzzOutput reads any output of a builder.
func FuzzOutput(f *testing.F) {
	f.Add("I: running apt-get update...\nGet:1 http://x\n0 upgraded, 3 newly installed, 0 to remove\nGet:2 x\nUnpacking a\nSetting up a\r\x1b[0m")
	f.Fuzz(func(t *testing.T, text string) {
		steps := aptSteps{say: func(p sandbox.Progress) {
			if len(p.Log) > maxLine || p.Done < 0 || p.Total < 0 || (p.Total > 0 && p.Done > p.Total) || strings.ContainsAny(p.Log, "\n\r\x1b") {
				t.Errorf("progress %+v", p)
			}
		}}
		if tail := readLines(strings.NewReader(text), steps.line); len(tail) > keepTail {
			t.Errorf("%d lines kept", len(tail))
		}
	})
}

// FuzzTar indexes any file as an archive.
func FuzzTar(f *testing.F) {
	f.Add(archiveOf(f, file("manifest.json", "[]"), symlink("a", "b"), hardlink("c", "manifest.json")))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := t.TempDir() + "/a.tar"
		writeFile(t, path, b)
		for _, kind := range []string{"docker-archive", "oci-archive"} {
			r, err := archiveSource{kind: kind, path: path, caps: smallCaps}.resolve(context.Background())
			wantKinded(t, err)
			if err == nil {
				r.Close()
			}
		}
	})
}
