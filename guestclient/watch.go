package guestclient

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

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
	return open(c.to(ctx), op, c.eyes.Watch, q, &watchReading{root: strings.TrimRight(path.Clean(r.Path), "/")})
}

// watchReading holds a stream of changes to the contract.
type watchReading struct {
	root string // without a slash at the end
}

func (w *watchReading) first(m *guestv1.WatchMessage) (sandbox.WatchEvent, error) {
	if r := m.GetReady(); r != nil {
		return sandbox.WatchEvent{Type: sandbox.WatchReady, Cursor: r.Cursor}, sandbox.CheckWatchCursor(r.Cursor)
	}
	e, err := w.event(m.GetEvent())
	if err == nil && e.Type != sandbox.WatchOverflow {
		err = errors.New("the first event is not that it is ready")
	}
	return e, err
}

func (w *watchReading) last(sandbox.WatchEvent) bool { return false }

func (w *watchReading) next(m *guestv1.WatchMessage) (sandbox.WatchEvent, bool, error) {
	switch x := m.Message.(type) {
	case *guestv1.WatchMessage_Event:
		e, err := w.event(x.Event)
		return e, true, err
	case *guestv1.WatchMessage_Ready:
		return sandbox.WatchEvent{}, false, errors.New("it is ready twice")
	}
	return sandbox.WatchEvent{}, false, nil
}

// event takes an event over. A path outside of what is watched is refused.
func (w *watchReading) event(e *guestv1.WatchEvent) (sandbox.WatchEvent, error) {
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
	return out, err
}

func (w *watchReading) inside(p string) error {
	if err := sandbox.CheckPath(p); err != nil {
		return err
	}
	if p != w.root && !strings.HasPrefix(p, w.root+"/") {
		return errorf("the path %.200q does not lie in %.200q", p, w.root)
	}
	return nil
}
