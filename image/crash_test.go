package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// buildUntilKilled builds again and again and says every step.
func buildUntilKilled(dir, from string) error {
	s, err := Open(dir, Options{})
	if err != nil {
		return err
	}
	for {
		_, err := s.Build(context.Background(), sandbox.BuildRequest{Name: "crash", From: from, Force: true}, func(p sandbox.Progress) {
			fmt.Println(p.Step)
		})
		if err != nil {
			return err
		}
		fmt.Println("built")
	}
}

// killAtStep runs the child until it says the step for the nth time, and kills it.
func killAtStep(t *testing.T, dir, from, step string, nth int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killedVar+"="+dir, killedVar+"_FROM="+from)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen := 0
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == step {
			if seen++; seen == nth {
				cmd.Process.Kill()
			}
		}
	}
	if cmd.Wait() == nil || seen < nth {
		t.Fatalf("the child ended by itself, %q was said %d times", step, seen)
	}
}

// bigSample takes long enough to be killed in the middle of each step.
func bigSample(t *testing.T) v1.Image {
	t.Helper()
	entries := []string{}
	for i := range 3000 {
		entries = append(entries, fmt.Sprintf("d%02d/f%d", i%40, i))
	}
	layer := gzipLayer(t, filesOf(entries)...)
	bulk, err := random.Layer(1<<20, "application/vnd.docker.image.rootfs.diff.tar.gzip")
	if err != nil {
		t.Fatal(err)
	}
	return imageOf(t, layer, bulk)
}

func TestKilledBuild(t *testing.T) {
	needTools(t)
	from := "docker-archive:" + savedImage(t, bigSample(t))
	for _, step := range []string{"unpack layers", "write root image", "check root image", "built"} {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			for nth := 1; nth <= 2; nth++ {
				killAtStep(t, dir, from, step, nth)
				s := waitForSweep(t, dir)
				wantNoWork(t, s)
				list, err := s.List(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, tpl := range list { // what is listed is whole
					extract(t, s.RootPath(tpl))
				}
				if step == "built" && len(list) != 1 {
					t.Errorf("a finished build is lost: %v", list)
				}
			}
			build(t, openStore(t, dir), "crash", from)
		})
	}
}

// waitForSweep opens the store until the programs of the killed build, which
// the kernel ends a moment later, no longer hold its lock.
func waitForSweep(t *testing.T, dir string) *Store {
	t.Helper()
	for {
		s := openStore(t, dir)
		left, err := os.ReadDir(s.workDir())
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 || t.Context().Err() != nil {
			return s
		}
	}
}

func needDistribution(t *testing.T) {
	t.Helper()
	needTools(t)
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		t.Skip("NOT TESTED: building from a distribution; mmdebstrap is not installed")
	}
}

// TestKilledDistribution kills the server in the first moments of a build from
// packages: no process, mount or file of it is left.
func TestKilledDistribution(t *testing.T) {
	needDistribution(t)
	dir := t.TempDir()
	killAtStep(t, dir, "distribution:bookworm", "fetch package lists", 2)
	s := waitForSweep(t, dir)
	wantNoWork(t, s)
	wantNoProcess(t, dir)
}

// TestCancelledDistribution ends a build from packages by its context.
func TestCancelledDistribution(t *testing.T) {
	needDistribution(t)
	s := openStore(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := s.Build(ctx, s.Base(), func(p sandbox.Progress) {
		if p.Step == "fetch package lists" && p.Log != "" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("build: %v", err)
	}
	wantNoWork(t, s)
	wantNoProcess(t, s.dir)
}

// wantNoProcess checks that no process works in dir or was started for it.
func wantNoProcess(t *testing.T, dir string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		cmdline, _ := os.ReadFile(p + "/cmdline")
		cwd, _ := os.Readlink(p + "/cwd")
		root, _ := os.Readlink(p + "/root")
		if strings.Contains(string(cmdline), dir) || strings.HasPrefix(cwd, dir) || strings.HasPrefix(root, dir) {
			t.Errorf("process %s is left: %q in %s", p, cmdline, cwd)
		}
	}
}

// TestSweepUnmounts leaves a work directory with a mount in it: what is mounted
// there is not touched.
func TestSweepUnmounts(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	outside := t.TempDir()
	writeFile(t, filepath.Join(outside, "kept"), []byte("x"))
	at := filepath.Join(dir, "work", "DEAD", "root", "a b")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // one upon the other
		if err := unix.Mount(outside, at, "", unix.MS_BIND, ""); err != nil {
			t.Fatalf("mount: %v", err)
		}
	}
	s := openStore(t, dir)
	wantNoWork(t, s)
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Errorf("a mounted file was removed: %v", err)
	}
}

// TestSweepSparesTheLiving opens the store while a build holds its work.
func TestSweepSparesTheLiving(t *testing.T) {
	s := openStore(t, t.TempDir())
	w, err := s.newWork()
	if err != nil {
		t.Fatal(err)
	}
	openStore(t, s.dir)
	if _, err := os.Stat(w.root()); err != nil {
		t.Errorf("a living build's work was removed: %v", err)
	}
	if err := w.remove(); err != nil {
		t.Fatal(err)
	}
	wantNoWork(t, s)
}

// TestFullDisk builds where the root, and then where its image, has no room.
func TestFullDisk(t *testing.T) {
	needTools(t)
	from := "docker-archive:" + savedImage(t, imageOf(t, gzipLayer(t, file("a", strings.Repeat("x", 3<<20)))))
	for _, size := range []string{"size=2m", "size=5m"} {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, size); err != nil {
			t.Fatalf("mount: %v", err)
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
		s := openStore(t, filepath.Join(dir, "templates"))
		_, err := s.Build(t.Context(), sandbox.BuildRequest{Name: "big", From: from}, nil)
		wantRefusal(t, size, err, sandbox.Exhausted)
		left, _ := os.ReadDir(s.workDir())
		images, _ := os.ReadDir(s.imagesDir())
		if len(left)+len(images) > 0 {
			t.Errorf("%s: left behind: %v %v", size, left, images)
		}
	}
}
