package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

type forkFlags struct {
	count                 int
	names, tags, metadata []string
}

func (p *program) forkCommand() *cobra.Command {
	var f forkFlags
	cmd := &cobra.Command{
		Use:   "fork ID",
		Short: "Make copies of a sandbox as it is now, and print their ids",
		Long: "Make copies of a sandbox as it is at this moment: memory, processes, terminals and\n" +
			"files. It runs on with everything attached to it. A paused or stopped one is\n" +
			"copied as it lies, without waking.\n\n" +
			"One id a line is printed. Why others could not be made is reported on standard\n" +
			"error, and the exit code says so.",
		Example:           "  berth fork box -n 3 --name try-1,try-2,try-3",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.fork(cmd.Context(), args[0], &f)
		},
	}
	flags := cmd.Flags()
	flags.IntVarP(&f.count, "count", "n", 1, fmt.Sprintf("how many copies, 1 to %d", sandbox.MaxForks))
	flags.StringSliceVar(&f.names, "name", nil, "names of the copies, in their order")
	flags.StringArrayVar(&f.tags, "tag", nil, "tag of the copies, in place of the sandbox's own")
	flags.StringArrayVar(&f.metadata, "metadata", nil, "KEY=VALUE kept with the copies, beside the sandbox's own")
	return cmd
}

func (p *program) fork(ctx context.Context, id string, f *forkFlags) error {
	if err := checkID(id); err != nil {
		return err
	}
	metadata, err := parsePairs("metadata", f.metadata)
	if err != nil {
		return err
	}
	req := sandbox.ForkRequest{Count: f.count, Names: f.names, Tags: f.tags, Metadata: map[string]*string{}}
	for k, v := range metadata {
		req.Metadata[k] = &v
	}
	if err := req.Check(); err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	made, err := c.Fork(ctx, id, req)
	if err != nil {
		return err
	}
	if p.json {
		err = writeJSON(p.out, wire.ForkOf(made, detailOf))
	}
	failures := []error{err}
	for _, child := range made.Children {
		if child.Err != nil {
			failures = append(failures, child.Err)
		} else if !p.json {
			_, err := fmt.Fprintln(p.out, child.Sandbox.ID)
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// detailOf writes down an error that the server has sent.
func detailOf(err error) wire.ErrorDetail {
	return wire.ErrorDetail{Code: sandbox.KindOf(err), Message: err.Error(), Hint: sandbox.HintOf(err)}
}
