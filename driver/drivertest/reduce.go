package drivertest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// tick makes a file longer for as long as it runs.
const tick = `while :; do echo x >> ticks; done`

// testReduce: what was put aside with its memory gives that up, and its programs end
// where they stood.
func testReduce(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	r, ok := b.d.(driver.Reducer)
	if !ok {
		t.Logf("LOUDLY: the driver %s gives up no memory of what it has put aside", h.Driver.Class())
		b.end()
		return
	}
	output(t, b.guest, `echo kept > file; chmod 640 file; ln -s file soft; mkdir -m 1770 dir; echo in > dir/in; rm -f ticks`)
	cmd := sh(tick)
	cmd.Detach = true
	ev, err := b.guest.Start(within(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	ev.Close()
	eventually(t, "the program runs", func() bool { return output(t, b.guest, "test -s ticks && echo yes || :") == "yes\n" })
	const look = `stat -c '%n %F %a %u:%g' file soft dir dir/in; cat soft dir/in`
	before := output(t, b.guest, look)

	saved := b.pause(driver.KeepMemory)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Reduce(ended, b.spec, saved); !errors.Is(err, context.Canceled) {
		t.Errorf("reduce in an ended context: %v", err)
	}
	b.resume(saved) // which still serves
	saved = b.pause(driver.KeepMemory)
	_, err = r.Reduce(within(t), b.spec, []byte("{}"))
	wantKind(t, "reduce unknown bytes", err, sandbox.Unsupported, sandbox.Invalid)

	left, err := r.Reduce(within(t), b.spec, saved)
	if err != nil {
		t.Fatalf("reduce: %v (%s)", err, sandbox.HintOf(err))
	}
	if h.Awake != nil && len(h.Awake()) > 0 {
		t.Errorf("something of it is awake: %q", h.Awake())
	}
	if again, err := r.Reduce(within(t), b.spec, left); err != nil || !bytes.Equal(again, left) {
		t.Errorf("reduce again: %q, %v", again, err)
	}
	if f, ok := b.d.(driver.Finder); ok {
		if found, err := f.Find(within(t), b.spec.ID); err != nil || !bytes.Equal(found.Saved, left) {
			t.Errorf("found %q, %v, want what was left", found.Saved, err)
		}
	}
	b.resume(left)
	if after := output(t, b.guest, look); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	if got := output(t, b.guest, "a=$(wc -c < ticks); sleep 0.2; test $(wc -c < ticks) = $a && echo still"); got != "still\n" {
		t.Error("a program outlived the loss of its memory")
	}
	b.end()
}
