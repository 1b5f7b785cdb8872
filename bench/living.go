package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/sandbox"
)

// keystroke is from a key to its echo, over a WebSocket.
func keystroke(ctx context.Context, s *server) (rows []row, err error) {
	err = s.with(ctx, func(id string) error {
		if _, _, err := s.OpenTerminal(ctx, id, sandbox.TerminalRequest{Argv: []string{"cat"}}); err != nil {
			return err
		}
		c, err := s.JoinTerminal(ctx, id, sandbox.DefaultTerminal, sandbox.TerminalAttach{})
		if err != nil {
			return err
		}
		defer c.Close()
		var took []float64
		for i := range 120 {
			key := []byte{byte('a' + i%26)}
			begin := time.Now()
			if err := c.Input(ctx, key); err != nil {
				return err
			}
			for {
				e, err := c.Recv()
				if err != nil {
					return err
				}
				if !e.Seeding && bytes.Contains(e.Data, key) {
					break
				}
			}
			if i >= 20 { // the first ones find nothing warm
				took = append(took, ms(time.Since(begin)))
			}
		}
		r := median("keystroke → echo", "ms", took)
		r.Target = "≤ 3 ms"
		rows = []row{r}
		return nil
	})
	return rows, err
}

// printers is a hundred processes that print a megabyte a second each, all of
// which is read.
func printers(ctx context.Context, s *server) (rows []row, err error) {
	const processes, seconds = 100, 5
	err = s.with(ctx, func(id string) error {
		before, err := s.Usage(ctx, id)
		if err != nil {
			return err
		}
		begin := time.Now()
		group, all := errgroup.WithContext(ctx)
		for range processes {
			group.Go(func() error {
				out, err := s.run(all, id, "bash", "-c", fmt.Sprintf("for i in {1..%d}; do head -c 1000000 /dev/zero; sleep 1; done", seconds))
				if err == nil && len(out) != seconds*1_000_000 {
					err = fmt.Errorf("%d bytes of %d came", len(out), seconds*1_000_000)
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		took := time.Since(begin)
		after, err := s.Usage(ctx, id)
		if err != nil {
			return err
		}
		cores := float64(after.CPUMillis-before.CPUMillis) / float64(took.Milliseconds())
		rows = []row{{Name: fmt.Sprintf("%d processes printing 1 MB/s, none lost", processes), Unit: "cores of the sandbox", Value: cores, Samples: 1, Target: "≤ 1 core"}}
		return nil
	})
	return rows, err
}

// aside pauses and resumes a sandbox that holds so much memory.
func aside(ctx context.Context, s *server) (rows []row, err error) {
	for _, mb := range []int{10, 200, 1024} {
		err := s.with(ctx, func(id string) error {
			events, err := s.Exec(ctx, id, sandbox.Command{Detach: true, Argv: []string{"python3", "-uc",
				fmt.Sprintf("import os, time; b = os.urandom(1 << 20) * %d; print('held'); time.sleep(1e6)", mb)}})
			if err != nil {
				return err
			}
			for held := false; !held; {
				e, err := events.Recv()
				if err != nil {
					return errors.Join(err, events.Close())
				}
				held = bytes.Contains(e.Data, []byte("held"))
			}
			if err := events.Close(); err != nil {
				return err
			}
			var paused, first []float64
			for range 5 {
				begin := time.Now()
				if _, err := s.Pause(ctx, id); err != nil {
					return err
				}
				paused = append(paused, ms(time.Since(begin)))
				begin = time.Now()
				if _, err := s.run(ctx, id, "true"); err != nil { // which wakes it
					return err
				}
				first = append(first, ms(time.Since(begin)))
			}
			p, f := median(fmt.Sprintf("pause, %d MB in memory", mb), "ms", paused), median(fmt.Sprintf("wake → first command, %d MB", mb), "ms", first)
			if mb == 200 {
				f.Reference, f.Target = "248 ms", "≤ 130 ms"
			}
			rows = append(rows, p, f)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}
