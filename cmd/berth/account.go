package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

func (p *program) accountCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "account",
		Short: "Make, list, bound and remove accounts",
		Long: "An account is a team: what it has, no other sees. With the operator's key, --account\n" +
			"makes every verb act for one.",
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.accountShowCommand(), p.accountCreateCommand(), p.accountLsCommand(), p.accountRmCommand(),
		p.accountQuotaCommand(), p.accountTemporaryCommand())
	return cmd
}

func (p *program) accountCreateCommand() *cobra.Command {
	var req sandbox.AccountRequest
	var q quotaFlags
	cmd := &cobra.Command{
		Use:   "create ACCOUNT",
		Short: "Make an account",
		Long: "Make an account. Its id is never used again, also once the account is removed.\n" +
			"Bounds that are not given are as the server's configuration has them.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.ID = args[0]
			var err error
			if req.Quota, err = q.update(cmd); err != nil {
				return err
			}
			if err := req.Check(); err != nil {
				return err
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			a, err := c.CreateAccount(cmd.Context(), req)
			if err != nil {
				return err
			}
			return p.printAccount(a, func() error { _, err := fmt.Fprintln(p.out, a.ID); return err })
		},
	}
	cmd.Flags().StringVar(&req.Label, "name", "", "what to call it, for people")
	q.add(cmd)
	return cmd
}

func (p *program) accountLsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the accounts",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			all, err := c.Accounts(cmd.Context())
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, all)
			}
			t := newTable(p.out, "ACCOUNT", "NAME", "STATE", "AGE", "EXPIRES")
			for _, a := range all {
				t.row(a.ID, printable(a.Label), string(a.State), age(time.Since(a.Created)), until(a.Expires, "never"))
			}
			return t.flush()
		},
	}
}

func (p *program) accountRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm ACCOUNT",
		Short: "Remove an account with all it has",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			return c.RemoveAccount(cmd.Context(), args[0])
		},
	}
}

func (p *program) accountShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show [ACCOUNT]",
		Short: "Show what an account uses, and may use",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			a, err := c.Account(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			return p.printAccount(a, func() error { return p.printQuota(a) })
		},
	}
}

func (p *program) accountQuotaCommand() *cobra.Command {
	var q quotaFlags
	cmd := &cobra.Command{
		Use:   "quota ACCOUNT",
		Short: "Change what an account may use, and show it",
		Long:  "Change the bounds that are given; 0 takes one away. What the account uses already\nstays. Without any, only show them.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := q.update(cmd)
			if err != nil {
				return err
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			if u != (sandbox.QuotaUpdate{}) {
				if _, err := c.SetQuota(cmd.Context(), args[0], u); err != nil {
					return err
				}
			}
			a, err := c.Account(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return p.printAccount(a, func() error { return p.printQuota(a) })
		},
	}
	q.add(cmd)
	return cmd
}

func (p *program) accountTemporaryCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "temporary",
		Short: "Make a temporary account, without a key",
		Long: "Make an account that lasts an hour or so, where the server allows it. The key is\n" +
			"printed on standard output, the link with which a person keeps the account on\n" +
			"standard error. Work that the server asks for is done first.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := client.New(p.url, "")
			ch, err := c.Challenge(cmd.Context())
			if err != nil {
				return err
			}
			var req sandbox.TemporaryRequest
			if ch.Bits > 0 {
				req.Challenge = ch.Challenge
				if req.Solution, err = ch.Solve(cmd.Context()); err != nil {
					return err
				}
			}
			t, err := c.MakeTemporary(cmd.Context(), req)
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, t)
			}
			fmt.Fprintf(p.err, "berth: account %s is removed %s with all it has, unless somebody keeps it: %s\n",
				t.Account.ID, until(t.Account.Expires, "never"), printable(t.ClaimURL))
			_, err = fmt.Fprintln(p.out, t.Key.Secret)
			return err
		},
	}
}

// printAccount prints an account as JSON, or as text has it.
func (p *program) printAccount(a sandbox.Account, text func() error) error {
	if p.json {
		return writeJSON(p.out, a)
	}
	return text()
}

func (p *program) printQuota(a sandbox.Account) error {
	used := sandbox.Quota{}
	if a.Used != nil {
		used = *a.Used
	}
	t := newTable(p.out, "ACCOUNT "+a.ID, "USED", "ALLOWED")
	row := func(name string, used, most int64, show func(int64) string) {
		allowed := "any"
		if most > 0 {
			allowed = show(most)
		}
		t.row(name, show(used), allowed)
	}
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	row("sandboxes that run", used.Sandboxes, a.Quota.Sandboxes, count)
	row("their cores", used.CPUMilli, a.Quota.CPUMilli, cores)
	row("their memory", used.MemoryBytes, a.Quota.MemoryBytes, size)
	row("disk of all", used.DiskBytes, a.Quota.DiskBytes, size)
	row("snapshots", used.SnapshotBytes, a.Quota.SnapshotBytes, size)
	row("forks at once", 0, a.Quota.ForkAtOnce, count)
	return t.flush()
}

// quotaFlags are the bounds of a quota, as they are given.
type quotaFlags struct {
	sandboxes, forks        int64
	cpus                    string
	memory, disk, snapshots string
}

func (q *quotaFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Int64Var(&q.sandboxes, "sandboxes", 0, "how many may run at once")
	flags.StringVar(&q.cpus, "cpus", "", "cores of all that run, such as 4 or 0.5")
	flags.StringVar(&q.memory, "memory", "", "memory of all that run, such as 16GiB")
	flags.StringVar(&q.disk, "disk", "", "disk of all, such as 100GiB")
	flags.StringVar(&q.snapshots, "snapshots", "", "bytes that snapshots hold, such as 50GiB")
	flags.Int64Var(&q.forks, "forks", 0, "children of one fork")
}

// update is what of the quota the command line names.
func (q *quotaFlags) update(cmd *cobra.Command) (u sandbox.QuotaUpdate, err error) {
	for _, f := range []struct {
		name string
		to   **int64
		read func() (int64, error)
	}{
		{"sandboxes", &u.Sandboxes, func() (int64, error) { return q.sandboxes, nil }},
		{"forks", &u.ForkAtOnce, func() (int64, error) { return q.forks, nil }},
		{"cpus", &u.CPUMilli, func() (int64, error) { return orZero(q.cpus, parseCPU) }},
		{"memory", &u.MemoryBytes, func() (int64, error) { return orZero(q.memory, parseSize) }},
		{"disk", &u.DiskBytes, func() (int64, error) { return orZero(q.disk, parseSize) }},
		{"snapshots", &u.SnapshotBytes, func() (int64, error) { return orZero(q.snapshots, parseSize) }},
	} {
		if !cmd.Flags().Changed(f.name) {
			continue
		}
		n, err := f.read()
		if err != nil {
			return u, err
		}
		*f.to = &n
	}
	return u, u.Apply(sandbox.Quota{}).Check()
}

// orZero reads a bound, of which 0 takes it away.
func orZero(s string, parse func(string) (int64, error)) (int64, error) {
	if s == "0" {
		return 0, nil
	}
	return parse(s)
}
