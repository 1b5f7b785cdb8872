package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

func (p *program) logsCommand() *cobra.Command {
	var follow bool
	lines := -1
	cmd := &cobra.Command{
		Use:   "logs ID PROCESS",
		Short: "Print what a process wrote",
		Long: "Print the kept output of a process, by its id or name; with -f, follow it until it ends.\n" +
			"Interrupting this ends nothing in the sandbox.",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.completeProcess,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("tail") && lines < 0 {
				return usage("--tail takes 0 or more", "%d is no number of lines", lines)
			}
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			return p.logs(cmd.Context(), c, id, args[1], follow, lines)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the process ends")
	cmd.Flags().IntVarP(&lines, "tail", "n", -1, "only this many of the last lines that are there, of each output")
	return cmd
}

// logs prints a process's output. lines below 0 means all of them.
func (p *program) logs(ctx context.Context, c *client.Client, id, process string, follow bool, lines int) error {
	signalIgnoreBrokenPipe()
	events, err := c.Attach(ctx, id, process, sandbox.Offsets{})
	if err != nil {
		return err
	}
	defer events.Close()
	var out [2]*logOutput
	for i, w := range []io.Writer{p.out, p.err} {
		out[i] = &logOutput{w: w, lines: lines, held: lines >= 0}
	}
	for {
		event, err := events.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return releaseAll(out[:])
		case err != nil:
			return ended(ctx, err, "the process may live on: see berth ps")
		case event.Started != nil:
			out[0].begin(event.Started.Written.Stdout)
			out[1].begin(event.Started.Written.Stderr)
		case event.Missed > 0 && lines < 0:
			fmt.Fprintf(p.err, "berth: %s of %s are no longer kept\n", size(event.Missed), event.Stream)
		}
		if event.Stream != "" {
			if err := out[streamOf(event)].take(event); err != nil {
				return brokenPipe(err)
			}
		}
		if !follow && out[0].complete() && out[1].complete() {
			return releaseAll(out[:])
		}
	}
}

// releaseAll writes what is still kept.
func releaseAll(all []*logOutput) error {
	for _, o := range all {
		if err := o.release(); err != nil {
			return brokenPipe(err)
		}
	}
	return nil
}

func streamOf(e sandbox.Event) int {
	if e.Stream == sandbox.Stderr {
		return 1
	}
	return 0
}

// brokenPipe is the end of this program when its reader has gone.
func brokenPipe(err error) error {
	if errors.Is(err, unix.EPIPE) {
		return &exitError{code: exitBrokenPipe}
	}
	return err
}

// logOutput is one output of a process on its way to a writer.
type logOutput struct {
	w     io.Writer
	there int64 // bytes that there were at the beginning
	at    int64 // bytes that were seen
	lines int
	held  bool // what comes is kept, to give its last lines
	last  []byte
}

// begin says how many bytes there are already.
func (o *logOutput) begin(there int64) {
	o.there = there
	o.held = o.held && there > 0
}

// take passes an event's bytes on, or keeps them.
func (o *logOutput) take(e sandbox.Event) error {
	o.at = e.Offset + e.Missed + int64(len(e.Data))
	if !o.held {
		_, err := o.w.Write(e.Data)
		return err
	}
	o.last = append(o.last, e.Data...)
	if o.complete() {
		return o.release()
	}
	return nil
}

// complete reports whether all that was there has been seen.
func (o *logOutput) complete() bool { return o.at >= o.there }

// release writes the last lines of what was kept; from then on all passes.
func (o *logOutput) release() error {
	if !o.held {
		return nil
	}
	o.held = false
	_, err := o.w.Write(lastLines(o.last, o.lines))
	o.last = nil
	return err
}

// lastLines is the end of b that holds n lines; an unfinished one counts.
func lastLines(b []byte, n int) []byte {
	if n <= 0 {
		return nil
	}
	for i := len(b) - 1; i > 0; i-- {
		if b[i-1] != '\n' {
			continue
		}
		if n--; n == 0 {
			return b[i:]
		}
	}
	return b
}
