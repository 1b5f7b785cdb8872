package snapshot_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/blob/disk"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/snapshot"
)

func blobSum(b []byte) [32]byte { return sha256.Sum256(b) }

func only(d ...blob.Digest) func(context.Context) ([]blob.Digest, error) {
	return func(context.Context) ([]blob.Digest, error) { return d, nil }
}

func TestSweepKeepsWhatIsNeeded(t *testing.T) {
	s, b := onDisk(t, t.TempDir())
	dir := sample(t)
	first := save(t, s, dir)
	write(t, filepath.Join(dir, "layer"), huge, part{20 << 30, []byte("changed")})
	second := save(t, s, dir)
	if swept, err := s.Sweep(t.Context(), only(first.Digest, second.Digest)); err != nil || swept.Blobs != 0 {
		t.Fatalf("%+v, %v", swept, err)
	}
	would, err := s.Unneeded(t.Context(), only(second.Digest))
	if err != nil {
		t.Fatal(err)
	}
	swept, err := s.Sweep(t.Context(), only(second.Digest))
	if swept != would {
		t.Errorf("swept %+v, %+v was unneeded", swept, would)
	}
	if err != nil || swept.Blobs != 2 || swept.Bytes < chunk/2 {
		t.Errorf("%+v, %v; want the one chunk and the manifest that the first alone had", swept, err)
	}
	if err := s.Verify(t.Context(), second.Digest); err != nil {
		t.Error(err)
	}
	_, err = s.Sweep(t.Context(), only(second.Digest, first.Digest))
	wantKind(t, "sweep while a manifest cannot be read", err, sandbox.NotFound)
	if err := s.Verify(t.Context(), second.Digest); err != nil {
		t.Errorf("a sweep that gave up has removed something: %v", err)
	}
	if _, err := s.Sweep(t.Context(), none); err != nil {
		t.Fatal(err)
	}
	wantBlobs(t, b, 0)
}

func TestSweepSparesWhatIsHeld(t *testing.T) {
	s, b := onDisk(t, t.TempDir())
	saved, err := s.Save(t.Context(), sample(t), about)
	if err != nil {
		t.Fatal(err)
	}
	if swept, err := s.Sweep(t.Context(), none); err != nil || swept.Blobs != 0 {
		t.Errorf("%+v, %v", swept, err)
	}
	// One that goes on record while the sweep is under way is not missed.
	swept, err := s.Sweep(t.Context(), func(context.Context) ([]blob.Digest, error) {
		saved.Release()
		return nil, nil
	})
	if err != nil || swept.Blobs != 0 {
		t.Errorf("released during the sweep: %+v, %v", swept, err)
	}
	saved.Release()
	if _, err := s.Sweep(t.Context(), none); err != nil {
		t.Fatal(err)
	}
	wantBlobs(t, b, 0)
}

// TestSweepsAmongSaves saves and removes what shares chunks, while one sweep
// follows another.
func TestSweepsAmongSaves(t *testing.T) {
	s, b := onDisk(t, t.TempDir())
	var mu sync.Mutex
	live := map[blob.Digest]int{}
	record := func(context.Context) ([]blob.Digest, error) {
		mu.Lock()
		defer mu.Unlock()
		var all []blob.Digest
		for d := range live {
			all = append(all, d)
		}
		return all, nil
	}
	stop := make(chan struct{})
	var sweeper, savers sync.WaitGroup
	sweeper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.Sweep(t.Context(), record); err != nil {
				t.Errorf("sweep: %v", err)
			}
		}
	})
	for i := range 4 {
		savers.Go(func() {
			dir := t.TempDir()
			for n := range 6 {
				write(t, filepath.Join(dir, "f"), 4*chunk, part{0, noise(uint64(n%3), 2*chunk)}, part{3 * chunk, noise(uint64(100+(i+n)%4), chunk)})
				saved, err := s.Save(t.Context(), dir, about)
				if err != nil {
					t.Errorf("save: %v", err)
					return
				}
				mu.Lock()
				live[saved.Digest]++
				mu.Unlock()
				saved.Release()
				if err := s.Verify(t.Context(), saved.Digest); err != nil {
					t.Errorf("what was saved is not whole: %v", err)
				}
				mu.Lock()
				if live[saved.Digest]--; live[saved.Digest] == 0 {
					delete(live, saved.Digest)
				}
				mu.Unlock()
			}
		})
	}
	savers.Wait()
	close(stop)
	sweeper.Wait()
	if _, err := s.Sweep(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	wantBlobs(t, b, 0)
}

// saveVar names the store and the folder to the child that is to be killed.
const saveVar = "BERTH_TEST_SAVE_UNTIL_KILLED"

func TestMain(m *testing.M) {
	if dir := os.Getenv(saveVar); dir != "" {
		fmt.Fprintln(os.Stderr, saveUntilKilled(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func saveUntilKilled(dir string) error {
	b, err := disk.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		return err
	}
	s, err := snapshot.New(snapshot.Config{Blobs: b})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		path := filepath.Join(dir, "files", "f")
		if err := os.WriteFile(path, append(noise(uint64(i), 2*chunk), noise(1, chunk)...), 0o600); err != nil {
			return err
		}
		saved, err := s.Save(context.Background(), filepath.Dir(path), about)
		if err != nil {
			return err
		}
		if _, err := fmt.Println(saved.Digest); err != nil {
			return err
		}
	}
}

// TestKilled kills a saving process: what it told of is whole, and a sweep leaves
// nothing else.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		told := killAfter(t, dir, 2+round)
		s, b := onDisk(t, filepath.Join(dir, "blobs"))
		for _, d := range told {
			if err := s.Verify(t.Context(), d); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		}
		if _, err := s.Sweep(t.Context(), only(told[0])); err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(t.Context(), told[0]); err != nil {
			t.Errorf("round %d: after the sweep: %v", round, err)
		}
		wantBlobs(t, b, 4) // three chunks and their manifest
	}
}

func killAfter(t *testing.T, dir string, n int) []blob.Digest {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), saveVar+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var told []blob.Digest
	for lines := bufio.NewScanner(out); lines.Scan(); {
		d, err := blob.ParseDigest(lines.Text())
		if err != nil {
			t.Errorf("the child said: %v", err)
			break
		}
		if told = append(told, d); len(told) == n {
			cmd.Process.Kill()
		}
	}
	if cmd.Wait() == nil || len(told) < n {
		t.Fatalf("the child ended by itself after %d saves", len(told))
	}
	return told
}
