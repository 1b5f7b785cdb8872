package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

func (p *program) eventsCommand() *cobra.Command {
	var q sandbox.ChangeQuery
	var types []string
	var follow bool
	cmd := &cobra.Command{
		Use:   "events [ID]",
		Short: "Print what became of sandboxes",
		Long: "Print every transition that is still on record, oldest first. With --follow those\n" +
			"to come are printed too, until it is interrupted; a stream that breaks is taken up\n" +
			"again where it was.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				q.Sandbox = args[0]
				if err := checkID(q.Sandbox); err != nil {
					return err
				}
			}
			for _, t := range types {
				q.Types = append(q.Types, sandbox.ChangeType(t))
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			if follow {
				return p.followEvents(cmd.Context(), c, q)
			}
			return p.listEvents(cmd.Context(), c, q)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&follow, "follow", "f", false, "go on with those to come")
	flags.StringSliceVar(&types, "type", nil, "only these types: "+joined(sandbox.ChangeTypes()))
	flags.StringVar(&q.After, "after", "", "only those after this cursor, from --json; latest: only those to come")
	return cmd
}

func (p *program) listEvents(ctx context.Context, c *client.Client, q sandbox.ChangeQuery) error {
	q.Limit = sandbox.MaxPage
	return listLog(q.After, q.Limit, p.printEvent, func(after string) ([]sandbox.Change, string, error) {
		q.After = after
		page, err := c.Changes(ctx, q)
		return page.Events, page.Next, err
	})
}

func (p *program) followEvents(ctx context.Context, c *client.Client, q sandbox.ChangeQuery) error {
	begin := func(after string) (logEntries[sandbox.Change], error) {
		q.After = after
		return c.FollowChanges(ctx, q)
	}
	return followLog(ctx, q.After, begin, func(e sandbox.Change) (string, error) { return e.Cursor, p.printEvent(e) })
}

// printEvent prints one event: a line, or an object on a line.
func (p *program) printEvent(e sandbox.Change) error {
	if p.json {
		return writeJSON(p.out, e)
	}
	_, err := fmt.Fprintln(p.out, eventLine(e))
	return err
}

// eventLine is a change for people.
func eventLine(c sandbox.Change) string {
	line := fmt.Sprintf("%s  %s  %-8s", c.Time.Local().Format("2006-01-02 15:04:05"), c.Sandbox, c.Type)
	if c.Port != 0 {
		line += " " + strconv.Itoa(c.Port)
	}
	if c.Name != "" {
		line += "  " + c.Name
	}
	if c.Reason != "" {
		line += "  (" + printable(c.Reason) + ")"
	}
	return line
}
