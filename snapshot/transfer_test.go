package snapshot_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/blob/memory"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/snapshot"
)

func accept(*snapshot.Manifest) error { return nil }

func export(t testing.TB, s *snapshot.Store, d blob.Digest) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Export(t.Context(), d, &b, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestExportImports(t *testing.T) {
	from, _ := onDisk(t, t.TempDir())
	dir := sample(t)
	saved := save(t, from, dir)
	file := export(t, from, saved.Digest)
	to, b := onDisk(t, t.TempDir())
	got, m, err := to.Import(t.Context(), bytes.NewReader(file), nil, accept)
	if err != nil || got.Digest != saved.Digest || got.Bytes != saved.Bytes || got.Stored != saved.Stored || string(m.About) != string(about) {
		t.Fatalf("%+v, %v; want %+v", got, err, saved)
	}
	got.Release()
	if a, b := describe(t, dir), describe(t, load(t, to, got.Digest)); a != b {
		t.Errorf("exported\n%simported\n%s", a, b)
	}
	again, _, err := to.Import(t.Context(), bytes.NewReader(file), nil, accept)
	if err != nil || again.Added != 0 {
		t.Errorf("the same again adds %+v, %v", again, err)
	}
	again.Release()
	if _, err := to.Sweep(t.Context(), none); err != nil {
		t.Fatal(err)
	}
	wantBlobs(t, b, 0)
}

// entry is one of a stream's.
type entry struct {
	name string
	body []byte
	kind byte
	size int64 // if not the body's own
}

func entries(t testing.TB, file []byte) []entry {
	t.Helper()
	var all []entry
	for r := tar.NewReader(bytes.NewReader(file)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, entry{name: h.Name, body: b})
	}
}

func stream(t testing.TB, all []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range all {
		h := &tar.Header{Name: e.name, Mode: 0o600, Size: int64(len(e.body)), Typeflag: e.kind}
		if e.size != 0 {
			h.Size = e.size
		}
		if h.Typeflag == tar.TypeSymlink {
			h.Linkname, h.Size = "/etc/passwd", 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write(e.body); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.Flush() // a Close would complain of the sizes that lie
	return append(b.Bytes(), make([]byte, 1024)...)
}

// forge makes a stream whose manifest f has changed, with label and chunks as
// they would have to be.
func forge(t testing.TB, file []byte, f func(*snapshot.Manifest) (more []entry)) []byte {
	t.Helper()
	all := entries(t, file)
	dec, _ := zstd.NewReader(nil)
	defer dec.Close()
	plain, err := dec.DecodeAll(all[1].body, nil)
	if err != nil {
		t.Fatal(err)
	}
	var m snapshot.Manifest
	if err := json.Unmarshal(plain, &m); err != nil {
		t.Fatal(err)
	}
	more := f(&m)
	plain, err = json.Marshal(&m)
	if err != nil {
		t.Fatal(err)
	}
	all[1].body = pack(plain)
	all[0].body = fmt.Appendf(nil, `{"format":1,"manifest":%q}`, blob.DigestOf(blobSum(all[1].body)))
	return stream(t, append(all, more...))
}

func pack(b []byte) []byte {
	enc, _ := zstd.NewWriter(nil)
	defer enc.Close()
	return enc.EncodeAll(b, nil)
}

func asChunk(body []byte) entry {
	return entry{name: "chunks/" + blob.DigestOf(blobSum(body)).Hex(), body: body}
}

// TestHostileImports imports what nobody has exported.
func TestHostileImports(t *testing.T) {
	from, _ := onDisk(t, t.TempDir())
	dir := t.TempDir()
	write(t, dir+"/pages", 3*chunk, part{0, noise(3, 3*chunk)})
	write(t, dir+"/small", 10, part{0, []byte("0123456789")})
	file := export(t, from, save(t, from, dir).Digest)
	all := entries(t, file)
	secret := noise(8, chunk) // which the store has, of another
	bomb := pack(make([]byte, 64<<20))

	cases := map[string][]byte{
		"nothing":            nil,
		"noise":              noise(9, 100_000),
		"another tar":        stream(t, []entry{{name: "etc/passwd", body: []byte("root")}}),
		"no label":           stream(t, all[1:]),
		"a label alone":      stream(t, all[:1]),
		"no chunks":          stream(t, all[:2]),
		"a chunk less":       stream(t, all[:len(all)-1]),
		"a chunk twice":      stream(t, append(slices.Clone(all), all[2])),
		"a chunk too many":   stream(t, append(slices.Clone(all), asChunk(secret))),
		"a chunk that lies":  stream(t, replace(all, 2, entry{name: all[2].name, body: noise(10, len(all[2].body))})),
		"a link":             stream(t, replace(all, 2, entry{name: all[2].name, kind: tar.TypeSymlink})),
		"a way out":          stream(t, replace(all, 2, entry{name: "chunks/../../" + all[2].name, body: all[2].body})),
		"an endless label":   stream(t, replace(all, 0, entry{name: all[0].name, body: make([]byte, 1<<20)})),
		"a huge manifest":    stream(t, replace(all[:2], 1, entry{name: all[1].name, size: 1 << 40, body: []byte("x")})),
		"another's manifest": stream(t, replace(all, 1, entry{name: all[1].name, body: pack([]byte(`{"format":1}`))})),
	}
	for what, f := range map[string]func(*snapshot.Manifest) []entry{
		"a chunk of another": func(m *snapshot.Manifest) []entry {
			c := &m.Files[1].Chunks[0]
			c.Plain, c.Blob = blobSum(secret), blobSum(secret)
			return nil
		},
		"a bomb": func(m *snapshot.Manifest) []entry {
			m.Files[0].Chunks[0].Blob, m.Files[0].Chunks[0].Stored = blobSum(bomb), int64(len(bomb))
			return []entry{asChunk(bomb)}
		},
		"a wrong plain sum":   func(m *snapshot.Manifest) []entry { m.Files[1].Chunks[0].Plain[0] ^= 1; return nil },
		"a wrong length":      func(m *snapshot.Manifest) []entry { m.Files[1].Chunks[2].Length--; return nil },
		"a way out in a name": func(m *snapshot.Manifest) []entry { m.Files[0].Name = "../x"; return nil },
		"an absolute name":    func(m *snapshot.Manifest) []entry { m.Files[0].Name = "/etc/x"; return nil },
		"a NUL in a name":     func(m *snapshot.Manifest) []entry { m.Files[0].Name = "a\x00b"; return nil },
		"a name twice":        func(m *snapshot.Manifest) []entry { m.Files[0].Name = m.Files[1].Name; return nil },
		"a file as a folder":  func(m *snapshot.Manifest) []entry { m.Files[0].Name = m.Files[1].Name + "/x"; return nil },
		"setuid":              func(m *snapshot.Manifest) []entry { m.Files[0].Mode = 0o4755; return nil },
		"chunks that overlap": func(m *snapshot.Manifest) []entry { m.Files[1].Chunks[1].Offset--; return nil },
		"past the end":        func(m *snapshot.Manifest) []entry { m.Files[1].Size--; return nil },
		"a size of 2^62":      func(m *snapshot.Manifest) []entry { m.Files[1].Size = 1 << 62; return nil },
		"another format":      func(m *snapshot.Manifest) []entry { m.Format = 2; return nil },
		"two chunks, one blob": func(m *snapshot.Manifest) []entry {
			c := m.Files[1].Chunks
			c[0].Blob, c[0].Stored = c[1].Blob, c[1].Stored
			return nil
		},
	} {
		cases[what] = forge(t, file, f)
	}
	s, blobs := onDisk(t, t.TempDir())
	for what, b := range cases {
		if _, err := blobs.Put(t.Context(), bytes.NewReader(secret)); err != nil {
			t.Fatal(err)
		}
		_, _, err := s.Import(t.Context(), bytes.NewReader(b), nil, accept)
		if k := sandbox.KindOf(err); k != sandbox.Invalid && (what != "another format" || k != sandbox.Unsupported) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := s.Sweep(t.Context(), none); err != nil {
			t.Fatal(err)
		}
		wantBlobs(t, blobs, 0)
	}
}

func replace(all []entry, i int, e entry) []entry {
	all = slices.Clone(all)
	all[i] = e
	return all
}

// TestCutImports ends a stream at each of its blocks.
func TestCutImports(t *testing.T) {
	from, _ := onDisk(t, t.TempDir())
	dir := t.TempDir()
	write(t, dir+"/pages", 2000, part{0, noise(3, 2000)})
	write(t, dir+"/small", 10, part{0, []byte("0123456789")})
	file := export(t, from, save(t, from, dir).Digest)
	s, b := onDisk(t, t.TempDir())
	for n := 0; n < len(file)-1024-512; n += 100 {
		_, _, err := s.Import(t.Context(), bytes.NewReader(file[:n]), nil, accept)
		wantKind(t, fmt.Sprintf("the first %d bytes", n), err, sandbox.Invalid)
	}
	refused := sandbox.Errorf("check quota", sandbox.Exhausted, "no more")
	_, _, err := s.Import(t.Context(), bytes.NewReader(file), nil, func(*snapshot.Manifest) error { return refused })
	wantKind(t, "one that is not accepted", err, sandbox.Exhausted)
	broken := sandbox.Errorf("read body", sandbox.Unavailable, "the client left")
	_, _, err = s.Import(t.Context(), io.MultiReader(bytes.NewReader(file[:3000]), broke{broken}), nil, accept)
	wantKind(t, "a transport that broke", err, sandbox.Unavailable)
	if _, err := s.Sweep(t.Context(), none); err != nil {
		t.Fatal(err)
	}
	wantBlobs(t, b, 0)
}

// FuzzImport gives any stream to Import. What it takes loads, and gives itself
// back.
func FuzzImport(f *testing.F) {
	from, _ := onDisk(f, f.TempDir())
	dir := f.TempDir()
	write(f, dir+"/deep/pages", 9000, part{100, noise(3, 2000)})
	write(f, dir+"/small", 10, part{0, []byte("0123456789")})
	file := export(f, from, save(f, from, dir).Digest)
	f.Add(file)
	f.Add(stream(f, entries(f, file)[:2]))
	f.Add(forge(f, file, func(m *snapshot.Manifest) []entry { m.Files = nil; return nil }))
	// One for all, as making it costs more than an import; and one thing at a time,
	// so that the same input takes the same way.
	s, err := snapshot.New(snapshot.Config{Blobs: &memory.Store{}, Saves: 1, Loads: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		saved, _, err := s.Import(t.Context(), bytes.NewReader(b), nil, func(m *snapshot.Manifest) error {
			if m.Bytes() > 1<<20 {
				return errors.New("too large for a test")
			}
			return nil
		})
		if err != nil {
			return
		}
		defer saved.Release()
		load(t, s, saved.Digest)
		again, _, err := s.Import(t.Context(), bytes.NewReader(export(t, s, saved.Digest)), nil, accept)
		if err != nil {
			t.Fatalf("what was imported and exported is refused: %v", err)
		}
		again.Release()
	})
}

// FuzzManifest reads any bytes as a manifest.
func FuzzManifest(f *testing.F) {
	sum := strings.Repeat("ab", 32)
	f.Add([]byte(`{"format":1,"about":{},"files":[]}`))
	f.Add([]byte(`{"format":1,"about":{"a":1},"files":[{"name":"a/b","size":9,"mode":384,"chunks":[{"offset":1,"length":8,"plain":"` + sum + `","blob":"` + sum + `","stored":12}]}]}`))
	f.Add([]byte(`{"format":1,"about":null,"files":[{"name":"../a","size":-1,"mode":511,"chunks":null}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := snapshot.DecodeManifest(b)
		if err != nil {
			if k := sandbox.KindOf(err); k != sandbox.Invalid && k != sandbox.Unsupported {
				t.Errorf("%v is of kind %s", err, k)
			}
			return
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if n, err := snapshot.DecodeManifest(again); err != nil || n.Bytes() != m.Bytes() || n.StoredBytes() != m.StoredBytes() {
			t.Errorf("%s reads as another: %v", again, err)
		}
	})
}
