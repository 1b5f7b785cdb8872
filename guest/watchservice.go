package guest

import (
	"context"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// watchService answers the calls of v1.Watcher.
type watchService struct{ *Guest }

// watchAlive is how long a stream may say nothing.
const watchAlive = 15 * time.Second

func (s *watchService) Watch(ctx context.Context, r *connect.Request[guestv1.WatchRequest], out *connect.ServerStream[guestv1.WatchMessage]) error {
	at, err := s.watches.open(ctx, r.Msg)
	if err != nil {
		return err
	}
	defer s.watches.release(at.w)
	log, next := at.w.log, at.at
	first := &guestv1.WatchMessage{Message: &guestv1.WatchMessage_Ready{Ready: &guestv1.WatchReady{Cursor: log.cursor(next)}}}
	if at.lost {
		first = eventMessage(overflowEvent("the cursor is no longer kept", log.cursor(next)))
	}
	if err := out.Send(first); err != nil {
		return err
	}
	alive := time.NewTicker(watchAlive)
	defer alive.Stop()
	for {
		events, after, wait, err := log.after(next)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := out.Send(eventMessage(e)); err != nil {
				return err
			}
			alive.Reset(watchAlive)
		}
		if next = after; len(events) > 0 {
			continue
		}
		select {
		case <-wait:
		case <-alive.C:
			if err := out.Send(&guestv1.WatchMessage{Message: &guestv1.WatchMessage_KeepAlive{KeepAlive: &guestv1.WatchKeepAlive{}}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return connect.NewError(codeOfContext(ctx), ctx.Err())
		}
	}
}

func eventMessage(e *guestv1.WatchEvent) *guestv1.WatchMessage {
	return &guestv1.WatchMessage{Message: &guestv1.WatchMessage_Event{Event: e}}
}
