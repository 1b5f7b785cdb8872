package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/berth-dev/berth/sandbox"
)

// Exit codes that are not a kind's own.
const (
	exitFailure     = 1   // any kind that is not in exitCodes
	exitTimeout     = 124 // as timeout(1)
	exitExecFailure = 125 // exec: Berth's error, not the command's
	exitInterrupted = 130 // 128 + SIGINT, as shells count
	exitBrokenPipe  = 141 // 128 + SIGPIPE
)

// exitCodes is the one table from kinds to exit codes; docs/cli.md repeats it.
var exitCodes = map[sandbox.Kind]int{
	sandbox.Invalid:      2,
	sandbox.NotFound:     3,
	sandbox.Conflict:     4,
	sandbox.Unauthorized: 5,
	sandbox.Forbidden:    5,
	sandbox.Exhausted:    6,
	sandbox.Unavailable:  7,
	sandbox.Unsupported:  8,
	sandbox.Timeout:      exitTimeout,
}

// exitError ends the program with a code of its own. Err, when set, is reported.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// report renders err, once for the whole program, and returns the exit code.
func (p *program) report(err error) int {
	if err == nil {
		return 0
	}
	code := 0
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		if exit.err == nil {
			return exit.code
		}
		code, err = exit.code, exit.err
	}
	if !p.parsed && sandbox.KindOf(err) == sandbox.Internal { // the flag parser's own
		err = usage(fmt.Sprintf("see %q", p.verb+" --help"), "%w", err)
	}
	if errors.Is(err, context.Canceled) && code == 0 {
		code = exitInterrupted
	}
	if code == 0 {
		code = exitCode(sandbox.KindOf(err))
	}
	p.render(err)
	return code
}

func exitCode(k sandbox.Kind) int {
	if c, ok := exitCodes[k]; ok {
		return c
	}
	return exitFailure
}

// render writes err for people, or as the API's error object with --json.
func (p *program) render(err error) {
	if p.json {
		writeJSON(p.err, map[string]any{"error": map[string]any{
			"code": sandbox.KindOf(err), "message": err.Error(), "hint": sandbox.HintOf(err)}})
		return
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok { // of many targets
		for _, e := range all.Unwrap() {
			p.render(e)
		}
		return
	}
	fmt.Fprintf(p.err, "berth: %s\n", printable(err.Error()))
	if hint := sandbox.HintOf(err); hint != "" {
		fmt.Fprintf(p.err, "hint: %s\n", printable(hint))
	}
}

// writeJSON writes v as indented JSON with a line's end.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
