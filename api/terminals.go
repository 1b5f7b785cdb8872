package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

func (a *API) terminals(w http.ResponseWriter, r *http.Request) error {
	all, err := a.engine.Terminals(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Terminals{Terminals: orEmpty(all)})
}

func (a *API) openTerminal(w http.ResponseWriter, r *http.Request) error {
	var req sandbox.TerminalRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	t, made, err := a.engine.OpenTerminal(r.Context(), r.PathValue("id"), req)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if made {
		status = http.StatusCreated
	}
	return writeJSON(w, status, t)
}

// terminal describes one, or joins a WebSocket to it.
func (a *API) terminal(w http.ResponseWriter, r *http.Request) error {
	if isWebSocket(r) {
		return a.joinTerminal(w, r)
	}
	all, err := a.engine.Terminals(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	want := r.PathValue("terminal")
	for i := len(all) - 1; i >= 0; i-- { // the newest of a name
		if t := all[i]; t.ID == want || t.Name == want {
			return writeJSON(w, http.StatusOK, t)
		}
	}
	return &sandbox.Error{Op: "get terminal", Kind: sandbox.NotFound, Err: fmt.Errorf("no terminal %.80q", want),
		Hint: "list the sandbox's terminals to see their names"}
}

func isWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

func (a *API) closeTerminal(w http.ResponseWriter, r *http.Request) error {
	if err := a.engine.CloseTerminal(r.Context(), r.PathValue("id"), r.PathValue("terminal")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *API) resizeTerminal(w http.ResponseWriter, r *http.Request) error {
	var size sandbox.TerminalSize
	if err := decode(w, r, &size); err != nil {
		return err
	}
	if err := a.engine.ResizeTerminal(r.Context(), r.PathValue("id"), r.PathValue("terminal"), size.Cols, size.Rows); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *API) signalTerminal(w http.ResponseWriter, r *http.Request) error {
	var req wire.Signal
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if err := checkSignal(req.Signal); err != nil {
		return err
	}
	if err := a.engine.SignalTerminal(r.Context(), r.PathValue("id"), r.PathValue("terminal"), req.Signal); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func checkSignal(s string) error {
	if s == "" || len(s) > 32 {
		return &sandbox.Error{Op: "signal", Kind: sandbox.Invalid, Err: fmt.Errorf("%.40q is not a signal", s),
			Hint: "a signal is a name or a number, such as SIGTERM or 15"}
	}
	return nil
}

// typeTerminal types the body as it comes, for as long as it takes.
func (a *API) typeTerminal(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := a.untilClose(r)
	defer cancel()
	rc := http.NewResponseController(w)
	detach := context.AfterFunc(a.ctx, func() { _ = rc.SetReadDeadline(time.Now()) }) // wakes a reader that waits for more
	defer detach()
	if err := a.engine.TerminalInput(ctx, r.PathValue("id"), r.PathValue("terminal"), r.Body); err != nil {
		return because(ctx, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
