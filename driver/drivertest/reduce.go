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

// tick starts a program that writes for as long as it runs, and returns when it does.
func (b *bed) tick() {
	b.t.Helper()
	cmd := sh(tick)
	cmd.Detach = true
	ev, err := b.guest.Start(within(b.t), cmd)
	if err != nil {
		b.t.Fatal(err)
	}
	ev.Close()
	eventually(b.t, "the program runs", func() bool { return output(b.t, b.guest, "test -s ticks && echo yes || :") == "yes\n" })
}

// asReduced holds a machine that has its disk alone to that: nothing of it is awake
// until it is resumed, look shows the files as before, and tick's program has ended.
func (b *bed) asReduced(saved []byte, look, before string) {
	b.t.Helper()
	if b.h.Awake != nil && len(b.h.Awake()) > 0 {
		b.t.Errorf("something of it is awake: %q", b.h.Awake())
	}
	if f, ok := b.d.(driver.Finder); ok {
		if found, err := f.Find(within(b.t), b.spec.ID); err != nil || !bytes.Equal(found.Saved, saved) {
			b.t.Errorf("found %q, %v, want what was put aside", found.Saved, err)
		}
	}
	b.resume(saved)
	if after := output(b.t, b.guest, look); after != before {
		b.t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	if got := output(b.t, b.guest, "a=$(cat ticks | wc -c); sleep 0.2; test $(cat ticks | wc -c) = $a && echo still"); got != "still\n" {
		b.t.Error("a program outlived the loss of its memory")
	}
}

// testReduceFrom: of what was captured with its memory the disk alone is put aside, and
// nothing of it runs for that.
func testReduceFrom(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	r, can := b.d.(driver.Reducer)
	c, too := b.d.(driver.Snapshotter)
	if !can || !too {
		t.Logf("LOUDLY: the driver %s puts nothing aside of what was captured", h.Driver.Class())
		b.end()
		return
	}
	output(t, b.guest, `echo kept > file; chmod 640 file; mkdir dir; echo in > dir/in; rm -f ticks`)
	const look = `stat -c '%n %F %a %u:%g' file dir dir/in; cat file dir/in`
	before := output(t, b.guest, look)
	b.tick()
	dir := t.TempDir()
	err := c.Capture(within(t), b.m, driver.KeepMemory, dir)
	if kind := sandbox.KindOf(err); kind == sandbox.Unsupported { // then the disk has all that there is
		err = c.Capture(within(t), b.m, driver.KeepDisk, dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReduceFrom(within(t), b.spec, dir); err == nil {
		t.Fatal("it was put aside under the id of one that runs")
	}
	stop(t, b.m)
	b.m = nil

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.ReduceFrom(ended, b.spec, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("in an ended context: %v", err)
	}
	_, err = r.ReduceFrom(within(t), b.spec, t.TempDir())
	wantKind(t, "of an empty folder", err, sandbox.Invalid)
	saved, err := r.ReduceFrom(within(t), b.spec, dir)
	if err != nil {
		t.Fatalf("%v (%s)", err, sandbox.HintOf(err))
	}
	b.asReduced(saved, look, before)
	b.end()
}

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
	b.tick()
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
	_, err := r.Reduce(within(t), b.spec, []byte("{}"))
	wantKind(t, "reduce unknown bytes", err, sandbox.Unsupported, sandbox.Invalid)

	left, err := r.Reduce(within(t), b.spec, saved)
	if err != nil {
		t.Fatalf("reduce: %v (%s)", err, sandbox.HintOf(err))
	}
	if again, err := r.Reduce(within(t), b.spec, left); err != nil || !bytes.Equal(again, left) {
		t.Errorf("reduce again: %q, %v", again, err)
	}
	b.asReduced(left, look, before)
	b.end()
}
