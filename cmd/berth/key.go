package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

func (p *program) keyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "Make, list, rename and remove the keys of an account", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(p.keyCreateCommand(), p.keyLsCommand(), p.keyRenameCommand(), p.keyRmCommand())
	return cmd
}

func (p *program) keyCreateCommand() *cobra.Command {
	var scopes []string
	var expires time.Duration
	var req sandbox.KeyRequest
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a key and print it, this once",
		Long: "Make a key of the account, and print it on standard output. It is told this once:\n" +
			"what the server keeps opens nothing.\n\n" +
			"Scopes: read sees; exec works in the sandboxes that are there; admin makes,\n" +
			"changes and removes. Each includes those before it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if expires < 0 || expires > 0 && expires < time.Second {
				return usage("leave --expires out for a key that lasts", "a key cannot expire in %v", expires)
			}
			req.ExpiresSeconds = int64(expires / time.Second)
			for _, s := range scopes {
				req.Scopes = append(req.Scopes, sandbox.Scope(s))
			}
			if err := req.Check(); err != nil {
				return err
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			k, err := c.CreateKey(cmd.Context(), req)
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, k)
			}
			_, err = fmt.Fprintln(p.out, k.Secret)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&scopes, "scope", nil, "what it may do: "+joined(sandbox.Scopes())+" (default admin)")
	flags.DurationVar(&expires, "expires", 0, "how long it opens something, such as 720h (default for ever)")
	flags.StringVar(&req.Label, "name", "", "what to call it")
	cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions([]string{"read", "exec", "admin"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (p *program) keyLsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the keys of the account",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			all, err := c.Keys(cmd.Context())
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, all)
			}
			t := newTable(p.out, "ID", "NAME", "ENDS IN", "SCOPES", "AGE", "EXPIRES", "LAST USED")
			for _, k := range all {
				t.row(k.ID, printable(k.Label), printable(k.Ending), joined(k.Scopes), age(time.Since(k.Created)), until(k.Expires, "never"), since(k.LastUsed, "never"))
			}
			return t.flush()
		},
	}
}

func (p *program) keyRenameCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rename KEY-ID NAME",
		Short: "Call a key otherwise",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			k, err := c.UpdateKey(cmd.Context(), args[0], sandbox.KeyUpdate{Label: args[1]})
			if err != nil || !p.json {
				return err
			}
			return writeJSON(p.out, k)
		},
	}
}

func (p *program) keyRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm KEY-ID…",
		Short: "Remove keys of the account; requests under way with them are cut",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := c.RemoveKey(cmd.Context(), id); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// until is the time that is left up to a moment; a zero one is never.
func until(t time.Time, never string) string {
	switch left := time.Until(t); {
	case t.IsZero():
		return never
	case left <= 0:
		return "expired"
	default:
		return "in " + age(left)
	}
}

// since is the time that has passed since a moment; a zero one is never.
func since(t time.Time, never string) string {
	if t.IsZero() {
		return never
	}
	return age(time.Since(t)) + " ago"
}
