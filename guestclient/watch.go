package guestclient

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

// Watch streams what changes at or beneath a path. The first event is Ready, or
// Overflow when the cursor could not be gone on from.
func (c *Client) Watch(ctx context.Context, r sandbox.WatchRequest) (sandbox.Watch, error) {
	op := "watch " + text(r.Path, maxText)
	if err := r.Check(); err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	q := &guestv1.WatchRequest{Path: []byte(r.Path), Recursive: r.Recursive, Include: r.Include, Exclude: r.Exclude, Cursor: r.Cursor}
	if r.Window > 0 {
		ms := int32(r.Window.Milliseconds())
		q.WindowMs = &ms
	}
	w := &watch{op: op, root: strings.TrimRight(path.Clean(r.Path), "/")}
	w.ctx, w.cancel = context.WithCancel(ctx)
	late := time.AfterFunc(callTime, w.cancel)
	in, err := c.eyes.Watch(w.ctx, connect.NewRequest(q))
	if err != nil {
		err = failed(w.ctx, op, err)
	} else {
		w.in = in
		w.first, err = w.begin()
	}
	if !late.Stop() && ctx.Err() == nil {
		err = sandbox.Errorf(op, sandbox.Timeout, "the guest did not answer in %v", callTime)
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// watch is one stream of changes, held to the contract.
type watch struct {
	op     string
	root   string // without a slash at the end
	ctx    context.Context
	cancel context.CancelFunc
	in     *connect.ServerStreamForClient[guestv1.WatchMessage]
	first  *sandbox.WatchEvent // until it has been given

	recv sync.Mutex // held by Recv
	end  error      // what every later Recv returns
}

// begin receives the first event.
func (w *watch) begin() (*sandbox.WatchEvent, error) {
	if !w.in.Receive() {
		if err := w.in.Err(); err != nil {
			return nil, failed(w.ctx, w.op, err)
		}
		return nil, broken(w.op, "a stream without events")
	}
	if r := w.in.Msg().GetReady(); r != nil {
		if err := sandbox.CheckWatchCursor(r.Cursor); err != nil {
			return nil, broken(w.op, "%w", err)
		}
		return &sandbox.WatchEvent{Type: sandbox.WatchReady, Cursor: r.Cursor}, nil
	}
	e, err := w.event(w.in.Msg().GetEvent())
	if err == nil && e.Type != sandbox.WatchOverflow {
		err = broken(w.op, "the first event is not that it is ready")
	}
	return &e, err
}

// Recv returns the next change.
func (w *watch) Recv() (sandbox.WatchEvent, error) {
	w.recv.Lock()
	defer w.recv.Unlock()
	if w.first != nil {
		e := *w.first
		w.first = nil
		return e, nil
	}
	if w.end != nil {
		return sandbox.WatchEvent{}, w.end
	}
	e, err := w.next()
	if err != nil {
		w.end = err
		w.cancel()
	}
	return e, err
}

func (w *watch) next() (sandbox.WatchEvent, error) {
	for w.in.Receive() {
		m := w.in.Msg()
		switch {
		case m.GetEvent() != nil:
			return w.event(m.GetEvent())
		case m.GetReady() != nil:
			return sandbox.WatchEvent{}, broken(w.op, "it is ready twice")
		}
		// A sign of life, or a message that this build does not know.
	}
	if err := w.in.Err(); err != nil {
		return sandbox.WatchEvent{}, failed(w.ctx, w.op, err)
	}
	if w.ctx.Err() != nil {
		return sandbox.WatchEvent{}, &sandbox.Error{Op: w.op, Err: w.ctx.Err()}
	}
	return sandbox.WatchEvent{}, sandbox.Errorf(w.op, sandbox.Unavailable, "the guest ended the stream")
}

// event takes an event over. A path outside of what is watched is refused.
func (w *watch) event(e *guestv1.WatchEvent) (sandbox.WatchEvent, error) {
	out := sandbox.WatchEvent{Type: sandbox.WatchType(e.GetType()), Path: string(e.GetPath()), From: string(e.GetFrom()),
		Entry: fileTypes[e.GetEntry()], Cursor: e.GetCursor(), Reason: text(e.GetReason(), maxText)}
	if n := e.GetTimeUnixNano(); n != 0 {
		out.Time = time.Unix(0, n).UTC()
	}
	err := sandbox.CheckWatchCursor(out.Cursor)
	switch {
	case err != nil:
	case out.Type == sandbox.WatchReady || !slices.Contains(sandbox.WatchTypes(), out.Type):
		err = errorf("an event of type %.40q", e.GetType())
	case out.Type == sandbox.WatchOverflow:
		out.Path, out.From = "", ""
	default:
		if err = w.inside(out.Path); err == nil && (out.From != "" || out.Type == sandbox.WatchRename) {
			err = w.inside(out.From)
		}
	}
	if err != nil {
		return sandbox.WatchEvent{}, broken(w.op, "%w", err)
	}
	return out, nil
}

func (w *watch) inside(p string) error {
	if err := sandbox.CheckPath(p); err != nil {
		return err
	}
	if p != w.root && !strings.HasPrefix(p, w.root+"/") {
		return errorf("the path %.200q does not lie in %.200q", p, w.root)
	}
	return nil
}

// Close ends the stream. A Recv that waits returns an error.
func (w *watch) Close() error {
	w.cancel()
	w.recv.Lock()
	defer w.recv.Unlock()
	if w.end == nil {
		w.end = sandbox.Errorf(w.op, sandbox.Unavailable, "the stream is closed: %w", errClosed)
	}
	if w.in != nil {
		w.in.Close()
		w.in = nil
	}
	return nil
}
