package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

func (p *program) domainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "domain",
		Short: "Let domains of your own stand for ports of sandboxes",
		Long: "Let a domain of your own stand for a port of a sandbox. \"add\" says how to prove\n" +
			"that it is yours, \"verify\" looks for the proof; then point the domain at the\n" +
			"server. A server that runs with --acme gets a certificate at the first visit. Who\n" +
			"may come is as \"berth url\" says of the port.",
	}
	cmd.AddCommand(p.domainAddCommand(), p.domainVerifyCommand(), p.domainLsCommand(), p.domainRmCommand())
	return cmd
}

func (p *program) domainAddCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "add NAME ID PORT",
		Short:   "Claim a domain for a port, or let one that you have stand for another port",
		Example: "  berth domain add app.example.com $ID 8080",
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			port, err := parsePort(args[2])
			if err != nil {
				return err
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			d, err := c.AddDomain(cmd.Context(), sandbox.DomainRequest{Name: args[0], Sandbox: args[1], Port: port})
			if err != nil {
				return err
			}
			return p.printDomain(d)
		},
	}
}

func (p *program) domainVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify NAME",
		Short: "Look whether the proof is there",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			d, err := c.VerifyDomain(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return p.printDomain(d)
		},
	}
}

// printDomain prints the name alone, and on standard error what is to be done.
func (p *program) printDomain(d sandbox.Domain) error {
	if p.json {
		return writeJSON(p.out, d)
	}
	if d.Verified.IsZero() {
		fmt.Fprintf(p.err, "To prove that %s is yours, add this TXT record:\n\n    %s  %q\n\n"+
			"or serve that text at http://%s%s.\nThen run: berth domain verify %s\n", d.Name, d.Proof.TXTName, d.Proof.TXTValue, d.Name, d.Proof.Path, d.Name)
	}
	_, err := fmt.Fprintln(p.out, d.Name)
	return err
}

func (p *program) domainLsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List domains",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			all, err := c.Domains(cmd.Context())
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, all)
			}
			t := newTable(p.out, "NAME", "SANDBOX", "PORT", "VERIFIED", "AGE")
			for _, d := range all {
				verified := "no"
				if !d.Verified.IsZero() {
					verified = "yes"
				}
				t.row(d.Name, string(d.Sandbox), strconv.Itoa(d.Port), verified, age(time.Since(d.Created)))
			}
			return t.flush()
		},
	}
}

func (p *program) domainRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME…",
		Short: "Give domains up",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := c.RemoveDomain(cmd.Context(), name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
