package guest

import (
	"context"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// silence is how long a stream says nothing before it says that it lives.
const silence = 15 * time.Second

// follow sends what a process does, from the cursor on, until its exit.
func follow(ctx context.Context, p *process, c *cursor, send func(*guestv1.ProcessEvent) error) error {
	if err := send(&guestv1.ProcessEvent{Event: &guestv1.ProcessEvent_Started{Started: p.describe()}}); err != nil {
		return err
	}
	bell := time.NewTicker(silence)
	defer bell.Stop()
	for {
		if e := c.next(); e != nil {
			if e.GetExit() != nil {
				gatheringOf(ctx).complete()
			}
			if err := send(e); err != nil || e.GetExit() != nil {
				return err
			}
			continue
		}
		select {
		case <-c.wake:
			bell.Reset(silence)
		case <-bell.C:
			if err := send(&guestv1.ProcessEvent{Event: &guestv1.ProcessEvent_KeepAlive{KeepAlive: &guestv1.KeepAlive{}}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return connect.NewError(codeOfContext(ctx), ctx.Err())
		}
	}
}
