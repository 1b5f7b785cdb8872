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
	form, err := accepted(r, wire.TypeJSON, wire.TypeSSE, wire.TypeRaw)
	if err != nil {
		return err
	}
	var req wire.Exec
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if req.TimeoutMS < 0 || req.TimeoutMS > int64(math.MaxInt64/time.Millisecond) {
		return &sandbox.Error{Op: "check command", Kind: sandbox.Invalid, Err: fmt.Errorf("timeout_ms is %d", req.TimeoutMS),
			Hint: "timeout_ms takes 1 or more; leave it out for none"}
	}
	cmd := req.Command
	cmd.Timeout = time.Duration(req.TimeoutMS) * time.Millisecond
	cmd.Stdin = cmd.Stdin || len(req.StdinData) > 0
	if form == wire.TypeJSON {
		cmd.Lossless = true // the answer reads as fast as the process writes
	}
	ctx, cancel := a.untilClose(r)
	defer cancel()
	id := r.PathValue("id")
	events, err := a.engine.Exec(ctx, id, cmd)
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
		feeder.Go(func() { a.feed(ctx, id, started.first.Started.ID, &req) })
	}
	return a.sendEvents(ctx, w, form, started)
}

// feed writes the input that came with the request. A process that ends without
// reading it all is no error; whatever else breaks breaks the events too.
func (a *API) feed(ctx context.Context, id, process string, req *wire.Exec) {
	if a.engine.Input(ctx, id, process, bytes.NewReader(req.StdinData)) == nil && !req.Stdin {
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
