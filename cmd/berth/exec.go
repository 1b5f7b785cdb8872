package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

// execFlags is what "berth exec" takes beside the command.
type execFlags struct {
	env         []string
	shell       string
	session     string
	interactive bool
	detach      bool
	command     sandbox.Command
}

func (p *program) execCommand() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec ID [flags] -- PROGRAM [ARGUMENT...]",
		Short: "Run a command in a sandbox",
		Long: "Run a command in a sandbox as if it ran here: standard input, output and error\n" +
			"pass through unchanged, signals are forwarded, and the exit code is the command's.\n\n" +
			"Standard input is sent when it is not a terminal, or with -i. Berth's own errors\n" +
			"give exit code 125; a command that --timeout ended gives 124.",
		Example: "  berth exec $ID -- python3 -c 'print(6*7)'\n" +
			"  tar c . | berth exec $ID --cwd /workspace -- tar x\n" +
			"  berth exec $ID --shell 'cd /tmp && ls | wc -l'\n" +
			"  berth exec $ID --session work --shell 'cd src && export CC=clang'",
		Args: func(cmd *cobra.Command, args []string) error {
			const hint = "berth exec ID [flags] -- PROGRAM [ARGUMENT...]"
			switch dash := cmd.ArgsLenAtDash(); {
			case len(args) == 0 || dash == 0:
				return ownFailure(usage(hint, "a sandbox's id is missing"))
			case dash > 1:
				return ownFailure(usage(hint, `%q stands before "--"`, args[1]))
			}
			return nil
		},
		Annotations:       map[string]string{ownSignals: "yes"},
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.command.Argv, f.command.Shell = args[1:], f.shell
			if err := p.exec(cmd.Context(), args[0], &f); err != nil {
				return ownFailure(err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.command.Cwd, "cwd", "w", "", "directory to run in")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable NAME=VALUE, or NAME to pass on one's own")
	flags.StringVarP(&f.command.User, "user", "u", "", "user to run as")
	flags.DurationVar(&f.command.Timeout, "timeout", 0, "end the command after this time, such as 30s")
	flags.StringVar(&f.shell, "shell", "", "a line for bash instead of a program and arguments")
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "send standard input even from a terminal")
	flags.StringVar(&f.command.Name, "name", "", "name of the process, for ps, logs and kill")
	flags.StringVar(&f.session, "session", "", "run in the shell session of this name, which remembers; made if there is none")
	flags.BoolVarP(&f.detach, "detach", "d", false, "leave it running; print its process id")
	return cmd
}

// ownFailure gives exec's own errors their code and leaves the command's alone.
func ownFailure(err error) error {
	if e, ok := err.(*exitError); ok {
		return e
	}
	return &exitError{code: exitExecFailure, err: err}
}

// exec runs one command to its end. The result is nil for exit code 0, an
// exitError with the command's code, or Berth's own error.
func (p *program) exec(ctx context.Context, id string, f *execFlags) error {
	command, err := f.command, error(nil)
	if command.Env, err = parseEnv(f.env); err != nil {
		return err
	}
	command.Detach, command.Lossless = f.detach, !f.detach
	command.Stdin = !f.detach && p.sendsInput(f.interactive)
	if err := command.Check(); err != nil {
		return err
	}
	c, target, err := p.connectTo(id)
	if err != nil {
		return err
	}
	start := func(ctx context.Context) (sandbox.Events, error) { return c.Exec(ctx, target, command) }
	if f.session != "" {
		start, err = inSession(ctx, c, target, f.session, command)
	}
	if err != nil {
		return err
	}
	if f.detach {
		return p.execDetached(ctx, start)
	}
	return p.execAttached(ctx, c, target, command.Stdin, start)
}

// inSession opens a session. Folder, environment and user are those of a new
// one; one that is there keeps its own.
func inSession(ctx context.Context, c *client.Client, id, name string, command sandbox.Command) (starter, error) {
	_, _, err := c.OpenSession(ctx, id, sandbox.SessionOptions{Name: name, Env: command.Env, Cwd: command.Cwd, User: command.User})
	command.Env, command.Cwd, command.User = nil, "", ""
	return func(ctx context.Context) (sandbox.Events, error) { return c.RunInSession(ctx, id, name, command) }, err
}

// execDetached starts the command and prints its process id alone.
func (p *program) execDetached(ctx context.Context, start starter) error {
	events, err := start(ctx)
	if err != nil {
		return err
	}
	defer events.Close()
	first, err := events.Recv()
	if err != nil {
		return err
	}
	if first.Started == nil {
		return sandbox.Errorf("exec", sandbox.Internal, "the server told of no process")
	}
	if p.json {
		return writeJSON(p.out, first.Started)
	}
	_, err = fmt.Fprintln(p.out, first.Started.ID)
	return err
}

// interruptsToQuit is how many interrupts make berth itself give up on a
// command that does not end by them.
const interruptsToQuit = 3
