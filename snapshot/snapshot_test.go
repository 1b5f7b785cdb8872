package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/blob/disk"
	"github.com/berth-dev/berth/blob/memory"
	"github.com/berth-dev/berth/blob/s3/s3test"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/snapshot"
)

var about = []byte(`{"name":"a test"}`)

func newStore(t testing.TB, b blob.Store) *snapshot.Store {
	t.Helper()
	s, err := snapshot.New(snapshot.Config{Blobs: b})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func onDisk(t testing.TB, dir string) (*snapshot.Store, blob.Store) {
	t.Helper()
	b, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return newStore(t, b), b
}

// noise is n bytes that do not compress, the same for the same seed.
func noise(seed uint64, n int) []byte {
	src := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	b := make([]byte, n)
	src.Read(b)
	return b
}

// part is what a test writes at a place of a file.
type part struct {
	offset int64
	bytes  []byte
}

func write(t testing.TB, path string, size int64, parts ...part) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Chmod(0o640), f.Truncate(size)); err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if _, err := f.WriteAt(p.bytes, p.offset); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	chunk = snapshot.ChunkSize
	huge  = 40 << 30 // mostly a hole
)

// sample makes a folder of all that may be in one.
func sample(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "about.json"), 2, part{0, []byte("{}")})
	write(t, filepath.Join(dir, "empty"), 0)
	write(t, filepath.Join(dir, "deep/er/state"), 3*chunk+7, part{0, noise(1, 3*chunk+7)})
	write(t, filepath.Join(dir, "layer"), huge,
		part{5, []byte("at the beginning")},
		part{7 * chunk, make([]byte, 4*chunk)}, // written zeros
		part{20<<30 + 123, noise(2, chunk)},
		part{huge - 1, []byte{1}})
	write(t, filepath.Join(dir, "hole"), 5*chunk)
	return dir
}

func save(t testing.TB, s *snapshot.Store, dir string, bases ...blob.Digest) *snapshot.Saved {
	t.Helper()
	saved, err := s.Save(t.Context(), dir, about, bases...)
	if err != nil {
		t.Fatal(err)
	}
	saved.Release()
	return saved
}

func load(t testing.TB, s *snapshot.Store, d blob.Digest) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "loaded")
	if err := s.Load(t.Context(), d, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// describe tells all files of a folder with their sizes, modes and the data in
// them, holes left out.
func describe(t testing.TB, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		fmt.Fprintln(&all, name, info.Size(), info.Mode())
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		block := make([]byte, chunk)
		for at := int64(0); ; at += chunk {
			at, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
			if err != nil {
				return nil
			}
			at -= at % chunk
			n, _ := f.ReadAt(block, at)
			if b := block[:n]; len(bytes.Trim(b, "\x00")) > 0 {
				fmt.Fprintf(&all, "  %d %x\n", at, blobSum(b))
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func wantKind(t testing.TB, what string, err error, want sandbox.Kind) {
	t.Helper()
	if got := sandbox.KindOf(err); got != want {
		t.Errorf("%s: kind %q, want %q (error: %v)", what, got, want, err)
	}
}

// bodies runs a test on every store of blobs.
func bodies(t *testing.T, f func(*testing.T, blob.Store)) {
	t.Run("disk", func(t *testing.T) {
		_, b := onDisk(t, t.TempDir())
		f(t, b)
	})
	t.Run("s3", func(t *testing.T) { f(t, s3test.Start(t, "").Open(t, "snapshots")) })
}

func TestGivesBack(t *testing.T) {
	bodies(t, func(t *testing.T, b blob.Store) {
		s := newStore(t, b)
		dir := sample(t)
		saved := save(t, s, dir)
		if saved.Bytes > 8*chunk || saved.Stored > 8*chunk || saved.Added > saved.Stored || saved.Bytes < 4*chunk {
			t.Errorf("holes and zeros are counted: %+v", saved)
		}
		got := load(t, s, saved.Digest)
		if a, b := describe(t, dir), describe(t, got); a != b {
			t.Errorf("saved\n%sloaded\n%s", a, b)
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(got, "layer"), &st); err != nil || st.Blocks*512 > 6*chunk {
			t.Errorf("the loaded file has %d bytes on disk: %v", st.Blocks*512, err)
		}
		m, err := s.Manifest(t.Context(), saved.Digest)
		if err != nil || string(m.About) != string(about) || m.Files[0].Size > m.Files[1].Size || m.Files[len(m.Files)-1].Name != "layer" {
			t.Errorf("%v: %s", err, m.About)
		}
		if err := s.Verify(t.Context(), saved.Digest); err != nil {
			t.Error(err)
		}
	})
}

// TestStoresOnce changes one byte between two saves.
func TestStoresOnce(t *testing.T) {
	s, _ := onDisk(t, t.TempDir())
	dir := sample(t)
	first := save(t, s, dir)
	if again := save(t, s, dir); again.Digest != first.Digest || again.Added != 0 {
		t.Errorf("the same again adds %d bytes", again.Added)
	}
	write(t, filepath.Join(dir, "layer"), huge, part{20 << 30, []byte("changed")})
	for name, second := range map[string]*snapshot.Saved{
		"with a base": save(t, s, dir, first.Digest), "with a base that is gone": save(t, s, dir, blob.DigestOf([32]byte{1})),
	} {
		if second.Added > chunk+16<<10 {
			t.Errorf("%s: one changed chunk adds %d bytes", name, second.Added)
		}
	}
}

// TestDamageIsRefused damages every blob in turn.
func TestDamageIsRefused(t *testing.T) {
	home := t.TempDir()
	s, b := onDisk(t, home)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "pages"), 3*chunk, part{0, noise(3, 3*chunk)})
	saved := save(t, s, dir)
	m, err := s.Manifest(t.Context(), saved.Digest)
	if err != nil {
		t.Fatal(err)
	}
	damages := map[string]func(b []byte) []byte{
		"a flipped bit": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"a lost end":    func(b []byte) []byte { return b[:len(b)-1] },
		"nothing":       func([]byte) []byte { return nil },
		"an addition":   func(b []byte) []byte { return append(b, 0) },
	}
	for what, damage := range damages {
		for i, c := range m.Files[0].Chunks {
			d := blob.DigestOf(c.Blob)
			path := filepath.Join(home, "sha256", d.Hex()[:2], d.Hex())
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			rewrite(t, path, damage(bytes.Clone(whole)))
			wantRefused(t, s, saved.Digest, what, fmt.Sprintf("chunk %d of pages", i))
			rewrite(t, path, whole)
		}
	}
	if err := b.Remove(t.Context(), blob.DigestOf(m.Files[0].Chunks[1].Blob)); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, s, saved.Digest, "a chunk that is gone", "chunk 1 of pages")
	rewrite(t, filepath.Join(home, "sha256", saved.Digest.Hex()[:2], saved.Digest.Hex()), []byte("damaged"))
	wantRefused(t, s, saved.Digest, "the manifest", string(saved.Digest))
}

func rewrite(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := errors.Join(os.Remove(path), os.WriteFile(path, b, 0o400)); err != nil {
		t.Fatal(err)
	}
}

func wantRefused(t *testing.T, s *snapshot.Store, d blob.Digest, what, names string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "x")
	for verb, err := range map[string]error{
		"load": s.Load(t.Context(), d, dir), "verify": s.Verify(t.Context(), d), "export": s.Export(t.Context(), d, io.Discard, nil),
	} {
		wantKind(t, verb+" with "+what, err, sandbox.Internal)
		if err != nil && !strings.Contains(err.Error(), names) {
			t.Errorf("%s with %s: %v does not name %s", verb, what, err, names)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) > 0 {
		t.Errorf("left behind with %s: %v, %v", what, left, err)
	}
}

func TestRefusesWhatIsNoFile(t *testing.T) {
	s, _ := onDisk(t, t.TempDir())
	dir := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	_, err := s.Save(t.Context(), dir, about)
	wantKind(t, "save of a link", err, sandbox.Invalid)
	_, err = s.Save(t.Context(), filepath.Join(dir, "nowhere"), about)
	wantKind(t, "save of nothing", err, sandbox.Internal)
}

// failing is a store of blobs whose nth call fails.
type failing struct {
	blob.Store
	mu   sync.Mutex
	left int
	err  error
}

func (f *failing) next() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left--; f.left < 0 {
		return f.err
	}
	return nil
}

func (f *failing) Put(ctx context.Context, r io.Reader) (blob.Info, error) {
	if err := f.next(); err != nil {
		return blob.Info{}, err
	}
	return f.Store.Put(ctx, r)
}

func (f *failing) Open(ctx context.Context, d blob.Digest, offset int64) (io.ReadCloser, error) {
	if err := f.next(); err != nil {
		return nil, err
	}
	return f.Store.Open(ctx, d, offset)
}

func (f *failing) Stat(ctx context.Context, d blob.Digest) (blob.Info, error) {
	if err := f.next(); err != nil {
		return blob.Info{}, err
	}
	return f.Store.Stat(ctx, d)
}

// TestEveryStepFails ends a save and a load at each of their calls.
func TestEveryStepFails(t *testing.T) {
	dir := sample(t)
	full := sandbox.Errorf("put blob", sandbox.Exhausted, "the disk is full")
	for n := 0; ; n++ {
		b := &memory.Store{}
		f := &failing{Store: b, left: n, err: full}
		s := newStore(t, f)
		saved, err := s.Save(t.Context(), dir, about)
		if err == nil {
			saved.Release()
			loadFails(t, f, s, saved.Digest)
			if n < 10 {
				t.Errorf("a save of %d calls proves little", n)
			}
			return
		}
		wantKind(t, fmt.Sprintf("save whose call %d fails", n), err, sandbox.Exhausted)
		f.left = 1 << 30
		if _, err := s.Sweep(t.Context(), none); err != nil {
			t.Fatal(err)
		}
		wantBlobs(t, b, 0)
	}
}

func loadFails(t *testing.T, f *failing, s *snapshot.Store, d blob.Digest) {
	for n := 0; ; n++ {
		f.left, f.err = n, sandbox.Errorf("open blob", sandbox.Unavailable, "out of reach")
		dir := filepath.Join(t.TempDir(), "x")
		err := s.Load(t.Context(), d, dir)
		if err == nil {
			return
		}
		wantKind(t, fmt.Sprintf("load whose call %d fails", n), err, sandbox.Unavailable)
		if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

func none(context.Context) ([]blob.Digest, error) { return nil, nil }

func wantBlobs(t *testing.T, b blob.Store, want int) {
	t.Helper()
	n := 0
	if err := b.List(t.Context(), func(blob.Info) error { n++; return nil }); err != nil || n != want {
		t.Errorf("%d blobs, want %d: %v", n, want, err)
	}
}

func TestEndedContext(t *testing.T) {
	s, _ := onDisk(t, t.TempDir())
	dir := sample(t)
	saved := save(t, s, dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Save(ctx, dir, about)
	_, serr := s.SaveStream(ctx, "x", bytes.NewReader(noise(4, chunk)), 1<<40, about)
	_, _, ierr := s.Import(ctx, bytes.NewReader(nil), nil, nil)
	for what, err := range map[string]error{"save": err, "save stream": serr, "import": ierr,
		"load": s.Load(ctx, saved.Digest, filepath.Join(t.TempDir(), "x")), "export": s.Export(ctx, saved.Digest, io.Discard, nil)} {
		if !errors.Is(err, context.Canceled) || sandbox.KindOf(err) != sandbox.Unavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestOpen reads a stored file in pieces.
func TestOpen(t *testing.T) {
	s, _ := onDisk(t, t.TempDir())
	dir := t.TempDir()
	size := int64(9*chunk + 100)
	want := make([]byte, size)
	copy(want[chunk-50:], noise(5, 3*chunk))
	copy(want[8*chunk+7:], noise(6, chunk))
	write(t, filepath.Join(dir, "f"), size, part{chunk - 50, noise(5, 3*chunk)}, part{8*chunk + 7, noise(6, chunk)})
	saved := save(t, s, dir)
	r, err := s.Open(t.Context(), saved.Digest, "f")
	if err != nil || r.Size() != size {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for i := range 4 {
		readers.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			for range 40 {
				at := rnd.Int64N(size)
				b := make([]byte, rnd.IntN(2*chunk))
				n, err := r.ReadAt(b, at)
				end := min(at+int64(len(b)), size)
				if !bytes.Equal(b[:n], want[at:end]) || (err == nil) != (at+int64(len(b)) <= size) || err != nil && err != io.EOF {
					t.Errorf("%d bytes at %d: %d, %v", len(b), at, n, err)
				}
			}
		})
	}
	readers.Wait()
	if n, err := r.ReadAt(make([]byte, 1), size); n != 0 || err != io.EOF {
		t.Errorf("read at the end: %d, %v", n, err)
	}
	_, err = s.Open(t.Context(), saved.Digest, "g")
	wantKind(t, "open of another file", err, sandbox.NotFound)
	_, err = s.Open(t.Context(), blob.DigestOf([32]byte{9}), "f")
	wantKind(t, "open of another manifest", err, sandbox.NotFound)
}

// TestStream keeps a stream, and the same with something put into its midst.
func TestStream(t *testing.T) {
	s, _ := onDisk(t, t.TempDir())
	first := append(noise(7, 12<<20), make([]byte, 5<<20)...)
	second := append(append(bytes.Clone(first[:5<<20]), "inserted"...), first[5<<20:]...)
	var added []int64
	for _, b := range [][]byte{first, second, {}} {
		saved, err := s.SaveStream(t.Context(), "files.tar", bytes.NewReader(b), int64(len(b)), about)
		if err != nil {
			t.Fatal(err)
		}
		saved.Release()
		added = append(added, saved.Added)
		r, err := s.Stream(t.Context(), saved.Digest, "files.tar")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%d bytes come back as %d: %v", len(b), len(got), err)
		}
	}
	if added[1] > 6<<20 {
		t.Errorf("eight inserted bytes add %d", added[1])
	}
	_, err := s.SaveStream(t.Context(), "x", bytes.NewReader(first), int64(len(first)-1), about)
	wantKind(t, "more than may be", err, sandbox.Exhausted)
	broken := errors.New("the source broke")
	_, err = s.SaveStream(t.Context(), "x", io.MultiReader(bytes.NewReader(first), broke{broken}), 1<<40, about)
	if !errors.Is(err, broken) {
		t.Errorf("a source that broke: %v", err)
	}
}

type broke struct{ err error }

func (b broke) Read([]byte) (int, error) { return 0, b.err }
