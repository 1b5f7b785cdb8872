package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

// completionLimit bounds what a shell waits for after a tab.
const completionLimit = 2 * time.Second

// completeSandboxes offers the ids that are not on the line yet.
func (p *program) completeSandboxes(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	given := make(map[string]bool, len(args))
	for _, a := range args {
		given[a] = true
	}
	var found []cobra.Completion
	for _, s := range p.knownSandboxes(cmd.Context()) {
		if id := string(s.ID); !given[id] {
			found = append(found, cobra.CompletionWithDesc(id, s.Template+" "+string(s.State)))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

func (p *program) completeOneSandbox(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.completeSandboxes(cmd, args, word)
}

// completeProcess offers sandboxes, then the processes of the one chosen.
func (p *program) completeProcess(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return p.completeOneSandbox(cmd, args, word)
	}
	c, id, err := p.connectTo(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	processes, err := c.Processes(ctx, id)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var found []cobra.Completion
	for _, proc := range processes {
		if proc.Exit == nil && len(proc.Argv) > 0 {
			found = append(found, cobra.CompletionWithDesc(proc.ID, printable(proc.Argv[0])))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeCopy offers local files and "ID:" prefixes.
func (p *program) completeCopy(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []cobra.Completion
	for _, s := range p.knownSandboxes(cmd.Context()) {
		found = append(found, string(s.ID)+":")
	}
	return found, cobra.ShellCompDirectiveNoSpace
}

func (p *program) completeTemplates(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, err := p.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	templates, err := c.Templates(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var found []cobra.Completion
	for _, t := range templates {
		found = append(found, cobra.CompletionWithDesc(t.Name, t.Source))
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// knownSandboxes asks the server; a completion has nowhere to report an error
// to, so there is then nothing to offer.
func (p *program) knownSandboxes(ctx context.Context) []sandbox.Sandbox {
	c, err := p.connect()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	page, err := c.List(ctx, sandbox.ListQuery{Limit: listPage})
	if err != nil {
		return nil
	}
	return page.Sandboxes
}
