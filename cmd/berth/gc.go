package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func (p *program) gcCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove what nothing needs from the server's disk",
		Long: "Remove what nothing needs: machines without a record, guest programs and root images\n" +
			"that no sandbox, snapshot or template uses, halves of files, and what snapshots have\n" +
			"left. The server does so by itself every hour. Nothing that is in use goes.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.collect(cmd.Context(), dry)
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would go, and remove nothing")
	return cmd
}

func (p *program) collect(ctx context.Context, dry bool) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	g, err := c.Collect(ctx, dry)
	if err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, g)
	}
	if len(g.Items) == 0 {
		fmt.Fprintln(p.err, "there is no garbage")
		return nil
	}
	t := newTable(p.out, "KIND", "NAME", "SIZE")
	for _, i := range g.Items {
		t.row(string(i.Kind), i.Name, size(i.Bytes))
	}
	if err := t.flush(); err != nil {
		return err
	}
	what := "removed"
	if dry {
		what = "would remove"
	}
	fmt.Fprintf(p.err, "%s %d things, %s\n", what, len(g.Items), size(g.Bytes))
	return nil
}
