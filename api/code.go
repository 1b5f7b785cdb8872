package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Code is what can be done with code in contexts that remember.
type Code interface {
	CreateCodeContext(ctx context.Context, id string, o sandbox.CodeOptions) (sandbox.CodeContext, error)
	CodeContexts(ctx context.Context, id string) ([]sandbox.CodeContext, error)
	CodeContext(ctx context.Context, id, name string) (sandbox.CodeContext, error)
	RestartCodeContext(ctx context.Context, id, name string) (sandbox.CodeContext, error)
	InterruptCodeContext(ctx context.Context, id, name string) error
	RemoveCodeContext(ctx context.Context, id, name string) error
	CodeLanguages(ctx context.Context, id string) ([]string, error)
	RunCode(ctx context.Context, id string, r sandbox.CodeRun) (sandbox.CodeEvents, error)
	AttachCode(ctx context.Context, id, run string, after int64) (sandbox.CodeEvents, error)
	CancelCode(ctx context.Context, id, run string) error
}

func (a *API) codeContexts(w http.ResponseWriter, r *http.Request) error {
	all, err := a.engine.CodeContexts(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.CodeContexts{Contexts: orEmpty(all)})
}

func (a *API) codeContext(w http.ResponseWriter, r *http.Request) error {
	c, err := a.engine.CodeContext(r.Context(), r.PathValue("id"), r.PathValue("context"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, c)
}

// createCodeContext takes an empty body as a request for the defaults.
func (a *API) createCodeContext(w http.ResponseWriter, r *http.Request) error {
	var o sandbox.CodeOptions
	if err := decode(w, r, &o); err != nil && !errors.Is(err, errEmpty) {
		return err
	}
	c, err := a.engine.CreateCodeContext(r.Context(), r.PathValue("id"), o)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, c)
}

func (a *API) restartCodeContext(w http.ResponseWriter, r *http.Request) error {
	c, err := a.engine.RestartCodeContext(r.Context(), r.PathValue("id"), r.PathValue("context"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, c)
}

func (a *API) interruptCodeContext(w http.ResponseWriter, r *http.Request) error {
	if err := a.engine.InterruptCodeContext(r.Context(), r.PathValue("id"), r.PathValue("context")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *API) removeCodeContext(w http.ResponseWriter, r *http.Request) error {
	if err := a.engine.RemoveCodeContext(r.Context(), r.PathValue("id"), r.PathValue("context")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *API) codeLanguages(w http.ResponseWriter, r *http.Request) error {
	all, err := a.engine.CodeLanguages(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Languages{Languages: orEmpty(all)})
}

// runCode queues code and streams what it does.
func (a *API) runCode(w http.ResponseWriter, r *http.Request) error {
	var req wire.CodeRun
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if req.TimeoutMS < 0 || req.TimeoutMS > int64(math.MaxInt64/time.Millisecond) {
		return &sandbox.Error{Op: "check code", Kind: sandbox.Invalid, Err: fmt.Errorf("timeout_ms is %d", req.TimeoutMS),
			Hint: "timeout_ms takes 1 or more; leave it out for none"}
	}
	req.Timeout = time.Duration(req.TimeoutMS) * time.Millisecond
	return a.sendCode(w, r, func(ctx context.Context) (sandbox.CodeEvents, error) {
		return a.engine.RunCode(ctx, r.PathValue("id"), req.CodeRun)
	})
}

// attachCode streams what a run did behind an event.
func (a *API) attachCode(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	after := q.number("after", 10, 64)
	if err := q.check(); err != nil {
		return err
	}
	return a.sendCode(w, r, func(ctx context.Context) (sandbox.CodeEvents, error) {
		return a.engine.AttachCode(ctx, r.PathValue("id"), r.PathValue("run"), after)
	})
}

func (a *API) cancelCode(w http.ResponseWriter, r *http.Request) error {
	if err := a.engine.CancelCode(r.Context(), r.PathValue("id"), r.PathValue("run")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// sendCode answers with the events of a run, in the form that is asked for.
func (a *API) sendCode(w http.ResponseWriter, r *http.Request, open func(context.Context) (sandbox.CodeEvents, error)) error {
	form, err := accepted(r, wire.TypeJSON, wire.TypeNDJSON, wire.TypeSSE)
	if err != nil {
		return err
	}
	ctx, cancel := a.untilClose(r)
	defer cancel()
	if form != wire.TypeJSON {
		return follow(a, w, r, form, func(context.Context) (source[sandbox.CodeEvent], error) { return open(ctx) },
			func(e sandbox.CodeEvent) (name, cursor string) { return string(e.Type), strconv.FormatInt(e.Seq, 10) })
	}
	events, err := open(ctx)
	if err != nil {
		return because(ctx, err)
	}
	c := codeCollector{out: wire.CodeOutput{Results: []sandbox.CodeResult{}}}
	if err := pump[sandbox.CodeEvent](ctx, events, &c); err != nil {
		return because(ctx, err)
	}
	c.out.Stdout, c.out.Stderr = c.stdout.String(), c.stderr.String()
	return writeJSON(w, http.StatusOK, c.out)
}

// maxCodeAnswer bounds what is collected of a run, in bytes; the newest is left out.
const maxCodeAnswer = 48 << 20

// codeCollector makes one answer of a run's events.
type codeCollector struct {
	out            wire.CodeOutput
	stdout, stderr strings.Builder
	size           int
}

// Event takes one event.
func (c *codeCollector) Event(e sandbox.CodeEvent) error {
	if !c.fits(e) {
		c.out.Missed++
		return nil
	}
	switch e.Type {
	case sandbox.CodeStarted:
		c.out.Run, c.out.Context = e.Run, e.Context
	case sandbox.CodeStdout:
		c.stdout.WriteString(e.Text)
	case sandbox.CodeStderr:
		c.stderr.WriteString(e.Text)
	case sandbox.CodeShown:
		c.out.Results = append(c.out.Results, *e.Result)
	case sandbox.CodeRaised:
		c.out.Error = e.Error
	case sandbox.CodeMissed:
		c.out.Missed += e.Missed
	case sandbox.CodeEnded:
		c.out.End = e.End
	}
	return nil
}

// fits counts what an event holds of texts and results.
func (c *codeCollector) fits(e sandbox.CodeEvent) bool {
	n := len(e.Text)
	if r := e.Result; r != nil {
		n += len(r.Text) + len(r.HTML) + len(r.Markdown) + len(r.SVG) + len(r.PNG) + len(r.JPEG) + len(r.PDF) + len(r.LaTeX) +
			len(r.JavaScript) + len(r.JSON) + len(r.Data) + len(r.Chart)
		for _, x := range r.Extra {
			n += len(x)
		}
	}
	if n > 0 && c.size+n > maxCodeAnswer {
		return false
	}
	c.size += n
	return true
}

// KeepAlive does nothing: the answer comes at the end.
func (c *codeCollector) KeepAlive() error { return nil }
