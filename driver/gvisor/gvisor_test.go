package gvisor_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/driver/gvisor/runsc"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/image"
	"github.com/berth-dev/berth/sandbox"
)

// TestMain lets the test binary be the engine, as berth is in use.
func TestMain(m *testing.M) {
	runsc.Dispatch()
	gvisor.InGroup()
	shelves()
	os.Exit(m.Run())
}

// guestBinary builds the guest once.
var guestBinary = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "berth-guest")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", file, "github.com/berth-dev/berth/cmd/berth-guest").CombinedOutput(); err != nil {
		return nil, errors.New(string(out))
	}
	return os.ReadFile(file)
})

// baseRoot is the root image of the template base, built once and kept in the
// folder BERTH_TEST_DATA between runs.
var baseRoot = sync.OnceValues(func() (string, error) {
	data := os.Getenv("BERTH_TEST_DATA")
	if data == "" {
		data = filepath.Join(os.TempDir(), "berth-test")
	}
	store, err := image.Open(filepath.Join(data, "templates"), image.Options{})
	if err != nil {
		return "", err
	}
	t, err := store.Build(context.Background(), store.Base(), func(sandbox.Progress) {})
	if err != nil {
		return "", err
	}
	return store.RootPath(t), nil
})

func must[T any](t *testing.T, f func() (T, error)) T {
	t.Helper()
	v, err := f()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func newDriver(t *testing.T, dir string) *gvisor.Driver {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: gVisor sandboxes need root")
	}
	d, err := gvisor.New(gvisor.Config{Dir: dir, Guest: guestBinary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := d.Sweep(context.Background(), nil); err != nil {
			t.Error(err)
		}
		d.Close()
	})
	return d
}

func newSpec(t *testing.T, change ...func(*sandbox.Limits)) driver.Spec {
	t.Helper()
	l := sandbox.DefaultLimits()
	for _, f := range change {
		f(&l)
	}
	return driver.Spec{ID: sandbox.NewID(), Root: must(t, baseRoot), Hostname: "box", Limits: l}
}

// box is a running machine with its guest's client.
type box struct {
	driver.Machine
	guest *guestclient.Client
}

func create(t *testing.T, d driver.Driver, spec driver.Spec) box {
	t.Helper()
	m, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return client(t, m)
}

func client(t *testing.T, m driver.Machine) box {
	b := box{m, guestclient.New(m.Dial)}
	t.Cleanup(func() {
		b.guest.Close()
		if err := m.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// sh runs a line as a user and returns what it printed on both outputs and how
// it ended.
func (b box) sh(t *testing.T, user, line string) (string, sandbox.Exit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	events, err := b.guest.Start(ctx, sandbox.Command{Argv: []string{"bash", "-c", line}, User: user, Merge: true, Lossless: true})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	var out strings.Builder
	for {
		e, err := events.Recv()
		if errors.Is(err, io.EOF) {
			t.Fatalf("%s: no exit", line)
		}
		if err != nil {
			t.Fatalf("%s: %v (after %q)", line, err, out.String())
		}
		out.Write(e.Data)
		if e.Exit != nil {
			return out.String(), *e.Exit
		}
	}
}

func (b box) mustSh(t *testing.T, user, line string) string {
	t.Helper()
	out, exit := b.sh(t, user, line)
	if exit.Code != 0 {
		t.Fatalf("%s: exit %d: %s", line, exit.Code, out)
	}
	return strings.TrimSpace(out)
}
