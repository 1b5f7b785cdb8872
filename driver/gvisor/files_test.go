package gvisor_test

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// makeFiles makes empty files, as many as there is room for, and says how many.
const makeFiles = `mkdir -p /workspace/many && cd /workspace/many && python3 - <<'END'
n = 0
try:
    while n < 200000:
        if n % 1000 == 0:
            import os; os.makedirs("d%d" % (n // 1000), exist_ok=True)
        open("d%d/f%d" % (n // 1000, n), "w").close()
        n += 1
except OSError as e:
    print(e.strerror)
print(n)
END`

// TestFileLimitIsENOSPCInside fills a small sandbox with as many files as it may
// hold: it lives, what is removed makes room, and the bound holds after a pause.
func TestFileLimitIsENOSPCInside(t *testing.T) {
	d := newDriver(t, t.TempDir())
	spec := newSpec(t, func(l *sandbox.Limits) { l.MemoryBytes, l.Files = 256<<20, 30_000 })
	first, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	b := box{first, guestclient.New(first.Dial)}
	before, err := b.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	full := func() {
		t.Helper()
		out, exit := b.sh(t, "user", makeFiles)
		if exit.Code != 0 || !strings.Contains(out, "No space left on device") {
			t.Fatalf("made them all: exit %d %s", exit.Code, out)
		}
		t.Log(strings.TrimSpace(out))
	}
	full()
	after, err := b.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes of the engine's memory a file", (after.MemoryBytes-before.MemoryBytes)/30_000)
	if _, exit := b.sh(t, "root", "mkdir /srv/one"); exit.Code == 0 {
		t.Error("root made one more")
	}
	b.mustSh(t, "user", "df -i /workspace | tail -1 | awk '$2 == 30000 && $4 == 0 {print \"full\"}' | grep full")
	b.mustSh(t, "user", "rm -r /workspace/many/d3 && echo ok > /workspace/one && cat /workspace/one")

	saved, err := d.Pause(t.Context(), b.Machine, driver.KeepMemory)
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Resume(t.Context(), spec, saved)
	if err != nil {
		t.Fatal(err)
	}
	b = client(t, m)
	b.mustSh(t, "user", "cat /workspace/one; rm -r /workspace/many/d4")
	full()
}
