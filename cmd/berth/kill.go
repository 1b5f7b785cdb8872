package main

import (
	"github.com/spf13/cobra"
)

func (p *program) killCommand() *cobra.Command {
	var name string
	var remove bool
	cmd := &cobra.Command{
		Use:               "kill ID PROCESS",
		Short:             "Send a signal to a process and its children",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.completeProcess,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			if remove {
				_, err := c.RemoveProcess(cmd.Context(), id, args[1])
				return err
			}
			return c.Signal(cmd.Context(), id, args[1], name)
		},
	}
	cmd.Flags().StringVarP(&name, "signal", "s", "SIGTERM", "signal to send, such as SIGINT or 9")
	cmd.Flags().BoolVar(&remove, "rm", false, "end it with SIGKILL, if it lives, and forget its output")
	cmd.MarkFlagsMutuallyExclusive("signal", "rm")
	return cmd
}
