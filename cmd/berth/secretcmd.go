package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-dev/berth/sandbox"
)

func (p *program) secretCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Keep secrets that sandboxes use and never hold",
		Long: "Keep secrets that sandboxes use and never hold. The inject rules of a policy name\n" +
			"them; the gateway puts them into requests. No command prints a value.",
	}
	cmd.AddCommand(p.secretSet(), p.secretLs(), p.secretRm())
	return cmd
}

func (p *program) secretSet() *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a secret, or give it a new value, from standard input",
		Long: "Make a secret, or give it a new value, from standard input: never from the command\n" +
			"line, which others can see. A terminal is asked without showing what is typed. One\n" +
			"line break at the end is not part of the value, unless --raw says so.",
		Example: "  berth secret set github < token.txt",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.setSecret(cmd.Context(), args[0], raw)
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "take every byte of standard input")
	return cmd
}

func (p *program) setSecret(ctx context.Context, name string, raw bool) error {
	if err := sandbox.CheckSecretName(name); err != nil {
		return err
	}
	value, err := p.readSecret(name, "berth secret set "+name)
	if err != nil {
		return err
	}
	defer value.Wipe()
	if !raw {
		value = bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
	}
	if err := sandbox.CheckSecretValue(value); err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	s, err := c.SetSecret(ctx, name, value)
	if err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, s)
	}
	return nil
}

// readSecret reads a value from a terminal that does not show it, or from a pipe
// or file. usage is how the command is called.
func (p *program) readSecret(name, usage string) (sandbox.SecretValue, error) {
	const op = "read secret"
	if f, ok := p.in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(p.err, "value of %s: ", name)
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(p.err)
		if err != nil {
			return nil, &sandbox.Error{Op: op, Kind: sandbox.Invalid, Err: err}
		}
		return b, nil
	}
	b, err := io.ReadAll(io.LimitReader(p.in, sandbox.MaxSecretValue+3)) // a value that is too long, and a line break
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Invalid, Err: err}
	}
	if len(b) == 0 {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Invalid, Err: errors.New("standard input is empty"), Hint: usage + " < FILE"}
	}
	return b, nil
}

func (p *program) secretLs() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List secrets, without their values",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			all, err := c.Secrets(cmd.Context())
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, all)
			}
			t := newTable(p.out, "NAME", "VERSION", "CHANGED")
			for _, s := range all {
				t.row(s.Name, strconv.FormatInt(s.Version, 10), age(time.Since(s.Updated))+" ago")
			}
			return t.flush()
		},
	}
}

func (p *program) secretRm() *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"remove"},
		Short:   "Forget secrets: what needs them is refused from then on",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				if err := sandbox.CheckSecretName(name); err != nil {
					return err
				}
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := c.RemoveSecret(cmd.Context(), name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// policyGrants are the verbs of a policy on the secrets that it names.
func (p *program) policyGrants() []*cobra.Command {
	grants := &cobra.Command{
		Use:               "grants ID",
		Short:             "List which secrets a sandbox may have used for it",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.listGrants(cmd.Context(), args[0])
		},
	}
	return []*cobra.Command{grants, p.policyGrant("revoke", true), p.policyGrant("grant", false)}
}

func (p *program) listGrants(ctx context.Context, id string) error {
	c, id, err := p.connectTo(id)
	if err != nil {
		return err
	}
	all, err := c.Grants(ctx, id)
	if err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, all)
	}
	t := newTable(p.out, "SECRET", "GRANT", "STATE")
	for _, g := range all {
		state := "granted"
		if g.Revoked {
			state = "revoked"
		}
		t.row(g.Secret, g.ID, state)
	}
	return t.flush()
}

func (p *program) policyGrant(verb string, revoke bool) *cobra.Command {
	short := "Give back secrets that were taken away"
	if revoke {
		short = "Take secrets away from one sandbox, at once; its forks keep theirs"
	}
	return &cobra.Command{
		Use:               verb + " ID SECRET...",
		Short:             short,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			change := c.RestoreGrant
			if revoke {
				change = c.RevokeGrant
			}
			for _, name := range args[1:] {
				if err := change(cmd.Context(), id, name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
