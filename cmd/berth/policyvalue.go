package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

// policyValue sets or removes a header whose value is a sandbox's own.
func (p *program) policyValue() *cobra.Command {
	var remove bool
	cmd := &cobra.Command{
		Use:   "value ID HOST HEADER",
		Short: "Set a header of the requests to a host, its value from standard input",
		Long: "Set a header of the requests to a host, its value from standard input: never from\n" +
			"the command line, which others can see. The gateway adds it; the sandbox never\n" +
			"holds it, nothing shows it, and it goes with the sandbox. One line break at the end\n" +
			"is not part of the value.",
		Example: "  berth policy ID value api.example.com X-Api-Key < key.txt\n" +
			"  berth policy ID value api.example.com X-Api-Key --rm",
		Args:              cobra.ExactArgs(3),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			host, header := args[1], args[2]
			if remove {
				return p.changePolicy(cmd.Context(), args[0], func(policy *sandbox.Policy) error { return dropValue(policy, host, header) })
			}
			value, err := p.readSecret(header, "berth policy "+args[0]+" value "+host+" "+header)
			if err != nil {
				return err
			}
			defer value.Wipe()
			text := sandbox.HeaderText([]byte(bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))))
			return p.changePolicy(cmd.Context(), args[0], func(policy *sandbox.Policy) error {
				setValue(policy, host, header, &text)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&remove, "rm", false, "remove the header")
	return cmd
}

// setValue sets a header in the rule that is about all requests to a host, which it
// makes if there is none.
func setValue(policy *sandbox.Policy, host, header string, text *sandbox.HeaderText) {
	i := slices.IndexFunc(policy.Inject, func(r sandbox.Inject) bool {
		return r.Host == host && len(r.Values) > 0 && len(r.Methods)+len(r.Paths)+len(r.Except) == 0
	})
	if i < 0 {
		policy.Inject = append(policy.Inject, sandbox.Inject{Host: host, Values: map[string]*sandbox.HeaderText{header: text}})
		return
	}
	values := policy.Inject[i].Values
	for k := range values {
		if strings.EqualFold(k, header) {
			delete(values, k)
		}
	}
	values[header] = text
}

// dropValue removes a header from every rule of a host, and rules that then do
// nothing.
func dropValue(policy *sandbox.Policy, host, header string) error {
	found := false
	policy.Inject = slices.DeleteFunc(policy.Inject, func(r sandbox.Inject) bool {
		if r.Host != host {
			return false
		}
		for k := range r.Values {
			if strings.EqualFold(k, header) {
				delete(r.Values, k)
				found = true
			}
		}
		return len(r.Values)+len(r.Header)+len(r.Query)+len(r.Body) == 0 && r.Basic == nil && r.Handler == nil
	})
	if !found {
		return &sandbox.Error{Op: "drop value", Kind: sandbox.NotFound, Err: fmt.Errorf("no rule of %.80q sets the header %.80q", host, header), Hint: "berth policy ID show lists them"}
	}
	return nil
}
