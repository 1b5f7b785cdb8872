package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

// change is a verb on whole sandboxes.
type change func(*client.Client, context.Context, string) (sandbox.Sandbox, error)

func (p *program) pauseCommand() *cobra.Command {
	return p.changeCommand("pause", "Keep everything of sandboxes, and use no memory",
		"Keep memory, processes, terminals and files, and free the memory. The next call\nthat needs a sandbox wakes it.", (*client.Client).Pause)
}

func (p *program) resumeCommand() *cobra.Command {
	return p.changeCommand("resume", "Bring paused sandboxes back as they were", "", (*client.Client).Resume)
}

func (p *program) stopCommand() *cobra.Command {
	return p.changeCommand("stop", "Keep the files of sandboxes alone",
		"Keep the files alone: processes end as when the power goes. The next call that\nneeds a sandbox boots it again.", (*client.Client).Stop)
}

func (p *program) startCommand() *cobra.Command {
	return p.changeCommand("start", "Make stopped or paused sandboxes run", "", (*client.Client).Start)
}

func (p *program) changeCommand(name, short, long string, verb change) *cobra.Command {
	return &cobra.Command{
		Use:               name + " ID...",
		Short:             short,
		Long:              long,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: p.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.changeAll(cmd.Context(), args, verb)
		},
	}
}

// changeAll changes what it can and returns every error met. Like rm it prints
// nothing but, when asked, the objects.
func (p *program) changeAll(ctx context.Context, ids []string, verb change) error {
	for _, id := range ids {
		if err := checkID(id); err != nil {
			return err
		}
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	var failures []error
	for _, id := range ids {
		s, err := verb(c, ctx, id)
		if err == nil && p.json {
			err = writeJSON(p.out, s)
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
