package fake_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/drivertest"
	"github.com/berth-dev/berth/driver/fake"
	"github.com/berth-dev/berth/sandbox"
)

func TestDriver(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		dir := t.TempDir()
		d, err := fake.New(fake.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return drivertest.Harness{
			Driver: d,
			Spec: func() driver.Spec {
				return driver.Spec{ID: sandbox.NewID(), Root: "/nonexistent", Hostname: "test", Limits: sandbox.DefaultLimits()}
			},
			Leftovers: func() []string { return append(scratch(t, dir), processes(t, dir, "")...) },
			Awake:     func() []string { return processes(t, dir, "TDZ") }, // stopped, or waiting for a stopped child; their memory stays: see the package
			ReopenDisk: func(t *testing.T) driver.Driver {
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				again, err := fake.New(fake.Config{Dir: dir})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { again.Close() })
				return again
			},
		}
	})
}

// scratch lists what lies in the driver's folder.
func scratch(t *testing.T, dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	return left
}

// processes lists the host's processes that work in the driver's folder, except
// those in one of some states.
func processes(t *testing.T, dir, except string) []string {
	all, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, link := range all {
		if to, err := os.Readlink(link); err == nil && len(to) > len(dir) && to[:len(dir)] == dir && !strings.Contains(except, stateOf(link)) {
			left = append(left, link)
		}
	}
	return left
}

// stateOf is the state of the process whose link this is, a letter as in proc(5).
func stateOf(link string) string {
	b, err := os.ReadFile(filepath.Join(filepath.Dir(link), "stat"))
	if err != nil {
		return "gone"
	}
	after := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	return after[0]
}
