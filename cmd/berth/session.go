package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

func (p *program) sessionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "List, cancel and close shell sessions; exec --session opens them",
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "ls ID", Short: "List the shell sessions of a sandbox", Args: cobra.ExactArgs(1), ValidArgsFunction: p.completeOneSandbox,
			RunE: func(cmd *cobra.Command, args []string) error {
				c, id, err := p.connectTo(args[0])
				if err != nil {
					return err
				}
				all, err := c.Sessions(cmd.Context(), id)
				if err != nil {
					return err
				}
				return p.printSessions(all)
			},
		},
		&cobra.Command{
			Use: "cancel ID NAME", Short: "End a session's command and drop those that wait", Args: cobra.ExactArgs(2), ValidArgsFunction: p.completeOneSandbox,
			RunE: func(cmd *cobra.Command, args []string) error {
				c, id, err := p.connectTo(args[0])
				if err != nil {
					return err
				}
				_, err = c.CancelSession(cmd.Context(), id, args[1], "")
				return err
			},
		},
		&cobra.Command{
			Use: "rm ID NAME", Short: "Close a session and end all that it left running", Args: cobra.ExactArgs(2), ValidArgsFunction: p.completeOneSandbox,
			RunE: func(cmd *cobra.Command, args []string) error {
				c, id, err := p.connectTo(args[0])
				if err != nil {
					return err
				}
				return c.CloseSession(cmd.Context(), id, args[1])
			},
		})
	return cmd
}

func (p *program) printSessions(all []sandbox.Session) error {
	if p.json {
		if all == nil {
			all = []sandbox.Session{}
		}
		return writeJSON(p.out, all)
	}
	t := newTable(p.out, "SESSION", "USER", "RUNNING", "QUEUED", "COMMANDS", "RESTARTS", "AGE", "FOLDER")
	for _, s := range all {
		t.row(s.Name, s.User, s.Running, strconv.Itoa(s.Queued), strconv.FormatInt(s.Commands, 10),
			strconv.FormatInt(s.Restarts, 10), age(time.Since(s.Created)), s.Cwd)
	}
	return t.flush()
}
