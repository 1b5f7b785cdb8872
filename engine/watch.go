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
	s, l, err := e.running(ctx, id)
	if err != nil {
		return nil, fail(op, known(id), err)
	}
	w, err := l.guest.Watch(ctx, r)
	if err != nil {
		return nil, explain(ctx, op, s, l, err)
	}
	return &explainedWatch{w, func(err error) error { return explain(ctx, op, s, l, err) }}, nil
}

// explainedWatch is a watch whose break is explained.
type explainedWatch struct {
	sandbox.Watch
	why func(error) error
}

func (w *explainedWatch) Recv() (sandbox.WatchEvent, error) {
	event, err := w.Watch.Recv()
	if err != nil {
		err = w.why(err)
	}
	return event, err
}
