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
	return &cobra.Command{
		Use:   "logs ID PROCESS",
		Short: "Print what a process wrote, and follow it until it ends",
		Long: "Print the kept output of a process, by its id or name, and follow it until it ends.\n" +
			"Interrupting this ends nothing in the sandbox.",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.completeProcess,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			return p.logs(cmd.Context(), c, id, args[1])
		},
	}
}

func (p *program) logs(ctx context.Context, c *client.Client, id string, process string) error {
	signalIgnoreBrokenPipe()
	events, err := c.Attach(ctx, id, process, sandbox.Offsets{})
	if err != nil {
		return err
	}
	defer events.Close()
	for {
		event, err := events.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return ended(ctx, err, "the process may live on: see berth ps")
		}
		if event.Missed > 0 {
			fmt.Fprintf(p.err, "berth: %s of %s are no longer kept\n", size(event.Missed), event.Stream)
		}
		w := p.out
		if event.Stream == sandbox.Stderr {
			w = p.err
		}
		if _, err := w.Write(event.Data); errors.Is(err, unix.EPIPE) {
			return &exitError{code: exitBrokenPipe}
		} else if err != nil {
			return err
		}
	}
}
