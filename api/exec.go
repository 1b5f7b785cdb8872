package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

func (a *API) exec(w http.ResponseWriter, r *http.Request) error {
	return a.runCommand(w, r, a.engine.Exec)
}

// runCommand starts the command of a request and streams what it does.
func (a *API) runCommand(w http.ResponseWriter, r *http.Request, start func(context.Context, string, sandbox.Command) (sandbox.Events, error)) error {
	form, err := accepted(r, wire.TypeJSON, wire.TypeSSE, wire.TypeRaw)
	if err != nil {
		return err
	}
	req, err := commandOf(w, r)
	if err != nil {
		return err
	}
	if form == wire.TypeJSON {
		req.Lossless = true // the answer reads as fast as the process writes
	}
	ctx, cancel := a.untilClose(r)
	defer cancel()
	id, stdin := r.PathValue("id"), req.Stdin
	req.Stdin = req.Stdin || len(req.StdinData) > 0
	events, err := start(ctx, id, req.Command)
	if err != nil {
		return err
	}
	started, err := firstOf(events)
	if err != nil {
		return err
	}
	var feeder sync.WaitGroup
	defer feeder.Wait()
	defer cancel() // before the wait
	if len(req.StdinData) > 0 {
		feeder.Go(func() { a.feed(ctx, id, started.first.Started.ID, req.StdinData, !stdin) })
	}
	return a.sendEvents(ctx, w, form, started)
}

// commandOf reads the command from a request's body.
func commandOf(w http.ResponseWriter, r *http.Request) (*wire.Exec, error) {
	var req wire.Exec
	if err := decode(w, r, &req); err != nil {
		return nil, err
	}
	if req.TimeoutMS < 0 || req.TimeoutMS > int64(math.MaxInt64/time.Millisecond) {
		return nil, &sandbox.Error{Op: "check command", Kind: sandbox.Invalid, Err: fmt.Errorf("timeout_ms is %d", req.TimeoutMS),
			Hint: "timeout_ms takes 1 or more; leave it out for none"}
	}
	req.Timeout = time.Duration(req.TimeoutMS) * time.Millisecond
	return &req, nil
}

// feed writes the input that came with the request. A process that ends without
// reading it all is no error; whatever else breaks breaks the events too.
func (a *API) feed(ctx context.Context, id, process string, data []byte, end bool) {
	if a.engine.Input(ctx, id, process, bytes.NewReader(data)) == nil && end {
		_ = a.engine.CloseInput(ctx, id, process)
	}
}

// firstOf waits for the event Started, so that a start that fails still gets a
// status of its own.
func firstOf(events sandbox.Events) (*begun, error) {
	e, err := events.Recv()
	if err == nil && e.Started == nil {
		err = sandbox.Errorf("exec", sandbox.Internal, "the first event is not the start")
	}
	if err != nil {
		return nil, errors.Join(err, events.Close())
	}
	return &begun{Events: events, first: e}, nil
}

// begun is a stream whose first event has been looked at.
type begun struct {
	sandbox.Events
	first sandbox.Event
	given bool
}

func (b *begun) Recv() (sandbox.Event, error) {
	if !b.given {
		b.given = true
		return b.first, nil
	}
	return b.Events.Recv()
}
