package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

// shellFlags is what "berth shell" takes.
type shellFlags struct {
	req sandbox.TerminalRequest
	env []string
}

func (p *program) shellCommand() *cobra.Command {
	var f shellFlags
	cmd := &cobra.Command{
		Use:   "shell ID",
		Short: "Open a terminal in a sandbox, or come back to one",
		Long: "Open a terminal in a sandbox, or come back to one: it lives on in the sandbox, with\n" +
			"its screen, whoever comes and goes, and several may share it. Ctrl-\\ detaches. The\n" +
			"exit code is the shell's, or 0 after detaching; Berth's own errors give 125.\n\n" +
			"When standard input is no terminal, what it gives is typed: into a new terminal,\n" +
			"which then ends, or into the one that --name says.",
		Example: "  berth shell $ID\n" +
			"  berth shell $ID --name work       # the same one again, from anywhere\n" +
			"  berth shell $ID --new --cmd htop\n" +
			"  echo 'make test; exit $?' | berth shell $ID",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(cmd, args); err != nil {
				return ownFailure(usage("berth shell ID [flags]", "%w", err))
			}
			return nil
		},
		Annotations:       map[string]string{ownSignals: "yes"},
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.shell(cmd.Context(), args[0], &f); err != nil {
				return ownFailure(err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.req.Name, "name", "n", "", `name of the terminal (default "main")`)
	flags.BoolVar(&f.req.New, "new", false, "a new one, even if one of the name is there to come back to")
	flags.StringVarP(&f.req.Shell, "cmd", "c", "", "what a new one runs instead of the login shell: a line for bash")
	flags.StringVarP(&f.req.Cwd, "cwd", "w", "", "directory of a new one")
	flags.StringVarP(&f.req.User, "user", "u", "", "user of a new one")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable of a new one: NAME=VALUE, or NAME to pass on one's own")
	return cmd
}

// shell opens the terminal and stays with it until it ends, or until detached.
func (p *program) shell(ctx context.Context, id string, f *shellFlags) (err error) {
	req := f.req
	if req.Env, err = parseEnv(f.env); err != nil {
		return err
	}
	c, target, err := p.connectTo(id)
	if err != nil {
		return err
	}
	s := &visit{p: p, client: c, id: target, tty: p.ownTerminal()}
	if s.tty != nil {
		req.Cols, req.Rows = s.tty.size()
	} else if req.Name == "" {
		req.New = true // what is typed must not end in someone's shell
	}
	s.terminal, s.made, err = c.OpenTerminal(ctx, target, req)
	if err != nil {
		return err
	}
	err = s.run(ctx)
	if err == errDetached {
		fmt.Fprintf(p.err, "detached from %s; come back with: berth shell %s --name %s\n", s.terminal.Name, target, s.terminal.Name)
		return nil
	}
	return err
}
