package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

// runFlags is what "berth run" takes beside the code.
type runFlags struct {
	file string
	env  []string
	run  sandbox.CodeRun
}

func (p *program) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run ID [flags] [CODE]",
		Short: "Run code in a context that remembers",
		Long: "Run code in a sandbox, in an interpreter that remembers variables from one run to\n" +
			"the next. The code is the argument, the --file, or standard input. What it prints\n" +
			"passes through; the text of what it shows comes on standard output. An error in the\n" +
			"code gives exit code 1, a timeout 124, and what else ends a run 125.\n\n" +
			"With --json every event is a line of JSON. The template " + sandbox.CodeTemplate + " has the\n" +
			"interpreters: berth template build " + sandbox.CodeTemplate,
		Example: "  berth run $ID 'x = 6*7'; berth run $ID 'x'\n" +
			"  berth run $ID --lang js -f app.js\n" +
			"  echo 'ls -l' | berth run $ID --lang bash --context work",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.readCode(&f, args[1:]); err != nil {
				return err
			}
			return p.runCode(cmd.Context(), args[0], f.run)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.run.Language, "lang", "l", "", "language: python (which it is if nothing is said), javascript, typescript, bash, …")
	flags.StringVarP(&f.file, "file", "f", "", "file of this machine that holds the code; - is standard input")
	flags.StringVarP(&f.run.Context, "context", "c", "", "context to run in, by id or name; left out, the language's own")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable NAME=VALUE of this run alone, or NAME to pass on one's own")
	flags.DurationVar(&f.run.Timeout, "timeout", 0, "interrupt the run after this time, such as 30s")
	return cmd
}

// readCode finds the code in what the command line gives.
func (p *program) readCode(f *runFlags, args []string) (err error) {
	const hint = "give the code as an argument, with --file or on standard input"
	if f.run.Env, err = parseEnv(f.env); err != nil {
		return err
	}
	switch {
	case len(args) == 1 && f.file != "":
		return usage(hint, "the code is given twice")
	case len(args) == 1:
		f.run.Code = args[0]
		return nil
	case f.file == "" && !p.sendsInput(false):
		return usage(hint, "there is no code")
	}
	in := p.in
	if f.file != "" && f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return &sandbox.Error{Op: "read code", Kind: sandbox.Invalid, Err: err}
		}
		defer file.Close()
		in = file
	}
	b, err := io.ReadAll(io.LimitReader(in, sandbox.MaxCode+1))
	f.run.Code = string(b)
	return err
}

// runCode runs code to its end and shows what it does.
func (p *program) runCode(ctx context.Context, id string, r sandbox.CodeRun) (err error) {
	if err := r.Check(); err != nil {
		return err
	}
	c, id, err := p.connectTo(id)
	if err != nil {
		return err
	}
	events, err := c.RunCode(ctx, id, r)
	if err != nil {
		return err
	}
	defer events.Close()
	for {
		e, err := events.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if p.json {
			err = json.NewEncoder(p.out).Encode(e)
		} else {
			err = p.showCode(e)
		}
		if err != nil {
			return err
		}
		if e.End != nil {
			return codeExit(e.End)
		}
	}
}

// showCode shows one event as text.
func (p *program) showCode(e sandbox.CodeEvent) (err error) {
	switch e.Type {
	case sandbox.CodeStdout:
		_, err = io.WriteString(p.out, e.Text)
	case sandbox.CodeStderr:
		_, err = io.WriteString(p.err, e.Text)
	case sandbox.CodeShown:
		_, err = fmt.Fprintln(p.out, resultText(e.Result))
	case sandbox.CodeRaised:
		text := strings.Join(e.Error.Traceback, "\n")
		if text == "" {
			text = strings.Trim(e.Error.Name+": "+e.Error.Value, ": ")
		}
		_, err = fmt.Fprintln(p.err, text)
	case sandbox.CodeMissed:
		_, err = fmt.Fprintf(p.err, "berth: %d events are no longer kept\n", e.Missed)
	}
	return err
}

// resultText is a result for a terminal: its text, or which forms it has.
func resultText(r *sandbox.CodeResult) string {
	for _, text := range []string{r.Text, r.Markdown, r.LaTeX, string(r.JSON)} {
		if text != "" {
			return text
		}
	}
	var forms []string
	for name, has := range map[string]bool{"html": r.HTML != "", "svg": r.SVG != "", "png": r.PNG != "", "jpeg": r.JPEG != "",
		"pdf": r.PDF != "", "javascript": r.JavaScript != "", "data": len(r.Data) > 0, "chart": len(r.Chart) > 0} {
		if has {
			forms = append(forms, name)
		}
	}
	for name := range r.Extra {
		forms = append(forms, printable(name))
	}
	for name := range r.Omitted {
		forms = append(forms, printable(name)+", too large")
	}
	slices.Sort(forms)
	return "<" + strings.Join(forms, ", ") + ">"
}

// codeExit is how this program ends after a run.
func codeExit(e *sandbox.CodeEnd) error {
	switch e.Status {
	case sandbox.CodeOK:
		return nil
	case sandbox.CodeFailed:
		return &exitError{code: 1}
	case sandbox.CodeTimedOut:
		return &exitError{code: exitTimeout, err: sandbox.Errorf("run code", sandbox.Timeout, "%s", printable(e.Reason))}
	}
	return &exitError{code: exitExecFailure, err: sandbox.Errorf("run code", sandbox.Unavailable, "%s", printable(e.Reason))}
}
