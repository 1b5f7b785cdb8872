package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/sandbox"
)

// ticker holds so many megabytes and notes the longest time between two of its
// ticks, anew after each look.
const ticker = `
import os, time
held = os.urandom(1 << 20) * %d
gap, last = 0, time.monotonic_ns()
open("/tmp/ready", "w").close()
while True:
    time.sleep(0.001)
    now = time.monotonic_ns()
    gap, last = max(gap, now - last), now
    if os.path.exists("/tmp/look"):
        with open("/tmp/gap.new", "w") as f:
            f.write(str(gap))
        os.unlink("/tmp/look")
        os.rename("/tmp/gap.new", "/tmp/gap")
        gap, last = 0, time.monotonic_ns()
`

// look reads the longest gap since the last look, in milliseconds.
const look = `touch /tmp/look; while [ -e /tmp/look ] || ! [ -s /tmp/gap ]; do sleep 0.005; done; cat /tmp/gap; rm /tmp/gap`

// settle is how long the server has to make what it keeps ahead.
const settle = 60 * pace

// hostFork is fork(2) of a process that holds as much, on the host: how long the
// call takes, and how long until the child has run a program.
const hostFork = `
import os, subprocess, time
held = os.urandom(1 << 20) * %d
calls, firsts = [], []
for _ in range(5):
    r, w = os.pipe()
    t = time.monotonic_ns()
    if os.fork() == 0:
        subprocess.run(["true"])
        os.write(w, b"x")
        os._exit(0)
    calls.append(time.monotonic_ns() - t)
    os.read(r, 1)
    firsts.append(time.monotonic_ns() - t)
    os.wait()
print(sorted(calls)[2], sorted(firsts)[2])
`

// fork copies sandboxes that hold so much memory or so many written files.
func fork(ctx context.Context, s *server) (rows []row, err error) {
	for _, c := range []struct {
		mb, files      int
		pause, command row // references and aims
	}{
		{mb: 10, pause: row{Reference: "42 ms", Target: "≤ 40 ms"}, command: row{Reference: "141 ms", Target: "≤ 100 ms"}},
		{mb: 200, pause: row{Reference: "79 ms", Target: "≤ 60 ms"}, command: row{Reference: "248 ms", Target: "≤ 130 ms"}},
		{mb: 1024, pause: row{Reference: "319 ms", Target: "≤ 120 ms"}, command: row{Reference: "552–649 ms", Target: "≤ 200 ms"}},
		{mb: 10, files: 1024, command: row{Target: "≤ 1.5 × without"}},
	} {
		err := s.with(ctx, func(id string) error {
			got, err := forkOne(ctx, s, id, c.mb, c.files, c.pause, c.command)
			rows = append(rows, got...)
			if err == nil && c.mb == 200 {
				got, err = forkTen(ctx, s, id)
				rows = append(rows, got...)
			}
			return err
		})
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// forkOne forks a sandbox into one child, several times.
func forkOne(ctx context.Context, s *server, id string, mb, files int, pause, command row) (rows []row, err error) {
	name := fmt.Sprintf("%d MB", mb)
	if files > 0 {
		name += fmt.Sprintf(" and %d MB of files", files)
		if _, err := s.run(ctx, id, "sh", "-c", fmt.Sprintf("head -c %dM /dev/urandom > /workspace/files", files)); err != nil {
			return nil, err
		}
	}
	if err := s.start(ctx, id, "python3", "-c", fmt.Sprintf(ticker, mb)); err != nil {
		return nil, err
	}
	if _, err := s.run(ctx, id, "sh", "-c", "while ! [ -e /tmp/ready ]; do sleep 0.05; done"); err != nil {
		return nil, err
	}
	// What was taken from the pool is made anew first: that is not the fork's.
	if err := wait(ctx, settle); err != nil {
		return nil, err
	}
	var gaps, pauses, firsts []float64
	for range 5 {
		if _, err := s.run(ctx, id, "sh", "-c", look); err != nil {
			return nil, err
		}
		time.Sleep(pace)
		first, paused, err := forkFirst(ctx, s, id, 1)
		if err != nil {
			return nil, err
		}
		text, err := s.run(ctx, id, "sh", "-c", look)
		if err != nil {
			return nil, err
		}
		gap, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return nil, err
		}
		gaps, pauses, firsts = append(gaps, gap/1e6), append(pauses, ms(paused)), append(firsts, ms(first))
	}
	g, f := median("fork, "+name+": longest gap inside", "ms", gaps), median("  child's first command", "ms", firsts)
	g.Reference, g.Target, f.Reference, f.Target = pause.Reference, pause.Target, command.Reference, command.Target
	rows = []row{g, median("  stood still", "ms", pauses), f}
	if files > 0 {
		return rows, nil
	}
	host, err := onHost(ctx, mb)
	return append(rows, host...), err
}

// forkFirst makes n children and returns when the last has run its first command,
// and removes them.
func forkFirst(ctx context.Context, s *server, id string, n int) (first, paused time.Duration, err error) {
	begin := time.Now()
	made, err := s.Fork(ctx, id, sandbox.ForkRequest{Count: n})
	if err != nil {
		return 0, 0, err
	}
	group, all := errgroup.WithContext(ctx)
	for _, c := range made.Children {
		if c.Err != nil {
			return 0, 0, c.Err
		}
		group.Go(func() error {
			_, err := s.run(all, string(c.Sandbox.ID), "true")
			return err
		})
	}
	err = group.Wait()
	first = time.Since(begin)
	for _, c := range made.Children {
		err = errors.Join(err, s.Remove(ctx, string(c.Sandbox.ID)))
	}
	return first, made.Pause, err
}

// forkTen forks a sandbox that holds something into ten at once: after a rest, in which
// the engines that were used are started anew, and without.
func forkTen(ctx context.Context, s *server, id string) (rows []row, err error) {
	for _, c := range []struct {
		name string
		rest time.Duration
		aim  string
	}{
		{"10 forks at once, 200 MB: the last one's first command", settle, "≤ 600 ms"},
		{"  the same, one such fork right after the other", 0, ""},
	} {
		var last []float64
		for range 3 {
			if err := wait(ctx, c.rest); err != nil {
				return nil, err
			}
			took, _, err := forkFirst(ctx, s, id, 10)
			if err != nil {
				return nil, err
			}
			last = append(last, ms(took))
		}
		r := median(c.name, "ms", last)
		r.Target = c.aim
		rows = append(rows, r)
	}
	return rows, nil
}

// onHost measures fork(2) of a process of that size, which copies no disk, no
// terminal and no network, and isolates nothing.
func onHost(ctx context.Context, mb int) ([]row, error) {
	out, err := exec.CommandContext(ctx, "python3", "-c", fmt.Sprintf(hostFork, mb)).Output()
	if err != nil {
		return nil, fmt.Errorf("fork on the host: %w", err)
	}
	var call, first float64
	if _, err := fmt.Sscan(string(out), &call, &first); err != nil {
		return nil, fmt.Errorf("fork on the host: %w", err)
	}
	return []row{
		{Name: "  fork(2) of the process on the host", Value: call / 1e6, Unit: "ms", Samples: 1},
		{Name: "  its child's first program", Value: first / 1e6, Unit: "ms", Samples: 1},
	}, nil
}

// start starts a program that outlives its stream.
func (s *server) start(ctx context.Context, id string, argv ...string) error {
	events, err := s.Exec(ctx, id, sandbox.Command{Detach: true, Argv: argv})
	if err != nil {
		return err
	}
	_, err = events.Recv()
	return errors.Join(err, events.Close())
}
