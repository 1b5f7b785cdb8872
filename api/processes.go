package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

func (a *API) processes(w http.ResponseWriter, r *http.Request) error {
	all, err := a.engine.Processes(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Processes{Processes: orEmpty(all)})
}

// process finds one by its id, or a live one by its name.
func (a *API) process(w http.ResponseWriter, r *http.Request) error {
	all, err := a.engine.Processes(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	want := r.PathValue("process")
	for _, p := range all {
		if p.ID == want || p.Name == want && p.Exit == nil {
			return writeJSON(w, http.StatusOK, p)
		}
	}
	return &sandbox.Error{Op: "get process", Kind: sandbox.NotFound, Err: fmt.Errorf("no process %.80q", want),
		Hint: "list the sandbox's processes to see their ids"}
}

func (a *API) attach(w http.ResponseWriter, r *http.Request) error {
	form, err := accepted(r, wire.TypeJSON, wire.TypeSSE, wire.TypeRaw)
	if err != nil {
		return err
	}
	q := queryOf(r)
	from := sandbox.Offsets{Stdout: q.number("stdout", 10, 64), Stderr: q.number("stderr", 10, 64)}
	if err := q.check(); err != nil {
		return err
	}
	ctx, cancel := a.untilClose(r)
	defer cancel()
	events, err := a.engine.Attach(ctx, r.PathValue("id"), r.PathValue("process"), from)
	if err != nil {
		return err
	}
	started, err := firstOf(events)
	if err != nil {
		return err
	}
	return a.sendEvents(ctx, w, form, started)
}

// input passes the body on as it comes, for as long as it takes.
func (a *API) input(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	end := q.boolean("close")
	if err := q.check(); err != nil {
		return err
	}
	ctx, cancel := a.untilClose(r)
	defer cancel()
	rc := http.NewResponseController(w)
	detach := context.AfterFunc(ctx, func() { _ = rc.SetReadDeadline(time.Now()) }) // wakes a reader that waits for more
	defer detach()
	id, process := r.PathValue("id"), r.PathValue("process")
	if err := a.engine.Input(ctx, id, process, r.Body); err != nil {
		return because(ctx, err)
	}
	if end {
		if err := a.engine.CloseInput(ctx, id, process); err != nil {
			return because(ctx, err)
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *API) signal(w http.ResponseWriter, r *http.Request) error {
	var req wire.Signal
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if err := checkSignal(req.Signal); err != nil {
		return err
	}
	if err := a.engine.Signal(r.Context(), r.PathValue("id"), r.PathValue("process"), req.Signal); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// because replaces the error of a context that the API ended by its cause.
func because(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errClosing) {
		return errClosing
	}
	return err
}

// orEmpty makes an empty list of none, which JSON would write as null.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
