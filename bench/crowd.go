package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/sandbox"
)

// How the cost of idle sandboxes is taken.
const (
	crowdFew   = 10
	crowdSize  = 50
	crowdAim   = 500
	crowdRest  = 150 * time.Second // until connections are closed and memory is given back
	crowdWatch = 60 * time.Second
)

// crowd is what the server itself costs while many sandboxes do nothing, each of which
// has run a command: its resident memory, its program's pages included, and its
// processor time. That of more sandboxes is reckoned from what one adds to some.
func crowd(ctx context.Context, s *server) ([]row, error) {
	ids, err := s.gather(ctx, crowdFew)
	if err != nil {
		return nil, err
	}
	few, calm, err := s.atRest(ctx)
	if err != nil {
		return nil, err
	}
	more, err := s.gather(ctx, crowdSize-crowdFew)
	if err != nil {
		return nil, err
	}
	many, busy, err := s.atRest(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range append(ids, more...) {
		if err := s.Remove(ctx, id); err != nil {
			return nil, err
		}
	}
	each, share := (many-few)/(crowdSize-crowdFew), max(0, busy-calm)/(crowdSize-crowdFew)
	return []row{
		{Name: fmt.Sprintf("the server with %d idle sandboxes", crowdFew), Unit: "MiB resident", Value: few, Samples: 1},
		{Name: fmt.Sprintf("  with %d", crowdSize), Unit: "MiB resident", Value: many, Samples: 1},
		{Name: fmt.Sprintf("  with %d, by what one adds", crowdAim), Unit: "MiB resident", Value: many + (crowdAim-crowdSize)*each, Samples: 1, Target: "≤ 150 MB"},
		{Name: fmt.Sprintf("the server's processor time, %d idle sandboxes", crowdSize), Unit: "% of a core", Value: busy, Samples: 1},
		{Name: fmt.Sprintf("  %d, by what one adds", crowdAim), Unit: "% of a core", Value: busy + (crowdAim-crowdSize)*share, Samples: 1, Target: "≤ 1 %"},
	}, nil
}

// gather makes sandboxes that have run a command.
func (s *server) gather(ctx context.Context, n int) ([]string, error) {
	ids := make([]string, n)
	group, all := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i := range ids {
		group.Go(func() error {
			sb, err := s.Create(all, sandbox.CreateRequest{})
			if err != nil {
				return err
			}
			ids[i] = string(sb.ID)
			_, err = s.run(all, ids[i], "true")
			return err
		})
	}
	return ids, group.Wait()
}

// atRest is what the server holds, in MiB, and uses, in hundredths of a core, once it
// has been left alone.
func (s *server) atRest(ctx context.Context) (resident, share float64, err error) {
	if err := wait(ctx, crowdRest); err != nil {
		return 0, 0, err
	}
	before, err := s.processorTime()
	if err == nil {
		err = wait(ctx, crowdWatch)
	}
	if err != nil {
		return 0, 0, err
	}
	after, err := s.processorTime()
	if err != nil {
		return 0, 0, err
	}
	kib, err := s.procField("status", "VmRSS:")
	return kib / 1024, 100 * (after - before).Seconds() / crowdWatch.Seconds(), err
}

// procField is the number behind a name in a file of the server's process.
func (s *server) procField(file, name string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.cmd.Process.Pid, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			return strconv.ParseFloat(f[1], 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, name)
}

// processorTime is what the server's process has used, without those that it started.
func (s *server) processorTime() (time.Duration, error) {
	var sum time.Duration
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for _, t := range tasks {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", s.cmd.Process.Pid, t.Name()))
		if err != nil {
			continue // it has ended
		}
		ns, _, _ := strings.Cut(string(b), " ")
		n, err := strconv.ParseInt(ns, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n)
	}
	return sum, nil
}
