package guestclient_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

func start(t *testing.T, c *guestclient.Client, cmd sandbox.Command) (sandbox.Events, *sandbox.Process) {
	t.Helper()
	ev, err := c.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ev.Close() })
	e, err := ev.Recv()
	if err != nil || e.Started == nil {
		t.Fatalf("first event: %+v %v", e, err)
	}
	return ev, e.Started
}

func sh(line string) sandbox.Command { return sandbox.Command{Argv: []string{"sh", "-c", line}} }

func wantKind(t *testing.T, what string, err error, kind sandbox.Kind) {
	t.Helper()
	if err == nil || sandbox.KindOf(err) != kind {
		t.Errorf("%s: %v is %q, want %q", what, err, sandbox.KindOf(err), kind)
	}
}

// TestAFloodAndASleeper: a gigabyte goes past a reader that sleeps. The process
// is not held up, and the reader learns what it missed.
func TestAFloodAndASleeper(t *testing.T) {
	const size = 1 << 30
	c := serve(t)
	cmd := sh(fmt.Sprintf("head -c %d /dev/zero; echo end >&2", size))
	cmd.Detach = true
	ev, p := start(t, c, cmd)
	if exit, err := c.Wait(t.Context(), p.ID); err != nil || exit.Code != 0 {
		t.Fatalf("%+v %v", exit, err) // nobody reads meanwhile
	}
	r := collect(t, ev)
	if r.missed == 0 || r.missed+int64(r.stdout.Len()) != size || r.stderr.String() != "end\n" {
		t.Errorf("missed %d and got %d of %d, stderr %q", r.missed, r.stdout.Len(), size, &r.stderr)
	}
}

// TestLosslessThroughASlowReader: all bytes come, in order, although the reader
// is far slower than the process.
func TestLosslessThroughASlowReader(t *testing.T) {
	c := serve(t)
	const lines = 300_000
	ev, _ := start(t, c, sandbox.Command{Argv: []string{"seq", fmt.Sprint(lines)}, Lossless: true})
	var got bytes.Buffer
	for n := 0; ; n++ {
		e, err := ev.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Missed > 0 {
			t.Fatalf("missed %d", e.Missed)
		}
		got.Write(e.Data)
		if n%10 == 0 {
			time.Sleep(2 * time.Millisecond)
		}
	}
	var want bytes.Buffer
	for n := range lines {
		fmt.Fprintln(&want, n+1)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes came, %d were printed", got.Len(), want.Len())
	}
}

// TestWhatIsLeftRunningDoesNotHoldTheExit: a child that keeps the pipe open must
// not keep the caller waiting, and what it prints later is kept.
func TestWhatIsLeftRunningDoesNotHoldTheExit(t *testing.T) {
	c := serve(t)
	cmd := sh("(read go <fifo; echo late; exec sleep 1000) & echo $! > left; echo early; exit 4")
	if _, err := c.WriteFile(t.Context(), "/workspace/x", sandbox.WriteOptions{Parents: true}, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	r := result{}
	ev, _ := start(t, c, sh("mkfifo fifo"))
	collect(t, ev)
	ev, p := start(t, c, cmd)
	r = *collect(t, ev)
	if r.stdout.String() != "early\n" || r.exit.Code != 4 {
		t.Errorf("%q %+v", &r.stdout, r.exit)
	}
	ev, _ = start(t, c, sh("echo go > fifo"))
	collect(t, ev)
	for {
		ev, err := c.Attach(t.Context(), p.ID, sandbox.Offsets{Stdout: 6})
		if err != nil {
			t.Fatal(err)
		}
		if r := collect(t, ev); r.stdout.String() == "late\n" {
			break
		}
	}
	ev, _ = start(t, c, sh("kill $(cat left)"))
	collect(t, ev)
}

// TestManyReaders: each has its own place, and sees the same bytes.
func TestManyReaders(t *testing.T) {
	c := serve(t)
	cmd := sandbox.Command{Argv: []string{"cat"}, Stdin: true, Detach: true, Name: "echo"}
	ev, p := start(t, c, cmd)
	ev.Close() // it lives on
	var readers []sandbox.Events
	for range 5 {
		ev, err := c.Attach(t.Context(), "echo", sandbox.Offsets{})
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, ev)
	}
	for _, word := range []string{"one", "two", "\xff\x00three"} {
		if err := c.Input(t.Context(), p.ID, []byte(word)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.CloseInput(t.Context(), "echo"); err != nil {
		t.Fatal(err)
	}
	for _, ev := range readers {
		if r := collect(t, ev); r.stdout.String() != "onetwo\xff\x00three" || r.exit.Code != 0 {
			t.Errorf("%q %+v", &r.stdout, r.exit)
		}
	}
	_, err := c.Attach(t.Context(), "echo", sandbox.Offsets{Stdout: 1000})
	wantKind(t, "an offset beyond the end", err, sandbox.Invalid)
	_, err = c.Attach(t.Context(), "nobody", sandbox.Offsets{})
	wantKind(t, "an unknown process", err, sandbox.NotFound)
}

func TestNames(t *testing.T) {
	c := serve(t)
	named := sandbox.Command{Argv: []string{"sleep", "1000"}, Name: "server", Detach: true}
	_, first := start(t, c, named)
	_, err := c.Start(t.Context(), named)
	wantKind(t, "a name that is taken", err, sandbox.Conflict)
	if err := c.Signal(t.Context(), "server", "9"); err != nil {
		t.Fatal(err)
	}
	if exit, err := c.Wait(t.Context(), "server"); err != nil || exit.Signal != "SIGKILL" || exit.Code != 137 {
		t.Fatalf("%+v %v", exit, err)
	}
	for {
		if _, err = c.Start(t.Context(), named); err == nil {
			break // the name is free soon after the end
		}
		wantKind(t, "a name whose process just ended", err, sandbox.Conflict)
	}
	list, err := c.Processes(t.Context())
	if err != nil || len(list) != 2 || list[0].ID != first.ID || list[0].Exit == nil || list[1].Exit != nil || list[1].Name != "server" {
		t.Errorf("%+v %v", list, err)
	}
	for _, bad := range []string{"p7", "a b", "a/b", "-x", strings.Repeat("n", 65), "a\xff"} {
		_, err := c.Start(t.Context(), sandbox.Command{Argv: []string{"true"}, Name: bad})
		wantKind(t, fmt.Sprintf("name %q", bad), err, sandbox.Invalid)
	}
}

// TestInputThatNobodyReads waits as long as its context, and no longer.
func TestInputThatNobodyReads(t *testing.T) {
	c := serve(t)
	_, p := start(t, c, sandbox.Command{Argv: []string{"sleep", "1000"}, Stdin: true})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := c.Input(ctx, p.ID, make([]byte, 1<<20))
	wantKind(t, "input that nobody reads", err, sandbox.Timeout)
	if err := c.Signal(t.Context(), p.ID, "TERM"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(t.Context(), p.ID); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "input after the end", c.Input(t.Context(), p.ID, []byte("x")), sandbox.Conflict)

	_, deaf := start(t, c, sandbox.Command{Argv: []string{"sleep", "1000"}})
	wantKind(t, "input to one without", c.Input(t.Context(), deaf.ID, []byte("x")), sandbox.Conflict)
}

// TestAnEndedInputLeavesLaterOnesWhole: one call that is cut off does not break
// the pipe for the next.
func TestAnEndedInputLeavesLaterOnesWhole(t *testing.T) {
	c := serve(t)
	ev, _ := start(t, c, sh("mkfifo gate"))
	collect(t, ev)
	_, p := start(t, c, sandbox.Command{Argv: []string{"sh", "-c", "read line <gate; exec cat >/dev/null"}, Stdin: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantKind(t, "cut off", c.Input(ctx, p.ID, make([]byte, 1<<20)), sandbox.Timeout)
	ev, _ = start(t, c, sh("echo > gate"))
	collect(t, ev)
	if err := c.Input(t.Context(), p.ID, make([]byte, 1<<20)); err != nil {
		t.Error(err)
	}
	if err := c.CloseInput(t.Context(), p.ID); err != nil {
		t.Error(err)
	}
	if exit, err := c.Wait(t.Context(), p.ID); err != nil || exit.Code != 0 {
		t.Errorf("%+v %v", exit, err)
	}
}

func TestTheStreamBoundsTheProcess(t *testing.T) {
	c := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	ev, err := c.Start(ctx, sh("sleep 1000 & setsid sleep 1000 & wait"))
	if err != nil {
		t.Fatal(err)
	}
	defer ev.Close()
	first, err := ev.Recv()
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err = ev.Recv(); !errors.Is(err, context.Canceled) {
		t.Errorf("recv: %v", err)
	}
	exit, err := c.Wait(t.Context(), first.Started.ID)
	if err != nil || exit.Signal != "SIGKILL" {
		t.Errorf("%+v %v", exit, err)
	}
}

func TestCloseWhileReceiving(t *testing.T) {
	c := serve(t)
	ev, _ := start(t, c, sandbox.Command{Argv: []string{"sleep", "1000"}})
	done := make(chan error, 1)
	go func() {
		_, err := ev.Recv()
		done <- err
	}()
	ev.Close()
	ev.Close()
	wantKind(t, "recv of a closed stream", <-done, sandbox.Unavailable)
	_, err := ev.Recv()
	wantKind(t, "recv after the close", err, sandbox.Unavailable)
}

func TestTimeouts(t *testing.T) {
	c := serve(t)
	cmd := sh("trap '' TERM; sleep 1000 & echo started; wait; sleep 1000")
	cmd.Timeout = 200 * time.Millisecond
	ev, _ := start(t, c, cmd)
	r := collect(t, ev)
	if !r.exit.TimedOut || r.exit.Code != 137 || r.stdout.String() != "started\n" {
		t.Errorf("%+v %q", r.exit, &r.stdout)
	}
	cmd = sh("exit 3")
	cmd.Timeout = time.Hour
	ev, _ = start(t, c, cmd)
	if r := collect(t, ev); r.exit.TimedOut || r.exit.Code != 3 {
		t.Errorf("%+v", r.exit)
	}
}

// TestAStartIsTimed: whoever asks is told once where its time went.
func TestAStartIsTimed(t *testing.T) {
	c := serve(t)
	for _, cmd := range []sandbox.Command{sh("exit 3"), sh("sleep 0.1; echo x")} {
		var told []guestclient.Timing
		ev, err := c.StartTimed(t.Context(), cmd, func(at guestclient.Timing) { told = append(told, at) })
		if err != nil {
			t.Fatal(err)
		}
		collect(t, ev)
		if err := ev.Close(); err != nil {
			t.Error(err)
		}
		if len(told) != 1 || told[0].Start <= 0 || told[0].Run <= 0 || told[0].Link < 0 {
			t.Errorf("%q: told %+v", cmd.Argv, told)
		}
	}
	ev, err := c.StartTimed(t.Context(), sh("sleep 60"), func(at guestclient.Timing) { t.Errorf("told %+v of a call that was given up", at) })
	if err != nil {
		t.Fatal(err)
	}
	ev.Close()
}
