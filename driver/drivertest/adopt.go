package drivertest

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// maxState bounds the bytes of Machine.State.
const maxState = 64 << 10

// testState: the bytes stay as they are, and unknown ones are left alone.
func testState(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	state := m.State()
	if len(state) == 0 || len(state) > maxState {
		t.Errorf("state has %d bytes", len(state))
	}
	output(t, client(t, m), "echo x > file")
	if !bytes.Equal(state, m.State()) {
		t.Error("the state changed after Create")
	}
	for _, unknown := range [][]byte{nil, []byte("{}"), []byte(`{"version":4711}`), []byte("\xff\x00 no state"), bytes.Repeat([]byte("["), maxState)} {
		_, err := h.Driver.Recover(within(t), m.ID(), unknown)
		wantKind(t, "recover from an unknown version", err, sandbox.Unsupported)
	}
	if got := output(t, client(t, m), "cat file"); got != "x\n" {
		t.Errorf("the machine was not left alone: %q", got)
	}
	stop(t, m)
}

// testRecover: machines go on while the driver is closed and are adopted again.
func testRecover(t *testing.T, h Harness) {
	if h.Reopen == nil {
		t.Log("machines of this driver end with its process: nothing to adopt")
		return
	}
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	output(t, c, "echo kept > file")
	ev, err := c.Start(within(t), sandbox.Command{Argv: []string{"sh", "-c", "echo first; read line; echo $line; exit 3"}, Stdin: true, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	first, err := ev.Recv()
	if err != nil {
		t.Fatal(err)
	}
	ev.Close()
	c.Close()

	d := h.Reopen(t)
	adopted, err := d.Recover(within(t), m.ID(), m.State())
	if err != nil {
		t.Fatalf("recover: %v", err)
	}
	if !bytes.Equal(adopted.State(), m.State()) {
		t.Error("the state changed on the way")
	}
	c = client(t, adopted)
	if got := output(t, c, "cat file"); got != "kept\n" {
		t.Errorf("file: %q", got)
	}
	if err := c.Input(within(t), first.Started.ID, []byte("second\n")); err != nil {
		t.Fatal(err)
	}
	ev, err = c.Attach(within(t), first.Started.ID, sandbox.Offsets{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := collect(ev)
	if err != nil || r.stdout.String() != "first\nsecond\n" || r.exit.Code != 3 {
		t.Errorf("the process that lived on: %q %+v %v", &r.stdout, r.exit, err)
	}
	_, err = d.Create(within(t), driver.Spec{ID: m.ID(), Root: h.Spec().Root, Hostname: "again", Limits: sandbox.DefaultLimits()})
	wantKind(t, "create with an adopted id", err, sandbox.Conflict)
	stop(t, adopted)
	if _, err := adopted.Wait(within(t)); err != nil {
		t.Errorf("wait: %v", err)
	}
}

// testRecoverDead: what no longer lives is NotFound, and nothing of it is left.
func testRecoverDead(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	stop(t, m)
	d := h.Driver
	if h.Reopen != nil {
		d = h.Reopen(t)
	}
	for range 2 {
		_, err := d.Recover(within(t), m.ID(), m.State())
		wantKind(t, "recover what was stopped", err, sandbox.NotFound)
		nothingLeft(t, h)
	}
}

// testSweep: what this process holds and what is to be kept stays.
func testSweep(t *testing.T, h Harness) {
	held := create(t, h.Driver, h.Spec())
	swept, err := h.Driver.Sweep(within(t), nil)
	if err != nil || slices.Contains(swept, held.ID()) {
		t.Fatalf("sweep: %v, %v", swept, err)
	}
	if got := output(t, client(t, held), "echo held"); got != "held\n" {
		t.Errorf("got %q", got)
	}
	if h.Reopen == nil {
		stop(t, held)
		return
	}
	lost := create(t, h.Driver, h.Spec())
	output(t, client(t, held), "echo kept > file")

	d := h.Reopen(t) // it holds neither now
	swept, err = d.Sweep(within(t), []sandbox.ID{held.ID()})
	if err != nil || !slices.Equal(swept, []sandbox.ID{lost.ID()}) {
		t.Fatalf("sweep: %v, %v; want %s alone", swept, err, lost.ID())
	}
	for _, left := range h.Leftovers() {
		if strings.Contains(left, string(lost.ID())) {
			t.Errorf("left of the swept one: %s", left)
		}
	}
	_, err = d.Recover(within(t), lost.ID(), lost.State())
	wantKind(t, "recover what was swept", err, sandbox.NotFound)
	kept, err := d.Recover(within(t), held.ID(), held.State())
	if err != nil {
		t.Fatalf("recover what was kept: %v", err)
	}
	if got := output(t, client(t, kept), "cat file"); got != "kept\n" {
		t.Errorf("got %q", got)
	}
	swept, err = d.Sweep(within(t), nil)
	if err != nil || len(swept) > 0 {
		t.Errorf("sweep with all held: %v, %v", swept, err)
	}
	stop(t, kept)
}

// testClose: a closed driver takes no more work; what it had goes on or ends, as
// its capabilities say.
func testClose(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	if h.Reopen == nil {
		if err := h.Driver.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Wait(within(t)); err != nil {
			t.Errorf("wait: %v", err)
		}
		nothingLeft(t, h)
		_, err := h.Driver.Create(within(t), h.Spec())
		wantKind(t, "create after the end", err, sandbox.Unavailable)
		return
	}
	d := h.Reopen(t)
	again, err := d.Recover(within(t), m.ID(), m.State())
	if err != nil {
		t.Fatal(err)
	}
	stop(t, again)
}
