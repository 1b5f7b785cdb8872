package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

const (
	topPause  = time.Second // between the two looks that a share of time is taken from
	topAtOnce = 16          // sandboxes that are asked at once
)

// topRow is what one sandbox uses.
type topRow struct {
	ID    string        `json:"id"`
	Name  string        `json:"name,omitempty"`
	Usage sandbox.Usage `json:"usage"`
	CPU   float64       `json:"cpu_percent"` // of one core, since the look before

	limit int64 // of memory; 0 if not known
	when  time.Time
}

func (p *program) topCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "top [ID...]",
		Short: "Show what running sandboxes use",
		Long: "Show what sandboxes use: of processor time over one second, of memory and of disk.\n" +
			"Without ids, all that run; none is woken for it.",
		ValidArgsFunction: p.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, a := range args {
				if err := checkID(a); err != nil {
					return err
				}
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			return p.top(cmd.Context(), c, args, watch)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every second, until interrupted")
	return cmd
}

func (p *program) top(ctx context.Context, c *client.Client, ids []string, watch bool) error {
	before, err := lookAll(ctx, c, ids, nil)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(topPause):
		}
		rows, err := lookAll(ctx, c, ids, before)
		if err != nil {
			return err
		}
		if watch && !p.json {
			fmt.Fprint(p.out, "\x1b[H\x1b[2J")
		}
		if err := p.printTop(rows); err != nil || !watch {
			return err
		}
		before = rows
	}
}

// lookAll asks what each sandbox uses. One that was listed and runs no more is
// left out; one that was named is an error.
func lookAll(ctx context.Context, c *client.Client, ids []string, before []topRow) ([]topRow, error) {
	boxes, err := topBoxes(ctx, c, ids)
	if err != nil {
		return nil, err
	}
	rows, errs := make([]topRow, len(boxes)), make([]error, len(boxes))
	turn := make(chan struct{}, topAtOnce)
	var wg sync.WaitGroup
	for i, s := range boxes {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			rows[i], errs[i] = look(ctx, c, s, before)
		})
	}
	wg.Wait()
	var shown []topRow
	for i, err := range errs {
		kind := sandbox.KindOf(err)
		if len(ids) == 0 && (kind == sandbox.NotFound || kind == sandbox.Conflict) {
			errs[i] = nil
		} else if err == nil {
			shown = append(shown, rows[i])
		}
	}
	return shown, errors.Join(errs...)
}

// topBoxes are the sandboxes that were named, or all that run.
func topBoxes(ctx context.Context, c *client.Client, ids []string) ([]sandbox.Sandbox, error) {
	if len(ids) == 0 {
		return listAll(ctx, c, sandbox.ListQuery{States: []sandbox.State{sandbox.Running}, Limit: listPage})
	}
	boxes := make([]sandbox.Sandbox, len(ids))
	for i, id := range ids {
		s, err := c.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		boxes[i] = s
	}
	return boxes, nil
}

func look(ctx context.Context, c *client.Client, s sandbox.Sandbox, before []topRow) (topRow, error) {
	id := string(s.ID)
	u, err := c.Usage(ctx, id)
	row := topRow{ID: id, Name: s.Name, Usage: u, limit: s.Limits.MemoryBytes, when: time.Now()}
	for _, b := range before {
		if span := row.when.Sub(b.when); b.ID == id && span > 0 {
			row.CPU = max(0, float64(u.CPUMillis-b.Usage.CPUMillis)/float64(span.Milliseconds()+1)*100)
		}
	}
	return row, err
}

func (p *program) printTop(rows []topRow) error {
	if p.json {
		if rows == nil {
			rows = []topRow{}
		}
		return writeJSON(p.out, rows)
	}
	t := newTable(p.out, "ID", "NAME", "CPU%", "CPU TIME", "MEMORY", "LIMIT", "DISK", "PROCESSES")
	for _, r := range rows {
		t.row(r.ID, r.Name, strconv.FormatFloat(r.CPU, 'f', 1, 64), (time.Duration(r.Usage.CPUMillis) * time.Millisecond).Round(10*time.Millisecond).String(),
			size(r.Usage.MemoryBytes), size(r.limit), size(r.Usage.DiskBytes), strconv.Itoa(r.Usage.Processes))
	}
	return t.flush()
}
