package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

// program is one run of the command: its streams and its global flags.
type program struct {
	in       io.Reader
	out, err io.Writer

	url string // of the server
	key string // API key; "" means: look for one

	account string // that the operator acts for; "" means none

	json bool // whole objects on standard output, errors as objects too

	parsed bool   // the command line was understood: a verb has begun
	verb   string // as far as it was understood: "berth exec"
}

// ownSignals marks a verb that treats interrupts itself. For all others an
// interrupt ends the context.
const ownSignals = "own-signals"

// run executes one command line and returns the exit code of the process.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	p := &program{in: in, out: out, err: errs}
	root := p.root()
	root.SetArgs(policyVerbFirst(root, args))
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	cmd, err := root.ExecuteContextC(ctx)
	p.verb = cmd.CommandPath()
	return p.report(err)
}

// root is the tree of all verbs.
func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "Computers for agents, on your own machines",
		Long: "Berth gives every agent its own isolated Linux computer, on your own machines.\n\n" +
			"Start a server with \"berth serve\"; every other verb talks to one.",
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			p.parsed = true
			if cmd.Annotations[ownSignals] == "" {
				ctx, _ := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
				cmd.SetContext(ctx)
			}
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&p.url, "url", envOr("BERTH_URL", defaultURL), "address of the server (BERTH_URL)")
	flags.StringVar(&p.key, "key", "", "API key (BERTH_API_KEY; else admin.key of the local data directory)")
	flags.StringVar(&p.account, "account", os.Getenv("BERTH_ACCOUNT"), "account to act for, with the operator's key (BERTH_ACCOUNT)")
	flags.BoolVar(&p.json, "json", false, "print whole objects as JSON")

	root.AddGroup(
		&cobra.Group{ID: "sandbox", Title: "Sandboxes:"},
		&cobra.Group{ID: "process", Title: "Processes and files:"},
		&cobra.Group{ID: "server", Title: "Server and templates:"})
	group := func(id string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("sandbox", p.createCommand(), p.lsCommand(), p.topCommand(), p.usageCommand(), p.metricsCommand(), p.updateCommand(), p.keepAliveCommand(), p.rmCommand(),
		p.forkCommand(), p.snapshotCommand(), p.restoreCommand(), p.backupCommand(), p.pauseCommand(), p.resumeCommand(), p.stopCommand(), p.startCommand(), p.eventsCommand(), p.policyCommand(), p.auditCommand())
	group("process", p.execCommand(), p.runCommand(), p.contextCommand(), p.shellCommand(), p.psCommand(), p.logsCommand(), p.waitCommand(), p.killCommand(), p.sessionCommand(), p.terminalsCommand(), p.cpCommand(), p.watchCommand(), p.signCommand(),
		p.urlCommand(), p.portsCommand(), p.forwardCommand(), p.domainCommand())
	group("server", p.serveCommand(), p.templateCommand(), p.dockerCommand(), p.gcCommand(), p.webhookCommand(), p.volumeCommand(), p.secretCommand(), p.keyCommand(), p.accountCommand(), p.doctorCommand())
	root.AddCommand(p.versionCommand())
	return root
}

// usage makes the error of a command line that can never work.
func usage(hint, format string, args ...any) error {
	e := sandbox.Errorf("", sandbox.Invalid, format, args...)
	e.Hint = hint
	return e
}

func envOr(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}
