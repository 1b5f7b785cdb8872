package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

func (a *API) templates(w http.ResponseWriter, r *http.Request) error {
	all, err := a.engine.Templates(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Templates{Templates: orEmpty(all)})
}

func (a *API) template(w http.ResponseWriter, r *http.Request) error {
	t, err := a.engine.Template(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, t)
}

func (a *API) removeTemplate(w http.ResponseWriter, r *http.Request) error {
	if err := a.engine.RemoveTemplate(r.Context(), r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// buildTemplate waits for the template, or streams how it is made.
func (a *API) buildTemplate(w http.ResponseWriter, r *http.Request) error {
	form, err := accepted(r, wire.TypeJSON, wire.TypeSSE)
	if err != nil {
		return err
	}
	var req sandbox.BuildRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if err := req.Check(); err != nil { // while it can still have a status
		return err
	}
	ctx, cancel := a.untilClose(r)
	defer cancel()
	if form == wire.TypeSSE {
		return a.streamBuild(ctx, w, req)
	}
	t, err := a.engine.BuildTemplate(ctx, req, func(sandbox.Progress) {})
	if err != nil {
		return because(ctx, err)
	}
	return writeJSON(w, http.StatusOK, t)
}

func (a *API) streamBuild(ctx context.Context, w http.ResponseWriter, req sandbox.BuildRequest) error {
	out := begin(w, wire.TypeSSE).(*wire.SSEWriter)
	t, err := a.build(ctx, out, req)
	if err != nil {
		return out.Error(a.errorBody(w.(*answer), because(ctx, err))) // told in the stream itself
	}
	return out.Named(wire.EventDone, t)
}

// build runs a build and sends its progress. A client that goes ends the build.
func (a *API) build(ctx context.Context, out *wire.SSEWriter, req sandbox.BuildRequest) (t sandbox.Template, err error) {
	ctx, cancel := context.WithCancel(ctx)
	progress := make(chan sandbox.Progress)
	var builder sync.WaitGroup
	builder.Go(func() {
		defer close(progress)
		t, err = a.engine.BuildTemplate(ctx, req, func(p sandbox.Progress) {
			select {
			case progress <- p:
			case <-ctx.Done():
			}
		})
	})
	sent := sendProgress(progress, out)
	cancel()
	builder.Wait()
	if sent != nil {
		return t, sent
	}
	return t, err
}

// sendProgress sends until the channel is closed or the client is gone.
func sendProgress(progress <-chan sandbox.Progress, out *wire.SSEWriter) error {
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	for {
		var err error
		select {
		case p, more := <-progress:
			if !more {
				return nil
			}
			err = out.Named(wire.EventProgress, p)
		case <-quiet.C:
			err = out.KeepAlive()
		}
		if err != nil {
			return &sandbox.Error{Op: "send progress", Kind: sandbox.Unavailable, Err: err}
		}
	}
}
