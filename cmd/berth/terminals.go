package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

func (p *program) terminalsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "terminals",
		Aliases: []string{"terminal"},
		Short:   "List and close terminals; shell opens them and comes back to them",
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "ls ID", Short: "List the terminals of a sandbox", Args: cobra.ExactArgs(1), ValidArgsFunction: p.completeOneSandbox,
			RunE: func(cmd *cobra.Command, args []string) error {
				c, id, err := p.connectTo(args[0])
				if err != nil {
					return err
				}
				all, err := c.Terminals(cmd.Context(), id)
				if err != nil {
					return err
				}
				return p.printTerminals(all)
			},
		},
		&cobra.Command{
			Use: "rm ID NAME", Short: "Close a terminal and end what runs in it", Args: cobra.ExactArgs(2), ValidArgsFunction: p.completeOneSandbox,
			RunE: func(cmd *cobra.Command, args []string) error {
				c, id, err := p.connectTo(args[0])
				if err != nil {
					return err
				}
				return c.CloseTerminal(cmd.Context(), id, args[1])
			},
		})
	return cmd
}

func (p *program) printTerminals(all []sandbox.Terminal) error {
	if p.json {
		if all == nil {
			all = []sandbox.Terminal{}
		}
		return writeJSON(p.out, all)
	}
	t := newTable(p.out, "TERMINAL", "NAME", "PID", "USER", "STATE", "SIZE", "CLIENTS", "AGE", "COMMAND", "TITLE")
	for _, one := range all {
		t.row(one.ID, one.Name, strconv.Itoa(one.PID), one.User, processState(sandbox.Process{Exit: one.Exit}),
			strconv.Itoa(one.Cols)+"x"+strconv.Itoa(one.Rows), strconv.Itoa(one.Clients), age(time.Since(one.Started)),
			shortened(strings.Join(one.Argv, " "), 40), shortened(one.Title, 40))
	}
	return t.flush()
}
