package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// wait answers when a process has ended, has written a line, or a port answers.
func (a *API) wait(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	what := q.text("for")
	timeout := time.Duration(q.positive("timeout_ms", int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
	ctx, cancel := a.untilClose(r)
	defer cancel()
	id, process := r.PathValue("id"), r.PathValue("process")
	var answer any
	var err error
	switch what {
	case "", "exit":
		if err := q.check(); err != nil {
			return err
		}
		answer, err = a.waitExit(ctx, id, process, timeout)
	case "line":
		line := lineOf(q, timeout)
		if err := q.check(); err != nil {
			return err
		}
		answer, err = a.engine.WaitLine(ctx, id, process, line)
	case "port":
		port := portOf(q, timeout)
		if err := q.check(); err != nil {
			return err
		}
		answer, err = a.engine.WaitPort(ctx, id, process, port)
	default:
		return &sandbox.Error{Op: "read query parameter for", Kind: sandbox.Invalid, Err: fmt.Errorf("%.40q is nothing to wait for", what),
			Hint: "for takes exit, line or port"}
	}
	if err != nil {
		return because(ctx, err)
	}
	return writeJSON(w, http.StatusOK, answer)
}

// waitExit bounds the wait for an end.
func (a *API) waitExit(ctx context.Context, id, process string, timeout time.Duration) (sandbox.Exit, error) {
	if timeout <= 0 {
		return a.engine.WaitProcess(ctx, id, process)
	}
	bound, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	exit, err := a.engine.WaitProcess(bound, id, process)
	if err != nil && bound.Err() == context.DeadlineExceeded && ctx.Err() == nil {
		return exit, sandbox.Errorf("wait", sandbox.Timeout, "the process still runs after %v", timeout)
	}
	return exit, err
}

func lineOf(q *query, timeout time.Duration) sandbox.LineWait {
	return sandbox.LineWait{Text: q.text("text"), Regexp: q.text("regexp"), Stream: sandbox.Stream(q.text("stream")),
		From:    sandbox.Offsets{Stdout: q.number("stdout", 10, 64), Stderr: q.number("stderr", 10, 64)},
		Timeout: timeout}
}

func portOf(q *query, timeout time.Duration) sandbox.PortWait {
	return sandbox.PortWait{Port: int(q.positive("port", 65535)), Path: q.text("path"),
		Status: int(q.positive("status", 599)), Timeout: timeout}
}

// startProcess starts a process that lives on by itself.
func (a *API) startProcess(w http.ResponseWriter, r *http.Request) error {
	req, err := commandOf(w, r)
	if err != nil {
		return err
	}
	if len(req.StdinData) > 0 {
		return &sandbox.Error{Op: "check command", Kind: sandbox.Invalid, Err: fmt.Errorf("stdin_data has nobody to write it"),
			Hint: "set stdin, and send the data to the process's input"}
	}
	p, err := a.engine.StartProcess(r.Context(), r.PathValue("id"), req.Command)
	if err != nil {
		return err
	}
	w.Header().Set("Location", r.URL.Path+"/"+p.ID)
	return writeJSON(w, http.StatusCreated, p)
}

// removeProcess answers with how the process ended.
func (a *API) removeProcess(w http.ResponseWriter, r *http.Request) error {
	exit, err := a.engine.RemoveProcess(r.Context(), r.PathValue("id"), r.PathValue("process"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, exit)
}

func (a *API) usage(w http.ResponseWriter, r *http.Request) error {
	u, err := a.engine.Usage(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, u)
}
