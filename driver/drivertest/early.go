package drivertest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// drip is a driver.Feed that brings what it is asked for, and the rest when it is told
// to.
type drip struct {
	whole *os.File // what the file is to hold
	size  int64

	mu    sync.Mutex
	into  io.WriterAt
	has   map[int64]bool
	come  []int64 // offsets of pieces
	err   error
	grown chan struct{}
}

// dripSize is the size of its pieces, bytes.
const dripSize = 1 << 20

// dry makes a copy of a captured folder in which the late file is empty, and what
// brings it.
func dry(t *testing.T, dir, late string) (copied string, d *drip) {
	t.Helper()
	copied = t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	d = &drip{grown: make(chan struct{}), has: map[int64]bool{}}
	var err error
	if d.whole, err = os.Open(filepath.Join(dir, late)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.whole.Close() })
	info, err := d.whole.Stat()
	if err != nil {
		t.Fatal(err)
	}
	d.size = info.Size()
	into, err := os.OpenFile(filepath.Join(copied, late), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { into.Close() })
	if err := errors.Join(into.Truncate(0), into.Truncate(d.size)); err != nil {
		t.Fatal(err)
	}
	d.into = into
	return copied, d
}

func (d *drip) Want(offset, n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for at := offset - offset%dripSize; at < min(offset+n, d.size); at += dripSize {
		d.bring(at)
	}
	d.tell()
}

// bring is called with the lock held.
func (d *drip) bring(at int64) {
	if d.has[at] || d.err != nil {
		return
	}
	b := make([]byte, min(dripSize, d.size-at))
	if _, err := d.whole.ReadAt(b, at); err != nil {
		d.err = err
		return
	}
	if _, err := d.into.WriteAt(b, at); err != nil {
		d.err = err
		return
	}
	d.has[at] = true
	d.come = append(d.come, at)
}

func (d *drip) tell() {
	close(d.grown)
	d.grown = make(chan struct{})
}

// end ends it: with io.EOF after all has been brought.
func (d *drip) end(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for at := int64(0); err == io.EOF && at < d.size; at += dripSize {
		d.bring(at)
	}
	if d.err == nil {
		d.err = err
	}
	d.tell()
}

func (d *drip) Next(ctx context.Context, i int) (offset, n int64, err error) {
	for {
		d.mu.Lock()
		if i < len(d.come) {
			defer d.mu.Unlock()
			return d.come[i], min(dripSize, d.size-d.come[i]), nil
		}
		err, grown := d.err, d.grown
		d.mu.Unlock()
		if err != nil {
			return 0, 0, err
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
}

// early makes a machine of a folder whose late file is still to come.
func (b *bed) early(dir string, feed driver.Feed) *bed {
	b.t.Helper()
	spec := b.kin(1)[0]
	m, err := b.d.(driver.Early).RestoreEarly(within(b.t), spec, dir, feed)
	if err != nil {
		b.t.Fatalf("restore early: %v (%s)", err, sandbox.HintOf(err))
	}
	return b.child(spec, m)
}

// testEarly: a machine begins before its memory is there, asks for what it needs, and
// is like any other once it has all.
func testEarly(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	e, can := b.d.(driver.Early)
	s, ok := b.captures(driver.KeepMemory)
	if !can || !ok {
		t.Logf("LOUDLY: the driver %s begins no machine before its folder is there", b.d.Class())
		if ok {
			b.end()
		}
		return
	}
	b.holdMemory()
	c := b.startCounter()
	output(t, b.guest, "echo kept > file")
	dir := b.capture(s, driver.KeepMemory)
	then := *c

	b.earlyWhole(e, dir, then)
	b.earlyPart(e, dir, then)
	b.earlyFails(e, dir)
	if h.Reopen != nil {
		b.earlyLater(e, dir, then)
	}
	b.end()
}

// holdMemory has a program hold memory that it does not use.
func (b *bed) holdMemory() {
	b.t.Helper()
	cmd := sh("held=$(head -c 16000000 /dev/urandom | tr '\\000' x); echo held; sleep 100000")
	cmd.Detach = true
	ev, err := b.guest.Start(within(b.t), cmd)
	if err != nil {
		b.t.Fatal(err)
	}
	defer ev.Close()
	for {
		e, err := ev.Recv()
		if err != nil || e.Exit != nil {
			b.t.Fatalf("hold memory: %+v, %v", e, err)
		}
		if strings.Contains(string(e.Data), "held") {
			return
		}
	}
}

// earlyWhole: what waits for all of the memory gets it, and nothing else does.
func (b *bed) earlyWhole(e driver.Early, dir string, then counter) {
	t := b.t
	copied, feed := dry(t, dir, e.Late())
	k := b.early(copied, feed)
	b.wantRestored(then, k)
	if err := os.RemoveAll(copied); err != nil { // it may go, as after Restore
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	cancelled := make(chan error, 1)
	go func() { cancelled <- k.d.(driver.Snapshotter).Capture(ctx, k.m, driver.KeepMemory, t.TempDir()) }()
	whole, err := e.Refeed(within(t), k.m, nil)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-cancelled:
		t.Fatalf("captured before all was there: %v", err)
	case <-whole:
		t.Fatal("all is there before it has come")
	default:
	}
	cancel()
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Fatalf("a capture that nobody waits for: %v", err)
	}
	feed.end(io.EOF)
	select {
	case <-whole:
	case <-within(t).Done():
		t.Fatal("all has come, and is not there")
	}
	again := k.capture(k.d.(driver.Snapshotter), driver.KeepMemory)
	saved := k.pause(driver.KeepMemory)
	k.resume(saved)
	other := then
	k.follow(&other, 1)
	last := b.restore(b.d, again)
	another := then
	last.follow(&another, 1)
	over(t, last)
	k.endAmong()
}

// earlyPart: one that has not got all can be stopped, with its disk kept or not.
func (b *bed) earlyPart(e driver.Early, dir string, then counter) {
	t := b.t
	copied, feed := dry(t, dir, e.Late())
	k, gone := b.early(copied, feed), b.early(copied, feed)
	b.wantRestored(then, k, gone)
	over(t, gone)
	saved := k.pause(driver.KeepDisk)
	k.resume(saved)
	if got := output(t, k.guest, "cat file"); got != "changed\n" {
		t.Errorf("the disk has %q", got)
	}
	k.endAmong()
}

// earlyFails: memory that cannot be had is the end of a machine, with the reason.
func (b *bed) earlyFails(e driver.Early, dir string) {
	t := b.t
	copied, feed := dry(t, dir, e.Late())
	k := b.early(copied, feed)
	feed.end(errors.New("piece 7 is damaged"))
	exit, err := k.m.Wait(within(t))
	if err != nil || exit.Asked || !strings.Contains(exit.Reason, "piece 7 is damaged") {
		t.Errorf("its end: %+v, %v", exit, err)
	}
	over(t, k)
	copied, feed = dry(t, dir, e.Late())
	feed.end(errors.New("piece 8 is damaged"))
	spec := b.kin(1)[0]
	m, err := e.RestoreEarly(within(t), spec, copied, feed)
	if err == nil { // it did not need what is lacking
		_, werr := m.Wait(within(t))
		err = errors.Join(werr, m.Stop(within(t)))
	} else if !strings.Contains(err.Error(), "piece 8 is damaged") {
		t.Errorf("restore: %v", err)
	}
	if err != nil && !strings.Contains(err.Error(), "piece 8") {
		t.Error(err)
	}
}

// earlyLater: the process that brings the memory ends, and the next one brings what is
// lacking. What is asked for in between waits.
func (b *bed) earlyLater(e driver.Early, dir string, then counter) {
	t := b.t
	copied, feed := dry(t, dir, e.Late())
	k := b.early(copied, feed)
	b.wantRestored(then, k)
	state, own := k.m.State(), b.m.State()
	k.guest.Close()
	b.guest.Close()
	if err := os.RemoveAll(copied); err != nil {
		t.Fatal(err)
	}
	b.later(b.h.Reopen)
	k.d = b.d
	for _, one := range []struct {
		k     *bed
		state []byte
	}{{k, state}, {b, own}} {
		m, err := b.d.Recover(within(t), one.k.spec.ID, one.state)
		if err != nil {
			t.Fatal(err)
		}
		one.k.use(m)
	}
	e = b.d.(driver.Early)
	if err := b.d.(driver.Snapshotter).Capture(within(t), k.m, driver.KeepMemory, t.TempDir()); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("capture while nobody brings the rest: %v", err)
	}
	var second *drip
	whole, err := e.Refeed(within(t), k.m, func(file driver.File, lacks [][2]int64) (driver.Feed, error) {
		t.Cleanup(func() { file.Close() })
		if len(lacks) == 0 {
			t.Error("it lacks nothing")
		}
		second = &drip{whole: feed.whole, size: feed.size, into: file, has: map[int64]bool{}, grown: make(chan struct{})}
		return second, nil
	})
	if err != nil || second == nil {
		t.Fatalf("feed again: %v, %v", err, second)
	}
	mine := then
	k.follow(&mine, 2)
	second.end(io.EOF)
	select {
	case <-whole:
	case <-within(t).Done():
		t.Fatal("all has come, and is not there")
	}
	saved := k.pause(driver.KeepMemory)
	k.resume(saved)
	mine = then
	k.follow(&mine, 1)
	k.endAmong()
}
