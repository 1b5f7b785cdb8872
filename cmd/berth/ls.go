package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

func (p *program) lsCommand() *cobra.Command {
	var states, metadata, tags []string
	var template string
	var quiet bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sandboxes, newest first",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := sandbox.ListQuery{Template: template, Tags: tags, Limit: listPage}
			for _, s := range states {
				query.States = append(query.States, sandbox.State(s))
			}
			var err error
			if query.Metadata, err = parsePairs("metadata", metadata); err != nil {
				return err
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			all, err := listAll(cmd.Context(), c, query)
			if err != nil {
				return err
			}
			return p.printSandboxes(all, quiet)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&states, "state", nil, "only these states: "+joined(sandbox.States()))
	flags.StringVar(&template, "template", "", "only of this template")
	flags.StringArrayVar(&metadata, "metadata", nil, "only with this KEY=VALUE")
	flags.StringArrayVar(&tags, "tag", nil, "only with this tag; may be repeated")
	flags.BoolVarP(&quiet, "quiet", "q", false, "print ids alone")
	cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(strings.Split(joined(sandbox.States()), " "), cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("template", p.completeTemplates)
	return cmd
}

// listPage is how many sandboxes are asked for at once.
const listPage = 1000

// listAll follows the pages of a list to its end.
func listAll(ctx context.Context, c *client.Client, query sandbox.ListQuery) ([]sandbox.Sandbox, error) {
	all := []sandbox.Sandbox{} // an empty list is [] in JSON
	for {
		page, err := c.List(ctx, query)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Sandboxes...)
		if page.Next == "" || len(page.Sandboxes) == 0 {
			return all, nil
		}
		query.After = page.Next
	}
}

func (p *program) printSandboxes(all []sandbox.Sandbox, quiet bool) error {
	switch {
	case p.json:
		return writeJSON(p.out, all)
	case quiet:
		for _, s := range all {
			if _, err := fmt.Fprintln(p.out, s.ID); err != nil {
				return err
			}
		}
		return nil
	}
	columns := []string{"ID", "NAME", "STATE", "TEMPLATE", "CLASS", "CPU", "MEMORY", "AGE", "METADATA"}
	several := slices.ContainsFunc(all, func(s sandbox.Sandbox) bool { return s.Account != all[0].Account })
	if several { // as the operator sees them
		columns = append(columns, "ACCOUNT")
	}
	t := newTable(p.out, columns...)
	for _, s := range all {
		state := string(s.State)
		if s.Reason != "" {
			state += " (" + s.Reason + ")"
		}
		row := []string{string(s.ID), s.Name, state, s.Template, s.Class, cores(s.Limits.CPUMilli),
			size(s.Limits.MemoryBytes), age(time.Since(s.Created)), pairs(s.Metadata)}
		if several {
			row = append(row, s.Account)
		}
		t.row(row...)
	}
	return t.flush()
}

func joined[T ~string](list []T) string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = string(v)
	}
	return strings.Join(words, " ")
}
