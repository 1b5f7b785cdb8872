package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

func (p *program) policyCommand() *cobra.Command {
	var profile string
	cmd := &cobra.Command{
		Use:   "policy ID [VERB]",
		Short: "See and change what a sandbox may reach",
		Long: "See and change what a sandbox may reach. A change is in force when the command\n" +
			"returns, for connections that are open too.",
		Example: "  berth policy ID show\n" +
			"  berth policy ID --profile allow-list\n" +
			"  berth policy ID allow packages.example.com '*.cdn.example.com' 93.184.216.0/24\n" +
			"  berth policy ID set -f policy.json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			if profile == "" {
				return p.showPolicy(cmd.Context(), args[0])
			}
			return p.changePolicy(cmd.Context(), args[0], func(policy *sandbox.Policy) error {
				policy.Profile = sandbox.Profile(profile)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&profile, "profile", "", "what holds where no rule speaks: open, allow-list or none")
	cmd.AddCommand(p.policyShow(), p.policySet(), p.policyRule("allow", true), p.policyRule("deny", false), p.policyDrop(), p.policyValue())
	cmd.AddCommand(p.policyGrants()...)
	return cmd
}

// policyVerbFirst turns "policy ID VERB" into "policy VERB ID", which is how the
// verbs are found.
func policyVerbFirst(root *cobra.Command, args []string) []string {
	i := slices.Index(args, "policy")
	if i < 0 || i+2 >= len(args) {
		return args
	}
	cmd, rest, err := root.Find(args[:i+1])
	if err != nil || cmd.Name() != "policy" || cmd.Parent() != root || len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return args
	}
	if slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == args[i+2] }) {
		args = slices.Clone(args)
		args[i+1], args[i+2] = args[i+2], args[i+1]
	}
	return args
}

func (p *program) policyShow() *cobra.Command {
	return &cobra.Command{
		Use:               "show ID",
		Short:             "Print a sandbox's policy as a document",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.showPolicy(cmd.Context(), args[0])
		},
	}
}

func (p *program) showPolicy(ctx context.Context, id string) error {
	c, _, err := p.connectTo(id)
	if err != nil {
		return err
	}
	policy, err := c.Policy(ctx, id)
	if err != nil {
		return err
	}
	return writeJSON(p.out, policy)
}

func (p *program) policySet() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:               "set ID -f FILE",
		Short:             "Replace a sandbox's policy by a document",
		Long:              "Replace a sandbox's policy by a document; the file - is standard input.\nThe server has its schema at /v1/policy.schema.json.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			policy, err := p.readPolicy(file)
			if err != nil {
				return err
			}
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			return p.setPolicy(cmd.Context(), c, id, policy)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the document; - is standard input")
	cmd.MarkFlagRequired("file")
	return cmd
}

// readPolicy reads a policy's document from a file.
func (p *program) readPolicy(file string) (sandbox.Policy, error) {
	in := p.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return sandbox.Policy{}, &sandbox.Error{Op: "read policy", Kind: sandbox.Invalid, Err: err, Hint: "-f takes the path of a document"}
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, sandbox.MaxPolicyBytes+1))
	if err != nil {
		return sandbox.Policy{}, &sandbox.Error{Op: "read policy", Kind: sandbox.Invalid, Err: err}
	}
	return sandbox.ParsePolicy(b)
}

func (p *program) setPolicy(ctx context.Context, c *client.Client, id string, policy sandbox.Policy) error {
	warnings, err := c.SetPolicy(ctx, id, policy)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintf(p.err, "note: %s\n", printable(w))
	}
	if p.json {
		shown, _ := policy.Detach()
		return writeJSON(p.out, shown)
	}
	return nil
}

// changePolicy sets what change makes of a sandbox's policy.
func (p *program) changePolicy(ctx context.Context, id string, change func(*sandbox.Policy) error) error {
	c, _, err := p.connectTo(id)
	if err != nil {
		return err
	}
	policy, err := c.Policy(ctx, id)
	if err != nil {
		return err
	}
	if err := change(&policy); err != nil {
		return err
	}
	if err := policy.Check(); err != nil {
		return err
	}
	return p.setPolicy(ctx, c, id, policy)
}

// ruleFlags narrow a rule beyond its destinations.
type ruleFlags struct {
	name           string
	ports          []string
	protocol       string
	methods, paths []string
	inspect        bool
}

func (p *program) policyRule(verb string, allows bool) *cobra.Command {
	var f ruleFlags
	long := "Add a rule for these destinations. It is about all of them, and about every port\nunless --port says less."
	if !allows {
		long += " Deny rules win over allow rules. Without a destination\nit is about everything."
	}
	cmd := &cobra.Command{
		Use:               verb + " ID [DOMAIN|CIDR]...",
		Short:             map[bool]string{true: "Allow domains or networks", false: "Deny domains or networks"}[allows],
		Long:              long,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			rule := f.rule(args[1:])
			return p.changePolicy(cmd.Context(), args[0], func(policy *sandbox.Policy) error {
				if allows {
					policy.Allow = append(policy.Allow, rule)
				} else {
					policy.Deny = append(policy.Deny, rule)
				}
				return nil
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "what the audit calls it")
	flags.StringSliceVar(&f.ports, "port", nil, "only these ports, such as 443 or 8000-8999")
	flags.StringVar(&f.protocol, "protocol", "", "tcp or udp (default tcp; for deny both)")
	flags.StringSliceVar(&f.methods, "method", nil, "only requests with these methods: the domains are inspected")
	flags.StringSliceVar(&f.paths, "path", nil, "only requests to these paths; * stands for anything: the domains are inspected")
	flags.BoolVar(&f.inspect, "inspect", false, "look at every request to these domains")
	return cmd
}

// rule makes a rule of destinations.
func (f *ruleFlags) rule(to []string) sandbox.Rule {
	r := sandbox.Rule{Name: f.name, Ports: f.ports, Protocol: sandbox.Protocol(f.protocol), Methods: f.methods, Paths: f.paths, Inspect: f.inspect}
	for _, t := range to {
		if _, err := sandbox.ParseCIDR(t); err == nil || strings.Contains(t, "/") || strings.Contains(t, ":") {
			r.CIDRs = append(r.CIDRs, t)
		} else {
			r.Domains = append(r.Domains, t)
		}
	}
	return r
}

func (p *program) policyDrop() *cobra.Command {
	return &cobra.Command{
		Use:               "drop ID RULE...",
		Short:             "Remove rules by name, or by place: allow[0], deny[2]",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.changePolicy(cmd.Context(), args[0], func(policy *sandbox.Policy) error {
				return dropRules(policy, args[1:])
			})
		},
	}
}

// dropRules removes the rules of these names.
func dropRules(policy *sandbox.Policy, names []string) error {
	gone := map[string]bool{}
	keep := func(list string, rules []sandbox.Rule) (kept []sandbox.Rule) {
		for i := range rules {
			if name := rules[i].RuleName(list, i); slices.Contains(names, name) {
				gone[name] = true
			} else {
				kept = append(kept, rules[i])
			}
		}
		return kept
	}
	policy.Allow, policy.Deny = keep("allow", policy.Allow), keep("deny", policy.Deny)
	for _, n := range names {
		if !gone[n] {
			return &sandbox.Error{Op: "drop rule", Kind: sandbox.NotFound, Err: fmt.Errorf("the policy has no rule %q", n), Hint: "berth policy show ID lists them"}
		}
	}
	return nil
}

var errNoPolicy = errors.New("give --policy FILE or --profile, not both")

// egressPolicy is what --policy and --profile of a command say; nil: nothing.
func (p *program) egressPolicy(file, profile string) (*sandbox.Policy, error) {
	switch {
	case file != "" && profile != "":
		return nil, &sandbox.Error{Kind: sandbox.Invalid, Err: errNoPolicy, Hint: "the document names the profile"}
	case file != "":
		policy, err := p.readPolicy(file)
		return &policy, err
	case profile != "":
		policy := sandbox.Policy{Profile: sandbox.Profile(profile)}
		return &policy, policy.Check()
	}
	return nil, nil
}
