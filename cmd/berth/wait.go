package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

// waitFlags is what "berth wait" waits for.
type waitFlags struct {
	line    sandbox.LineWait
	port    sandbox.PortWait
	timeout time.Duration
}

func (p *program) waitCommand() *cobra.Command {
	var f waitFlags
	cmd := &cobra.Command{
		Use:   "wait ID PROCESS",
		Short: "Wait until a process ends, writes a line, or a port answers",
		Long: "Wait until a process has ended, and exit as it did. With --line or --regexp, wait until\n" +
			"it has written such a line, and print that; with --port, until that port of the sandbox\n" +
			"answers, and print its address. A process that ends before is an error.",
		Example: "  berth wait $ID server --port 8000 --path /health --timeout 30s\n" +
			"  berth wait $ID build --regexp '^(done|failed)'",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.completeProcess,
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := cmd.Flags()
			line, port := flags.Changed("line") || flags.Changed("regexp"), flags.Changed("port")
			if line && port || !port && (flags.Changed("path") || flags.Changed("status")) {
				return usage("give --line, --regexp or --port", "these flags do not go together")
			}
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			f.line.Timeout, f.port.Timeout = f.timeout, f.timeout
			switch {
			case line:
				return p.waitLine(cmd.Context(), c, id, args[1], f.line)
			case port:
				return p.waitPort(cmd.Context(), c, id, args[1], f.port)
			}
			return p.waitExit(cmd.Context(), c, id, args[1], f.timeout)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.line.Text, "line", "", "a part of the line")
	flags.StringVar(&f.line.Regexp, "regexp", "", "an expression (RE2) that the line matches")
	flags.IntVar(&f.port.Port, "port", 0, "a port of the sandbox")
	flags.StringVar(&f.port.Path, "path", "", "what to ask the port for with HTTP, such as /health")
	flags.IntVar(&f.port.Status, "status", 0, "the status that the answer has; otherwise 200 to 399")
	flags.DurationVar(&f.timeout, "timeout", 0, "give up after this time, such as 30s")
	return cmd
}

func (p *program) waitLine(ctx context.Context, c *client.Client, id, process string, w sandbox.LineWait) error {
	if err := w.Check(); err != nil {
		return err
	}
	line, err := c.WaitLine(ctx, id, process, w)
	if err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, line)
	}
	_, err = fmt.Fprintln(p.out, printable(line.Text))
	return err
}

func (p *program) waitPort(ctx context.Context, c *client.Client, id, process string, w sandbox.PortWait) error {
	if err := w.Check(); err != nil {
		return err
	}
	answer, err := c.WaitPort(ctx, id, process, w)
	if err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, answer)
	}
	_, err = fmt.Fprintln(p.out, printable(answer.Address))
	return err
}

// waitExit ends as the process ended.
func (p *program) waitExit(ctx context.Context, c *client.Client, id, process string, timeout time.Duration) error {
	bound := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		bound, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	exit, err := c.WaitProcess(bound, id, process)
	switch {
	case err != nil && ctx.Err() == nil && bound.Err() != nil:
		return sandbox.Errorf("wait", sandbox.Timeout, "the process still runs after %v", timeout)
	case err != nil:
		return err
	case p.json:
		return writeJSON(p.out, exit)
	}
	return exitOf(&exit)
}
