// Package drivertest holds every driver to the contract of package driver.
//
// What a machine does is asked through guestclient, as the engine asks it. The
// templates under test need a POSIX shell, cat, sleep and the folder /workspace.
package drivertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// Harness is a driver under test.
type Harness struct {
	Driver driver.Driver

	// Spec gives what a machine can be made of; each has a fresh id.
	Spec func() driver.Spec

	// Reopen closes the driver and opens it again as a later process would. It
	// is nil for a driver whose machines do not survive.
	Reopen func(t *testing.T) driver.Driver

	// Leftovers lists what the driver has on this host: processes, mounts,
	// cgroups, namespaces, files of machines. It is empty before the first
	// machine and after the last.
	Leftovers func() []string

	// Awake lists what of the driver's machines uses memory or the processor of
	// this host: Leftovers without the files.
	Awake func() []string

	// ReopenDisk is Reopen for what was put aside with its disk alone. It is nil
	// where Reopen serves that too.
	ReopenDisk func(t *testing.T) driver.Driver
}

// patience bounds every wait of the suite; no test depends on its length.
const patience = 2 * time.Minute

// Run holds a driver to the contract. newDriver is called once for each part of
// the suite and registers the clean-up of what it opens.
func Run(t *testing.T, newDriver func(t *testing.T) Harness) {
	for _, part := range []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"Probe", testProbe},
		{"Life", testLife},
		{"Conflict", testConflict},
		{"Refusals", testRefusals},
		{"CancelledCreate", testCancelledCreate},
		{"EndedContext", testEndedContext},
		{"WaitAndStop", testWaitAndStop},
		{"StopWhileBusy", testStopWhileBusy},
		{"Exec", testExec},
		{"Input", testInput},
		{"Trees", testTrees},
		{"Waits", testWaits},
		{"ProcessUsage", testProcessUsage},
		{"NastyCommands", testNastyCommands},
		{"Sessions", testSessions},
		{"Terminals", testTerminals},
		{"TerminalScreens", testTerminalScreens},
		{"TerminalFlood", testTerminalFlood},
		{"TerminalPrograms", testTerminalPrograms},
		{"TerminalPause", testTerminalPause},
		{"Files", testFiles},
		{"LargeFiles", testLargeFiles},
		{"Carry", testCarry},
		{"FileTools", testFileTools},
		{"Archives", testArchives},
		{"Watch", testWatch},
		{"Ports", testPorts},
		{"Strangers", testStrangers},
		{"Usage", testUsage},
		{"Many", testMany},
		{"State", testState},
		{"Recover", testRecover},
		{"RecoverDead", testRecoverDead},
		{"Sweep", testSweep},
		{"Close", testClose},
		{"Pause", testPause},
		{"PauseSocket", testPauseSocket},
		{"PauseTwice", testPauseTwice},
		{"PauseDisk", testPauseDisk},
		{"PauseReopen", testPauseReopen},
		{"Reduce", testReduce},
		{"ReduceFrom", testReduceFrom},
		{"PauseRefusals", testPauseRefusals},
		{"PauseDead", testPauseDead},
		{"PauseFailure", testPauseFailure},
		{"PauseSweep", testPauseSweep},
		{"Discard", testDiscard},
		{"Kept", testKept},
		{"Litter", testLitter},
		{"Find", testFind},
		{"Resize", testResize},
		{"ResizedWakes", testResizedWakes},
		{"Capture", testCapture},
		{"CaptureDisk", testCaptureDisk},
		{"CaptureRefusals", testCaptureRefusals},
		{"Early", testEarly},
		{"Fork", testFork},
		{"ForkPrograms", testForkPrograms},
		{"ForkMany", testForkMany},
		{"ForkChain", testForkChain},
		{"ForkStopped", testForkStopped},
		{"ForkInPart", testForkInPart},
		{"ForkRefusals", testForkRefusals},
		{"CarryFork", testCarryFork},
		{"Mounts", testMounts},
		{"FileSystems", testFileSystems},
		{"FileSystemRefusals", testFileSystemRefusals},
	} {
		t.Run(part.name, func(t *testing.T) {
			h := newDriver(t)
			nothingLeft(t, h) // before
			part.run(t, h)
			if !t.Failed() {
				nothingLeft(t, h)
			}
		})
	}
}

// nothingLeft fails the test if the driver has anything on this host.
func nothingLeft(t *testing.T, h Harness) {
	t.Helper()
	if left := h.Leftovers(); len(left) > 0 {
		t.Fatalf("left on the host: %q", left)
	}
}

// within is a context for one test.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// create makes a machine that is stopped at the end of the test at the latest.
func create(t *testing.T, d driver.Driver, spec driver.Spec) driver.Machine {
	t.Helper()
	m, err := d.Create(within(t), spec)
	if err != nil {
		t.Fatalf("create: %v (%s)", err, sandbox.HintOf(err))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := m.Stop(ctx); err != nil {
			t.Errorf("stop at the end: %v", err)
		}
	})
	return m
}

func stop(t *testing.T, m driver.Machine) {
	t.Helper()
	if err := m.Stop(within(t)); err != nil {
		t.Fatalf("stop: %v", err)
	}
}

// client speaks to a machine until the end of the test.
func client(t *testing.T, m driver.Machine) *guestclient.Client {
	t.Helper()
	c := guestclient.Of(m)
	t.Cleanup(func() { c.Close() })
	return c
}

// result is all that a process did.
type result struct {
	process        sandbox.Process
	stdout, stderr bytes.Buffer
	missed         int64
	exit           sandbox.Exit
}

// collect reads events to the exit.
func collect(ev sandbox.Events) (*result, error) {
	defer ev.Close()
	r := &result{}
	ended := false
	for n := 0; ; n++ {
		e, err := ev.Recv()
		switch {
		case errors.Is(err, io.EOF) && ended:
			return r, nil
		case err != nil:
			return r, err
		case ended:
			return r, errors.New("an event after the exit")
		case (n == 0) != (e.Started != nil):
			return r, errors.New("the start is not the first event, or comes twice")
		}
		switch {
		case e.Started != nil:
			r.process = *e.Started
		case e.Exit != nil:
			r.exit, ended = *e.Exit, true
		case e.Missed > 0:
			r.missed += e.Missed
		case e.Stream == sandbox.Stdout:
			r.stdout.Write(e.Data)
		case e.Stream == sandbox.Stderr:
			r.stderr.Write(e.Data)
		}
	}
}

// run runs a command to its end.
func run(t *testing.T, c *guestclient.Client, cmd sandbox.Command) *result {
	t.Helper()
	ev, err := c.Start(within(t), cmd)
	if err != nil {
		t.Fatalf("start %q%s: %v", cmd.Argv, cmd.Shell, err)
	}
	r, err := collect(ev)
	if err != nil {
		t.Fatalf("run %q%s: %v", cmd.Argv, cmd.Shell, err)
	}
	return r
}

// sh is a command of the plain shell: unlike a login shell it reads no file.
func sh(line string) sandbox.Command { return sandbox.Command{Argv: []string{"sh", "-c", line}} }

// output runs a shell line that must succeed and returns what it printed.
func output(t *testing.T, c *guestclient.Client, line string) string {
	t.Helper()
	r := run(t, c, sh(line))
	if r.exit.Code != 0 || r.stderr.Len() > 0 {
		t.Fatalf("%q: %+v, stderr %q", line, r.exit, &r.stderr)
	}
	return r.stdout.String()
}

// wantKind fails the test unless err is one of the kinds, and typed.
func wantKind(t *testing.T, what string, err error, kinds ...sandbox.Kind) {
	t.Helper()
	var typed *sandbox.Error
	if err == nil || !slices.Contains(kinds, sandbox.KindOf(err)) {
		t.Fatalf("%s: error %v (kind %q), want kind %q", what, err, sandbox.KindOf(err), kinds)
	}
	if !errors.As(err, &typed) {
		t.Fatalf("%s: %T is not a *sandbox.Error", what, err)
	}
}

// eventually waits for something that must come true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx := within(t)
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
