package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// cpu is the processor time of the quick verbs, the sandbox's and the server's, which
// says more than the time on a clock where a machine has other work: a sandbox's is
// all that its cgroup has used, the start of its engine included.
func cpu(ctx context.Context, s *server) (rows []row, err error) {
	var made, served []float64
	for range 8 {
		before, err := s.used()
		if err != nil {
			return nil, err
		}
		var c cost
		if err := s.with(ctx, func(id string) error { c, err = s.cost(ctx, id, before); return err }); err != nil {
			return nil, err
		}
		made, served = append(made, c.sandbox), append(served, c.server)
		if err := wait(ctx, pace); err != nil {
			return nil, err
		}
	}
	rows = append(rows, median("processor time of a cold create and its first output", "ms", made), median("  the server's", "ms", served))
	for _, mb := range []int{10, 200} {
		err := s.holding(ctx, mb, func(id string) error {
			for _, n := range []int{1, 10} {
				got, err := cpuOfForks(ctx, s, id, n)
				if err != nil {
					return err
				}
				for i, name := range []string{"each child, to its first output", "  the parent's", "  the server's"} {
					rows = append(rows, median(fmt.Sprintf("processor time of %d forks of %d MB: %s", n, mb, name), "ms", got[i]))
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// holding is with, for a sandbox in which a program holds so many MB.
func (s *server) holding(ctx context.Context, mb int, f func(id string) error) error {
	return s.with(ctx, func(id string) error {
		if err := s.start(ctx, id, "python3", "-c", fmt.Sprintf("import os, time\nheld = os.urandom(1 << 20) * %d\nopen('/tmp/ready', 'w').close()\ntime.sleep(1e6)", mb)); err != nil {
			return err
		}
		if _, err := s.run(ctx, id, "sh", "-c", "while ! [ -e /tmp/ready ]; do sleep 0.05; done"); err != nil {
			return err
		}
		return f(id)
	})
}

// cpuOfForks are the samples of each child's, of the parent's and of the server's time.
func cpuOfForks(ctx context.Context, s *server, id string, n int) (got [3][]float64, err error) {
	for range 6 {
		before, err := s.used()
		if err != nil {
			return got, err
		}
		parent, err := usedBy(id)
		if err != nil {
			return got, err
		}
		made, err := s.Fork(ctx, id, sandbox.ForkRequest{Count: n})
		if err != nil {
			return got, err
		}
		var sum cost
		for _, c := range made.Children {
			if c.Err != nil {
				return got, c.Err
			}
			one, err := s.cost(ctx, string(c.Sandbox.ID), before)
			if err != nil {
				return got, err
			}
			sum.sandbox, sum.server = sum.sandbox+one.sandbox, one.server
		}
		now, err := usedBy(id)
		if err != nil {
			return got, err
		}
		for _, c := range made.Children {
			err = errors.Join(err, s.Remove(ctx, string(c.Sandbox.ID)))
		}
		if err != nil {
			return got, err
		}
		for i, v := range []float64{sum.sandbox / float64(n), now - parent, sum.server} {
			got[i] = append(got[i], v)
		}
		if err := wait(ctx, 10*pace); err != nil {
			return got, err
		}
	}
	return got, nil
}

// cost is in milliseconds.
type cost struct{ sandbox, server float64 }

// cost runs a first command and tells what a sandbox has used up to then, and the
// server since it had used so much.
func (s *server) cost(ctx context.Context, id string, before float64) (c cost, err error) {
	if _, err := s.run(ctx, id, "echo", "x"); err != nil {
		return c, err
	}
	now, err := s.used()
	if err != nil {
		return c, err
	}
	c.server = now - before
	c.sandbox, err = usedBy(id)
	return c, err
}

// usedWith is the processor time of a sandbox and of the server so far.
func (s *server) usedWith(id string) (c cost, err error) {
	if c.sandbox, err = usedBy(id); err != nil {
		return c, err
	}
	c.server, err = s.used()
	return c, err
}

// used is the server's processor time so far, ended threads included.
func (s *server) used() (ms float64, err error) {
	const sched = 2 // CPUCLOCK_SCHED: clock_getcpuclockid(3) makes the clock's number of it
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^s.cmd.Process.Pid<<3|sched), &t); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return float64(t.Nano()) / float64(time.Millisecond), nil
}

// usedBy is a sandbox's processor time so far.
func usedBy(id string) (ms float64, err error) {
	for _, file := range []string{"/sys/fs/cgroup/*/berth/*/" + id + "/cpuacct.usage", "/sys/fs/cgroup/berth/*/" + id + "/cpu.stat"} {
		found, err := filepath.Glob(file)
		if err != nil {
			return 0, err
		}
		for _, f := range found {
			b, err := os.ReadFile(f)
			if err != nil {
				return 0, err
			}
			text, unit := string(b), time.Nanosecond
			if after, ok := strings.CutPrefix(text, "usage_usec "); ok { // of version 2
				text, unit = after, time.Microsecond
			}
			n, err := strconv.ParseInt(strings.Fields(text)[0], 10, 64)
			return float64(n) * float64(unit) / float64(time.Millisecond), err
		}
	}
	return 0, fmt.Errorf("sandbox %s: no cgroup that counts its processor time", id)
}
