package drivertest

import (
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// testKept: what a machine that was put aside occupies is told, and nothing is of
// one that is not there.
func testKept(t *testing.T, h Harness) {
	k, ok := h.Driver.(driver.Keeper)
	if !ok {
		t.Logf("the driver %s does not say what it keeps", h.Driver.Class())
		return
	}
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	output(t, b.guest, "head -c 20000000 /dev/urandom >heavy")
	b.pause(driver.KeepDisk)
	n, err := k.Kept(within(t), b.spec.ID)
	if err != nil || n < 20_000_000 || n > 200<<20 {
		t.Errorf("20 MB are kept as %d bytes, %v", n, err)
	}
	b.end()
	if n, err := k.Kept(within(t), b.spec.ID); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("after the end: %d, %v", n, err)
	}
	if _, err := k.Kept(within(t), "../machines"); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("what is no id: %v", err)
	}
}
