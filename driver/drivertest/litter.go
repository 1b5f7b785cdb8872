package drivertest

import (
	"slices"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// testLitter: a machine that this process holds is none; one that was put aside is
// told, and so is nothing that a machine needs.
func testLitter(t *testing.T, h Harness) {
	tidy, ok := h.Driver.(driver.Tidier)
	if !ok {
		t.Logf("the driver %s does not look for litter", h.Driver.Class())
		return
	}
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	told := func() bool {
		t.Helper()
		all, err := tidy.Litter(within(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			if l.Kind == sandbox.LitterGuest {
				t.Errorf("the guest %s is in use", l.Name)
			}
		}
		return slices.ContainsFunc(all, func(l sandbox.Litter) bool {
			return l.Kind == sandbox.LitterMachine && l.Name == string(b.spec.ID)
		})
	}
	if told() {
		t.Error("a machine that runs is litter")
	}
	saved := b.pause(driver.KeepMemory)
	if !told() {
		t.Error("a machine that was put aside is not told")
	}
	for _, l := range []sandbox.Litter{{Kind: sandbox.LitterMachine, Name: string(b.spec.ID)}, {Kind: sandbox.LitterGuest, Name: "../" + string(b.spec.ID)}} {
		if err := tidy.Clear(within(t), l); err == nil && l.Kind == sandbox.LitterMachine {
			t.Error("a machine was cleared as a file is")
		}
	}
	b.resume(saved)
	output(t, b.guest, "true")
	b.end()
	if told() {
		t.Error("something is left")
	}
}
