package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// Watch streams what changes at or beneath a path; the first event is Ready, or
// Overflow when the cursor could not be gone on from. The stream lives no longer
// than ctx; the guest keeps what happens after its end for a while, for a Watch
// with its last cursor.
func (e *Engine) Watch(ctx context.Context, id string, r sandbox.WatchRequest) (sandbox.Watch, error) {
	const op = "watch"
	if err := r.Check(); err != nil {
		return nil, fail(op, "", err)
	}
	s, l, end, err := e.using(ctx, id, sandbox.ActivityStream)
	if err != nil {
		return nil, fail(op, known(id), err)
	}
	w, err := l.guest.Watch(ctx, r)
	if err != nil {
		end()
		return nil, explain(ctx, op, s, l, err)
	}
	why := func(err error) error { return explain(ctx, op, s, l, err) }
	return &explainedWatch{w, why, end, context.AfterFunc(ctx, end)}, nil
}

// explainedWatch is a watch whose break is explained.
type explainedWatch struct {
	sandbox.Watch
	why    func(error) error
	end    func() // of the activity
	detach func() bool
}

func (w *explainedWatch) Close() error {
	err := w.Watch.Close()
	w.detach()
	w.end()
	return err
}

func (w *explainedWatch) Recv() (sandbox.WatchEvent, error) {
	event, err := w.Watch.Recv()
	if err != nil {
		err = w.why(err)
	}
	return event, err
}
