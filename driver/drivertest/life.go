package drivertest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

func testProbe(t *testing.T, h Harness) {
	caps, err := h.Driver.Probe(within(t))
	if err != nil {
		t.Fatalf("probe: %v (%s)", err, sandbox.HintOf(err))
	}
	if caps.Version == "" {
		t.Error("no version of what is beneath")
	}
	if caps.Survives != (h.Reopen != nil) {
		t.Errorf("survives is %v, but Reopen given is %v", caps.Survives, h.Reopen != nil)
	}
	if err := sandbox.CheckName(h.Driver.Class()); err != nil {
		t.Errorf("class: %v", err)
	}
	t.Logf("%s: %+v", h.Driver.Class(), caps)
}

// testLife: a machine is there when Create returns and gone when Stop does.
func testLife(t *testing.T, h Harness) {
	spec := h.Spec()
	m := create(t, h.Driver, spec)
	if m.ID() != spec.ID {
		t.Errorf("id %s, want %s", m.ID(), spec.ID)
	}
	c := client(t, m)
	hello, err := c.Hello(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if hello.SandboxID != string(spec.ID) || hello.Version == "" || hello.Boot.IsZero() {
		t.Errorf("hello: %+v", hello)
	}
	if got := output(t, c, "echo here"); got != "here\n" {
		t.Errorf("echo: %q", got)
	}
	// Several connections live at once.
	var conns []net.Conn
	for range 3 {
		conn, err := m.Dial(within(t))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Close()
	}
	if got := output(t, c, "echo still"); got != "still\n" {
		t.Errorf("echo: %q", got)
	}
	stop(t, m)
	nothingLeft(t, h)
	_, err = m.Dial(within(t))
	wantKind(t, "dial what has ended", err, sandbox.Unavailable)
	_, err = guestclient.New(m.Dial).Hello(within(t))
	wantKind(t, "call what has ended", err, sandbox.Unavailable)
}

// testConflict: an id that is in use is refused, and free again after Stop.
func testConflict(t *testing.T, h Harness) {
	spec := h.Spec()
	m := create(t, h.Driver, spec)
	_, err := h.Driver.Create(within(t), spec)
	wantKind(t, "the same id again", err, sandbox.Conflict)
	if got := output(t, client(t, m), "echo unharmed"); got != "unharmed\n" {
		t.Errorf("the first one: %q", got)
	}
	stop(t, m)
	again := create(t, h.Driver, spec)
	if got := output(t, client(t, again), "echo new"); got != "new\n" {
		t.Errorf("the new one: %q", got)
	}
	stop(t, again)

	// Of creates of one id at once, one succeeds.
	spec = h.Spec()
	var wg sync.WaitGroup
	machines, errs := make([]driver.Machine, 4), make([]error, 4)
	for i := range machines {
		wg.Go(func() { machines[i], errs[i] = h.Driver.Create(within(t), spec) })
	}
	wg.Wait()
	made := 0
	for i, m := range machines {
		if errs[i] != nil {
			wantKind(t, "the same id at once", errs[i], sandbox.Conflict)
			continue
		}
		made++
		stop(t, m)
	}
	if made != 1 {
		t.Errorf("%d machines of one id were made at once", made)
	}
}

// testRefusals: what is malformed is Invalid and leaves nothing.
func testRefusals(t *testing.T, h Harness) {
	for what, spoil := range map[string]func(*driver.Spec){
		"empty id":         func(s *driver.Spec) { s.ID = "" },
		"id that climbs":   func(s *driver.Spec) { s.ID = "../../../tmp/abcdefgh" },
		"no memory":        func(s *driver.Spec) { s.Limits.MemoryBytes = 0 },
		"negative disk":    func(s *driver.Spec) { s.Limits.DiskBytes = -1 },
		"limits left out":  func(s *driver.Spec) { s.Limits = sandbox.Limits{} },
		"a core too many":  func(s *driver.Spec) { s.Limits.CPUMilli = 1 << 40 },
		"processes beyond": func(s *driver.Spec) { s.Limits.Processes = 1 << 40 },
	} {
		spec := h.Spec()
		spoil(&spec)
		m, err := h.Driver.Create(within(t), spec)
		if err == nil {
			stop(t, m)
		}
		wantKind(t, what, err, sandbox.Invalid)
		nothingLeft(t, h)
	}
}

// testCancelledCreate: a Create whose context ends undoes what was half made,
// whenever that is.
func testCancelledCreate(t *testing.T, h Harness) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Driver.Create(ended, h.Spec())
	if !errors.Is(err, context.Canceled) {
		t.Errorf("create in an ended context: %v", err)
	}
	nothingLeft(t, h)

	for wait := time.Duration(0); wait <= 160*time.Millisecond; wait = wait*2 + time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		m, err := h.Driver.Create(ctx, h.Spec())
		switch {
		case err == nil: // it was faster
			stop(t, m)
		case !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("create cut off after %v: %v", wait, err)
		case sandbox.KindOf(err) != sandbox.Timeout:
			t.Errorf("create cut off after %v: kind %q", wait, sandbox.KindOf(err))
		}
		cancel()
		nothingLeft(t, h)
	}
}

// testEndedContext: every method returns the context's error and does no harm.
func testEndedContext(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
	if c, err := m.Dial(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("dial: %v", err)
		if c != nil {
			c.Close()
		}
	}
	if got := output(t, client(t, m), "echo unharmed"); got != "unharmed\n" {
		t.Errorf("got %q", got)
	}
	stop(t, m)
}

// testWaitAndStop: many may wait, Stop ends them all, and may be called again.
func testWaitAndStop(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	var wg sync.WaitGroup
	exits, errs := make([]driver.Exit, 4), make([]error, 4)
	for i := range exits {
		wg.Go(func() { exits[i], errs[i] = m.Wait(within(t)) })
	}
	var stopErrs [3]error
	for i := range stopErrs {
		wg.Go(func() { stopErrs[i] = m.Stop(within(t)) })
	}
	wg.Wait()
	for i, e := range exits {
		if errs[i] != nil || !e.Asked || e.At.IsZero() {
			t.Errorf("wait: %+v, %v", e, errs[i])
		}
	}
	for _, err := range stopErrs {
		if err != nil {
			t.Errorf("stops at once: %v", err)
		}
	}
	nothingLeft(t, h)
	stop(t, m)
	if e, err := m.Wait(within(t)); err != nil || !e.Asked {
		t.Errorf("wait after the end: %+v, %v", e, err)
	}
}

// testStopWhileBusy: Stop does not wait for processes, streams or bodies.
func testStopWhileBusy(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	ev, err := c.Start(within(t), sh("trap '' TERM INT HUP; while :; do echo busy; sleep 1; done"))
	if err != nil {
		t.Fatal(err)
	}
	defer ev.Close()
	for range 2 { // the start, then output
		if _, err := ev.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() {
		for {
			if _, err := ev.Recv(); err != nil {
				done <- err
				return
			}
		}
	}()
	stop(t, m)
	select {
	case err := <-done:
		if !errors.Is(err, io.EOF) { // the exit may still have come through
			wantKind(t, "a stream of what has ended", err, sandbox.Unavailable)
		}
	case <-within(t).Done():
		t.Fatal("the stream outlived its machine")
	}
	nothingLeft(t, h)
}

// testMany makes 32 machines, 8 at a time.
func testMany(t *testing.T, h Harness) {
	const machines, atOnce = 32, 8
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for range machines {
		slots <- struct{}{}
		spec := h.Spec()
		wg.Go(func() {
			defer func() { <-slots }()
			if err := oneLife(within(t), h.Driver, spec); err != nil {
				t.Errorf("%s: %v", spec.ID, err)
			}
		})
	}
	wg.Wait()
}

// oneLife makes a machine, uses it and stops it.
func oneLife(ctx context.Context, d driver.Driver, spec driver.Spec) (err error) {
	m, err := d.Create(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop(context.WithoutCancel(ctx))) }()
	c := guestclient.New(m.Dial)
	defer c.Close()
	ev, err := c.Start(ctx, sh("echo alive"))
	if err != nil {
		return err
	}
	r, err := collect(ev)
	if err == nil && (r.stdout.String() != "alive\n" || r.exit.Code != 0) {
		err = errors.New("no sign of life: " + r.stdout.String())
	}
	return err
}

// testUsage: the figures are there and move as they must.
func testUsage(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	before, err := m.Usage(within(t))
	if err != nil {
		t.Fatal(err)
	}
	output(t, c, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; cat /dev/zero | head -c 4194304 > big")
	after, err := m.Usage(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []driver.Usage{before, after} {
		if u.MemoryBytes < 0 || u.CPU < 0 || u.DiskBytes < 0 {
			t.Errorf("a figure is negative: %+v", u)
		}
	}
	if after.CPU < before.CPU {
		t.Errorf("CPU time went back: %v to %v", before.CPU, after.CPU)
	}
	if after.DiskBytes < before.DiskBytes+4<<20 {
		t.Errorf("4 MiB were written, but the disk went from %d to %d bytes", before.DiskBytes, after.DiskBytes)
	}
	t.Logf("before %+v, after %+v", before, after)
	stop(t, m)
}
