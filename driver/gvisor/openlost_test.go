package gvisor_test

import (
	"testing"

	"github.com/berth-dev/berth/driver"
)

// TestAPauseKeepsWhatIsOpenAndDeleted: the processes end after the save, and with them
// their files, but not what is in the layer of these.
func TestAPauseKeepsWhatIsOpenAndDeleted(t *testing.T) {
	d := newDriver(t, t.TempDir())
	spec := newSpec(t)
	b := create(t, d, spec)
	b.mustSh(t, "user", `cat > ~/hold.py <<'END'
import hashlib, os, sys, time
held = []
for i in range(40):
    f = open(f"/workspace/{i}", "w+b")
    f.write(os.urandom(1 << 20))
    f.flush()
    os.unlink(f.name)
    held.append(f)
def total():
    h = hashlib.md5()
    for f in held:
        f.seek(0)
        h.update(f.read())
    return h.hexdigest()
before = total()
open("/workspace/ready", "w").close()
while not os.path.exists("/workspace/go"):
    time.sleep(0.05)
open("/workspace/said", "w").write("same" if total() == before else "lost")
END
python3 ~/hold.py > /dev/null 2>&1 &
until test -e /workspace/ready; do sleep 0.05; done`)
	saved, err := d.Pause(t.Context(), b.Machine, driver.KeepMemory)
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Resume(t.Context(), spec, saved)
	if err != nil {
		t.Fatal(err)
	}
	b = client(t, m)
	if got := b.mustSh(t, "user", "touch /workspace/go; until test -s /workspace/said; do sleep 0.05; done; cat /workspace/said"); got != "same" {
		t.Errorf("what was open and deleted is %s", got)
	}
}
