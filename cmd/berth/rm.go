package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

func (p *program) rmCommand() *cobra.Command {
	var all, force bool
	cmd := &cobra.Command{
		Use:     "rm ID... | --all",
		Aliases: []string{"remove"},
		Short:   "Remove sandboxes with everything in them",
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usage("give the ids of sandboxes, or --all", "need either ids or --all")
			}
			return nil
		},
		ValidArgsFunction: p.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			ids, err := p.targets(cmd.Context(), c, args, all)
			if err != nil {
				return err
			}
			return removeAll(cmd.Context(), c, ids, force)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every sandbox of the server")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "one that does not exist is no error")
	return cmd
}

// targets checks every id before anything is removed.
func (p *program) targets(ctx context.Context, c *client.Client, args []string, all bool) ([]string, error) {
	if all {
		list, err := listAll(ctx, c, sandbox.ListQuery{Limit: listPage})
		ids := make([]string, len(list))
		for i, s := range list {
			ids[i] = string(s.ID)
		}
		return ids, err
	}
	ids := make([]string, len(args))
	for i, a := range args {
		if err := checkID(a); err != nil {
			return nil, err
		}
		ids[i] = a
	}
	return ids, nil
}

// removeAll removes what it can and returns every error met.
func removeAll(ctx context.Context, c *client.Client, ids []string, force bool) error {
	var failures []error
	for _, id := range ids {
		err := c.Remove(ctx, id)
		if force && sandbox.KindOf(err) == sandbox.NotFound {
			continue
		}
		if err != nil {
			failures = append(failures, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failures...)
}
