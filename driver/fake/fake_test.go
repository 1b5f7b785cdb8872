package fake_test

import (
	"os"
	"path/filepath"
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
			Leftovers: func() []string { return append(scratch(t, dir), processes(t, dir)...) },
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

// processes lists the host's processes that work in the driver's folder.
func processes(t *testing.T, dir string) []string {
	all, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, link := range all {
		if to, err := os.Readlink(link); err == nil && len(to) > len(dir) && to[:len(dir)] == dir {
			left = append(left, link)
		}
	}
	return left
}
