package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// verdict says how good one finding is.
type verdict string

const (
	good verdict = "ok"
	warn verdict = "warn" // sandboxes run, but less well, or a feature is missing
	fail verdict = "fail" // sandboxes cannot run
)

// finding is one line of the doctor's report.
type finding struct {
	Check   string  `json:"check"`
	Verdict verdict `json:"verdict"`
	Found   string  `json:"found"`
	Remedy  string  `json:"remedy,omitempty"`
}

// examination is the doctor at work on one machine.
type examination struct {
	data   string // data directory, which need not exist yet
	listen string // address that a server would listen on
}

func (p *program) doctorCommand() *cobra.Command {
	var x examination
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can do, and what to do about what is missing",
		Long: "Try what a server on this machine would need and print one line a check:\n" +
			"ok, warn (sandboxes run, with less) or fail (they cannot run), with the remedy.\n" +
			"The exit code is 1 when a check fails.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := x.examine(cmd.Context())
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			return p.printFindings(findings)
		},
	}
	cmd.Flags().StringVar(&x.data, "data", dataDir(), "data directory of the server")
	cmd.Flags().StringVar(&x.listen, "listen", defaultListen, "address the server would listen on")
	cmd.AddCommand(p.kvmCommand())
	return cmd
}

// examine runs every check, the cheap ones first.
func (x *examination) examine(ctx context.Context) []finding {
	var all []finding
	for _, check := range []func(context.Context) []finding{
		x.privilege, x.kernel, x.cgroups, x.tun, x.programs, x.memory, x.disk, x.port, x.trust, x.certificates, x.gvisor, x.kvm,
	} {
		all = append(all, check(ctx)...)
	}
	return all
}

func (p *program) printFindings(findings []finding) error {
	worst := good
	for _, f := range findings {
		if f.Verdict == fail || worst == good {
			worst = f.Verdict
		}
	}
	if p.json {
		if err := writeJSON(p.out, map[string]any{"usable": worst != fail, "checks": findings}); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			fmt.Fprintf(p.out, "%s  %-12s %s\n", p.colored(f.Verdict), f.Check, printable(f.Found))
			if f.Remedy != "" {
				fmt.Fprintf(p.out, "      %-12s %s\n", "", "→ "+printable(f.Remedy))
			}
		}
		fmt.Fprintln(p.out, "\n"+conclusion(worst))
	}
	if worst == fail {
		return &exitError{code: exitFailure}
	}
	return nil
}

// colored is the verdict, four characters wide, in colour on a terminal.
func (p *program) colored(v verdict) string {
	text := string(v) + strings.Repeat(" ", 4-len(v))
	if !isTerminal(p.out) {
		return text
	}
	return map[verdict]string{good: "\x1b[32m", warn: "\x1b[33m", fail: "\x1b[31m"}[v] + text + "\x1b[0m"
}

func conclusion(worst verdict) string {
	switch worst {
	case good:
		return "Sandboxes can run here."
	case warn:
		return "Sandboxes can run here, with the limits above."
	}
	return "Sandboxes cannot run here yet."
}
