package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// measures lists what is taken, in this order.
var measures = []struct {
	name string
	take func(context.Context, *server) ([]row, error)
}{
	{"create", create},
	{"warm", warm},
	{"exec", roundTrip},
	{"keystroke", keystroke},
	{"printers", printers},
	{"memory", memory},
	{"aside", aside},
	{"fork", fork},
	{"cpu", cpu},
	{"files", files},
	{"preview", preview},
	{"inject", inject},
	{"sdk", clients},
	{"workerd", workerd},
	{"layer", layer},
	{"project", project},
	{"crowd", crowd},
	{"many", many},
	{"cycles", cycles},
}

// create is from nothing to the first output of the first command.
func create(ctx context.Context, s *server) ([]row, error) {
	var made, first, gone []float64
	for range 15 {
		begin := time.Now()
		sb, err := s.Create(ctx, sandbox.CreateRequest{})
		if err != nil {
			return nil, err
		}
		made = append(made, ms(time.Since(begin)))
		if _, err := s.run(ctx, string(sb.ID), "echo", "x"); err != nil {
			return nil, err
		}
		first = append(first, ms(time.Since(begin)))
		begin = time.Now()
		if err := s.Remove(ctx, string(sb.ID)); err != nil {
			return nil, err
		}
		gone = append(gone, ms(time.Since(begin)))
	}
	r := median("cold create → first output", "ms", first)
	r.Reference, r.Target = "106–137 ms", "≤ 110 ms"
	return []row{r, median("  of it, create", "ms", made), median("remove", "ms", gone)}, nil
}

// warm is the same with a machine that waits for the create.
func warm(ctx context.Context, s *server) ([]row, error) {
	// Only what has been asked for runs ahead.
	if err := s.with(ctx, func(string) error { return nil }); err != nil {
		return nil, err
	}
	var made, first []float64
	for range 15 {
		for {
			st, err := s.Status(ctx)
			if err != nil {
				return nil, err
			}
			if st.Warm > 0 {
				break
			}
			if err := wait(ctx, pace); err != nil {
				return nil, err
			}
		}
		if err := wait(ctx, time.Second); err != nil { // until the pool is full, and quiet
			return nil, err
		}
		begin := time.Now()
		sb, err := s.Create(ctx, sandbox.CreateRequest{})
		if err != nil {
			return nil, err
		}
		made = append(made, ms(time.Since(begin)))
		if _, err := s.run(ctx, string(sb.ID), "echo", "x"); err != nil {
			return nil, err
		}
		first = append(first, ms(time.Since(begin)))
		if err := s.Remove(ctx, string(sb.ID)); err != nil {
			return nil, err
		}
	}
	r := median("create from the pool → first output", "ms", first)
	r.Reference, r.Target = "44 ms hosted", "≤ 20 ms"
	return []row{r, median("  of it, create", "ms", made)}, nil
}

// pace is the time between commands, as an agent leaves it: without it they use
// up the sandbox's share of the processor, and what is measured is that.
const pace = 50 * time.Millisecond

// roundTrip is one command through the API, beside the guest's own cost of a
// fork and exec.
func roundTrip(ctx context.Context, s *server) (rows []row, err error) {
	err = s.with(ctx, func(id string) error {
		var whole []float64
		before, err := s.stagesOf(ctx, "exec")
		if err != nil {
			return err
		}
		from, err := s.usedWith(id)
		if err != nil {
			return err
		}
		for range 50 {
			begin := time.Now()
			if _, err := s.run(ctx, id, "true"); err != nil {
				return err
			}
			whole = append(whole, ms(time.Since(begin)))
			if err := wait(ctx, pace); err != nil {
				return err
			}
		}
		to, err := s.usedWith(id)
		if err != nil {
			return err
		}
		after, err := s.stagesOf(ctx, "exec")
		if err != nil {
			return err
		}
		out, err := s.run(ctx, id, "python3", "-c", `
import os, time
def one():
    time.sleep(0.05)
    t = time.monotonic()
    pid = os.posix_spawn('/bin/true', ['true'], {})
    os.waitpid(pid, 0)
    return time.monotonic() - t
print('\n'.join(str(one() * 1000) for _ in range(50)))`)
		if err != nil {
			return err
		}
		var inside []float64
		for _, f := range strings.Fields(out) {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return err
			}
			inside = append(inside, v)
		}
		a, b := median("exec round trip of true", "ms", whole), median("  spawn and wait inside alone", "ms", inside)
		a.Reference, a.Target = "9 ms", "inside + 1 ms"
		b.Reference = "7–8 ms"
		// What the command cost the guest itself are start and run.
		rows = append([]row{a}, after.since(before, "link", "plan", "start", "run", "output")...)
		n := float64(len(whole))
		rows = append(rows, b,
			row{Name: "  processor time of it, the sandbox's, mean", Unit: "ms", Value: (to.sandbox - from.sandbox) / n, Samples: len(whole)},
			row{Name: "  processor time of it, the server's, mean", Unit: "ms", Value: (to.server - from.server) / n, Samples: len(whole)})
		return nil
	})
	return rows, err
}

// memory is what an idle sandbox is charged with.
func memory(ctx context.Context, s *server) (rows []row, err error) {
	err = s.with(ctx, func(id string) error {
		if _, err := s.run(ctx, id, "true"); err != nil {
			return err
		}
		if err := wait(ctx, 3*time.Second); err != nil { // until it is idle
			return err
		}
		u, err := s.Usage(ctx, id)
		if err != nil {
			return err
		}
		rows = []row{{Name: "idle sandbox, its guest included", Unit: "MiB", Value: float64(u.MemoryBytes) / (1 << 20), Samples: 1,
			Reference: "16–35 MB", Target: "12 MiB + the guest"}}
		return nil
	})
	return rows, err
}

// layer compares the writable layer, on disk, with memory.
func layer(ctx context.Context, s *server) (rows []row, err error) {
	err = s.with(ctx, func(id string) error {
		for _, at := range []struct{ name, path string }{{"write 400 MiB to the layer on disk", "/workspace/x"}, {"  the same to /dev/shm", "/dev/shm/x"}} {
			var took []float64
			for range 3 {
				out, err := s.run(ctx, id, "sh", "-c", "s=$(date +%s%N); head -c 419430400 /dev/zero > "+at.path+"; e=$(date +%s%N); rm "+at.path+"; echo $((e-s))")
				if err != nil {
					return err
				}
				ns, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
				if err != nil {
					return err
				}
				took = append(took, 419.4304/(ns/1e9))
			}
			rows = append(rows, median(at.name, "MB/s", took))
		}
		return nil
	})
	return rows, err
}

// many makes fifty sandboxes, one after the other and eight at a time, all of
// which must succeed and run a command.
func many(ctx context.Context, s *server) ([]row, error) {
	const n = 50
	var rows []row
	for _, workers := range []int{1, 8} {
		ids := make(chan string, n)
		work := make(chan struct{}, n)
		for range n {
			work <- struct{}{}
		}
		close(work)
		errs := make(chan error, workers)
		begin := time.Now()
		var group sync.WaitGroup
		for range workers {
			group.Go(func() {
				for range work {
					sb, err := s.Create(ctx, sandbox.CreateRequest{})
					if err == nil {
						ids <- string(sb.ID)
						_, err = s.run(ctx, string(sb.ID), "true")
					}
					if err != nil {
						errs <- err
						return
					}
				}
			})
		}
		group.Wait()
		took := time.Since(begin)
		close(ids)
		for id := range ids {
			if err := s.Remove(ctx, id); err != nil {
				return nil, err
			}
		}
		select {
		case err := <-errs:
			return nil, err
		default:
		}
		rows = append(rows, row{Name: fmt.Sprintf("%d sandboxes, %d at a time, all alive together", n, workers), Unit: "ms each", Value: ms(took) / n, Samples: 1})
	}
	return rows, nil
}

// cycles makes, uses and removes sandboxes; what they leave is counted by the
// tests, what they cost here.
func cycles(ctx context.Context, s *server) ([]row, error) {
	const n = 100
	begin := time.Now()
	for range n {
		if err := s.with(ctx, func(id string) error { _, err := s.run(ctx, id, "true"); return err }); err != nil {
			return nil, err
		}
	}
	return []row{{Name: "create, true, remove", Unit: "ms each", Value: ms(time.Since(begin)) / n, Samples: 1}}, nil
}

// wait returns after d, or with the context's error if that ends first.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
