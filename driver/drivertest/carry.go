package drivertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// watched is a machine that tells how much was carried.
type watched struct {
	driver.Machine
	filled, drained atomic.Int64
	begun           atomic.Int64 // bytes that Fill has taken so far
}

func (w *watched) Carry() (driver.Carriage, bool) {
	c, ok := w.Machine.(driver.Carrier).Carry()
	return &watchedWay{c, w}, ok
}

type watchedWay struct {
	driver.Carriage
	w *watched
}

func (c *watchedWay) Fill(ctx context.Context, file int, from io.Reader) (int64, error) {
	n, err := c.Carriage.Fill(ctx, file, io.TeeReader(from, tally{&c.w.begun}))
	c.w.filled.Add(n)
	return n, err
}

func (c *watchedWay) Drain(ctx context.Context, file int, offset, length int64, to io.Writer) (int64, error) {
	n, err := c.Carriage.Drain(ctx, file, offset, length, to)
	c.w.drained.Add(n)
	return n, err
}

type tally struct{ n *atomic.Int64 }

func (t tally) Write(p []byte) (int, error) { t.n.Add(int64(len(p))); return len(p), nil }

// testCarry: large files move past the link, and nobody can tell but by the time.
func testCarry(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	if _, ok := m.(driver.Carrier); !ok {
		t.Logf("LOUDLY: the driver %s carries no files", h.Driver.Class())
		stop(t, m)
		return
	}
	w := &watched{Machine: m}
	c := guestclient.Of(w)
	t.Cleanup(func() { c.Close() })
	const size = 5<<20 + 33
	if _, err := c.WriteFile(within(t), "/workspace/f", sandbox.WriteOptions{Mode: 0o640}, noise(size)); err != nil {
		t.Fatal(err)
	}
	if n := w.filled.Load(); n != size {
		t.Errorf("%d of %d bytes were carried in", n, size)
	}
	for _, r := range []sandbox.ReadRange{{}, {Offset: 1<<20 + 5}, {Offset: 77, Length: 3<<20 + 1}} {
		testCarriedOut(t, c, w, size, r)
	}
	testCarriedInPlace(t, c, w)
	testCarriedHoles(t, c)
	testCarriedBreaks(t, c, size)
	testNotCarried(t, m)
	stop(t, m)
}

// testCarriedOut reads a part in both ways that a body can be read.
func testCarriedOut(t *testing.T, c *guestclient.Client, w *watched, size int64, r sandbox.ReadRange) {
	t.Helper()
	all, err := io.ReadAll(noise(size))
	if err != nil {
		t.Fatal(err)
	}
	want := all[r.Offset:]
	if r.Length > 0 {
		want = want[:r.Length]
	}
	for _, hide := range []bool{false, true} {
		before := w.drained.Load()
		body, info, err := c.ReadFile(within(t), "/workspace/f", r)
		if err != nil || info.Size != size || info.Mode&0o777 != 0o640 {
			t.Fatalf("%+v %+v %v", r, info, err)
		}
		from := io.Reader(body)
		if hide {
			from = struct{ io.Reader }{body}
		}
		var got bytes.Buffer
		if _, err := io.Copy(&got, from); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%+v: %d bytes, %d wanted, or other ones: %v", r, got.Len(), len(want), err)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
		if n := w.drained.Load() - before; n != int64(len(want)) {
			t.Errorf("%+v: %d of %d bytes were carried out", r, n, len(want))
		}
	}
}

// testCarriedInPlace puts a shorter body into a file that stays the same one.
func testCarriedInPlace(t *testing.T, c *guestclient.Client, w *watched) {
	t.Helper()
	const long, short = 3 << 20, 1<<20 + 5
	inode := func() string {
		return run(t, c, sandbox.Command{Argv: []string{"stat", "-c", "%i %a", "same"}, Lossless: true}).stdout.String()
	}
	if _, err := c.WriteFile(within(t), "/workspace/same", sandbox.WriteOptions{Mode: 0o604, InPlace: true}, noise(long)); err != nil {
		t.Fatal(err)
	}
	was, before := inode(), w.filled.Load()
	info, err := c.WriteFile(within(t), "/workspace/same", sandbox.WriteOptions{InPlace: true}, noise(short))
	if err != nil || info.Size != short {
		t.Fatalf("%+v, %v", info, err)
	}
	if n := w.filled.Load() - before; n != short {
		t.Errorf("%d of %d bytes were carried in", n, short)
	}
	if now := inode(); now != was || !strings.HasSuffix(now, " 604\n") {
		t.Errorf("the file was %q and is %q", was, now)
	}
	want, err := io.ReadAll(noise(short))
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, c, sandbox.Command{Argv: []string{"cat", "same"}, Lossless: true}).stdout.Bytes()
	if !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes, or other ones", len(got), len(want))
	}
	if err := c.Remove(within(t), "/workspace/same", false); err != nil {
		t.Error(err)
	}
}

// testCarriedHoles: zeros are zeros wherever they lie, and count in the size.
func testCarriedHoles(t *testing.T, c *guestclient.Client) {
	t.Helper()
	body := bytes.Repeat([]byte{0}, 2<<20)
	for _, at := range []int{0, 65535, 65536, 700_000, 1 << 20} {
		body[at] = 1
	}
	if _, err := c.WriteFile(within(t), "/workspace/holes", sandbox.WriteOptions{}, bytes.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	r := run(t, c, sandbox.Command{Argv: []string{"cat", "holes"}, Lossless: true})
	if sha256.Sum256(r.stdout.Bytes()) != sha256.Sum256(body) {
		t.Errorf("%d of %d bytes, or other ones", r.stdout.Len(), len(body))
	}
}

// testCarriedBreaks: whatever breaks in the middle leaves the old file and nothing
// beside it.
func testCarriedBreaks(t *testing.T, c *guestclient.Client, size int64) {
	t.Helper()
	broken := errors.New("the disk of the caller broke")
	_, err := c.WriteFile(within(t), "/workspace/f", sandbox.WriteOptions{}, io.MultiReader(noise(3<<20), errReader{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("a broken body: %v", err)
	}

	ctx, cancel := context.WithCancel(within(t))
	in, out := io.Pipe()
	go func() {
		io.Copy(out, noise(1<<20))
		cancel()
		out.CloseWithError(context.Canceled) // an end would make the file whole
	}()
	_, err = c.WriteFile(ctx, "/workspace/f", sandbox.WriteOptions{}, in)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a write that was given up: %v", err)
	}
	in.Close()

	body, _, err := c.ReadFile(within(t), "/workspace/f", sandbox.ReadRange{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(body, make([]byte, 100)); err != nil {
		t.Error(err)
	}
	body.Close() // in the middle

	_, err = c.WriteFile(within(t), "/workspace", sandbox.WriteOptions{}, noise(1<<20))
	wantKind(t, "write onto a folder", err, sandbox.Invalid)
	onlyTheseFiles(t, c, map[string]int64{"f": size, "holes": 2 << 20})
}

// onlyTheseFiles waits until the workspace holds just these.
func onlyTheseFiles(t *testing.T, c *guestclient.Client, want map[string]int64) {
	t.Helper()
	var list []sandbox.FileInfo
	defer func() {
		if t.Failed() {
			t.Logf("the workspace holds %+v", list)
		}
	}()
	eventually(t, "the workspace holds what it should", func() bool {
		var err error
		list, _, err = c.ListDir(within(t), "/workspace", 1, 0, "")
		for _, f := range list {
			if size, ok := want[strings.TrimPrefix(f.Path, "/workspace/")]; !ok || size != f.Size {
				return false
			}
		}
		return err == nil && len(list) == len(want)
	})
}

// testNotCarried: what is no open regular file is left to the link, untouched.
func testNotCarried(t *testing.T, m driver.Machine) {
	t.Helper()
	for _, file := range []int{-1, 0, 1 << 20, 1<<31 - 1} { // 0 is a pipe, or nothing
		way, ok := m.(driver.Carrier).Carry()
		if !ok {
			t.Fatal("no way is free")
		}
		body := strings.NewReader("never read")
		n, err := way.Fill(within(t), file, body)
		if n != 0 || body.Len() != int(body.Size()) || !errors.Is(err, driver.ErrNotCarried) {
			t.Errorf("fill descriptor %d: %d bytes, %v", file, n, err)
		}
		if n, err = way.Drain(within(t), file, 0, 1<<20, io.Discard); n != 0 || !errors.Is(err, driver.ErrNotCarried) {
			t.Errorf("drain descriptor %d: %d bytes, %v", file, n, err)
		}
		way.Close()
	}
}

// testCarryFork: a machine that is forked while a file comes in gets all of it, and
// its child no part.
func testCarryFork(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	if _, ok := b.forks(); !ok {
		return
	}
	w := &watched{Machine: b.m}
	c := guestclient.Of(w)
	t.Cleanup(func() { c.Close() })
	const size = 6 << 20
	in, out := io.Pipe()
	written := make(chan error, 1)
	go func() {
		_, err := c.WriteFile(within(t), "/workspace/f", sandbox.WriteOptions{}, in)
		in.CloseWithError(errors.New("nobody reads any more"))
		written <- err
	}()
	all, err := io.ReadAll(noise(size))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write(all[:size/2]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "half of it was carried", func() bool { return w.begun.Load() >= size/2 })
	child := b.forked(1)[0]
	if _, err := out.Write(all[size/2:]); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if err := <-written; err != nil {
		t.Fatalf("write over a fork: %v", err)
	}
	body, _, err := c.ReadFile(within(t), "/workspace/f", sandbox.ReadRange{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, all) {
		t.Errorf("%d of %d bytes, or other ones: %v", len(got), size, err)
	}
	eventually(t, "the child has no part of it", func() bool {
		list, _, err := child.guest.ListDir(within(t), "/workspace", 1, 0, "")
		for _, f := range list {
			if strings.HasPrefix(f.Path, "/workspace/f") || strings.HasPrefix(f.Path, "/workspace/.berth-") {
				return false
			}
		}
		return err == nil
	})
	child.endAmong()
	b.end()
}
