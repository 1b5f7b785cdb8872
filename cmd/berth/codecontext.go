package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

func (p *program) contextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Make, list, restart and remove the contexts that run code; berth run uses them",
	}
	of := func(use, short string, do func(ctx context.Context, c *client.Client, id, name string) error) *cobra.Command {
		return &cobra.Command{
			Use: use + " ID CONTEXT", Short: short, Args: cobra.ExactArgs(2), ValidArgsFunction: p.completeOneSandbox,
			RunE: func(cmd *cobra.Command, args []string) error {
				c, id, err := p.connectTo(args[0])
				if err != nil {
					return err
				}
				return do(cmd.Context(), c, id, args[1])
			},
		}
	}
	cmd.AddCommand(p.contextNewCommand(), p.contextLsCommand(),
		of("restart", "Give a context an empty kernel", func(ctx context.Context, c *client.Client, id, name string) error {
			_, err := c.RestartCodeContext(ctx, id, name)
			return err
		}),
		of("interrupt", "Interrupt what a context runs", func(ctx context.Context, c *client.Client, id, name string) error {
			return c.InterruptCodeContext(ctx, id, name)
		}),
		of("rm", "End a context and forget what it remembers", func(ctx context.Context, c *client.Client, id, name string) error {
			return c.RemoveCodeContext(ctx, id, name)
		}))
	return cmd
}

func (p *program) contextNewCommand() *cobra.Command {
	var o sandbox.CodeOptions
	var env []string
	cmd := &cobra.Command{
		Use: "new ID [NAME]", Short: "Make a context and print its id", Args: cobra.RangeArgs(1, 2), ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 2 {
				o.Name = args[1]
			}
			if o.Env, err = parseEnv(env); err != nil {
				return err
			}
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			made, err := c.CreateCodeContext(cmd.Context(), id, o)
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, made)
			}
			_, err = fmt.Fprintln(p.out, made.ID)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.Language, "lang", "l", "", "language; python if nothing is said")
	flags.StringVarP(&o.Cwd, "cwd", "w", "", "directory to run in")
	flags.StringArrayVarP(&env, "env", "e", nil, "environment variable NAME=VALUE, or NAME to pass on one's own")
	flags.StringVarP(&o.User, "user", "u", "", "user to run as")
	return cmd
}

func (p *program) contextLsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ls ID", Short: "List the contexts of a sandbox", Args: cobra.ExactArgs(1), ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			all, err := c.CodeContexts(cmd.Context(), id)
			if err != nil {
				return err
			}
			if p.json {
				if all == nil {
					all = []sandbox.CodeContext{}
				}
				return writeJSON(p.out, all)
			}
			t := newTable(p.out, "CONTEXT", "NAME", "LANGUAGE", "STATE", "QUEUED", "RUNS", "RESTARTS", "AGE", "FOLDER")
			for _, s := range all {
				t.row(s.ID, s.Name, s.Language, string(s.State), strconv.Itoa(s.Queued), strconv.FormatInt(s.Runs, 10),
					strconv.FormatInt(s.Restarts, 10), age(time.Since(s.Created)), s.Cwd)
			}
			return t.flush()
		},
	}
}
