package guest

import (
	"context"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// viewer is one client's place in a terminal's output. It never holds the
// terminal up: one that falls behind what is kept gets the screen anew.
type viewer struct {
	t          *terminal
	wake       chan struct{} // told when there may be more
	at         int64
	seed       bool   // the screen is to be drawn first
	scrolled   bool   // with what scrolled off
	seeding    []byte // of the seed, not yet given
	cols, rows int    // the client knows of
	buf        []byte
}

// view attaches a client. A size, if given, is set first, so that the seed has it.
func (t *terminal) view(r *guestv1.AttachTerminalRequest) (*viewer, error) {
	if r.Cols != 0 || r.Rows != 0 {
		if err := checkSize(r.Cols, r.Rows); err != nil {
			return nil, err
		}
		if err := t.resize(int(r.Cols), int(r.Rows)); err != nil && codeOf(err) != conflict { // what has ended can be looked at
			return nil, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Resume && (r.Offset < 0 || r.Offset > t.kept.end) {
		return nil, refuse(invalid, "leave the offset out to get the screen", "offset %d lies outside of the %d bytes printed", r.Offset, t.kept.end)
	}
	if len(t.viewers) >= maxViewers {
		return nil, refuse(exhausted, "detach some clients", "%d clients are attached", len(t.viewers))
	}
	v := &viewer{t: t, wake: make(chan struct{}, 1), cols: t.cols, rows: t.rows}
	if r.Resume && r.Offset >= t.kept.start() {
		v.at = r.Offset
	} else {
		// One who comes back has what scrolled off before it left.
		v.seed, v.scrolled = true, !r.Resume
	}
	t.viewers[v] = struct{}{}
	return v, nil
}

func (v *viewer) close() {
	v.t.mu.Lock()
	defer v.t.mu.Unlock()
	delete(v.t.viewers, v)
}

// next gives the next event, or nil when there is none yet. Its bytes are good
// until the next call.
func (v *viewer) next() *guestv1.TerminalEvent {
	if len(v.seeding) > 0 {
		part := v.seeding[:min(len(v.seeding), chunk)]
		v.seeding = v.seeding[len(part):]
		return &guestv1.TerminalEvent{Event: &guestv1.TerminalEvent_SeedData{SeedData: part}}
	}
	t := v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if v.seed || v.at < t.kept.start() {
		v.seeding = t.screen.Seed(v.scrolled)
		v.seed, v.scrolled, v.at, v.cols, v.rows = false, false, t.kept.end, t.cols, t.rows
		return &guestv1.TerminalEvent{Event: &guestv1.TerminalEvent_Seed{Seed: &guestv1.Seed{
			Offset: v.at, Bytes: int64(len(v.seeding)), Cols: uint32(v.cols), Rows: uint32(v.rows)}}}
	}
	v.seeding = nil
	if v.cols != t.cols || v.rows != t.rows {
		v.cols, v.rows = t.cols, t.rows
		return &guestv1.TerminalEvent{Event: &guestv1.TerminalEvent_Resized{Resized: &guestv1.Size{Cols: uint32(v.cols), Rows: uint32(v.rows)}}}
	}
	if left := int(t.kept.end - v.at); left > 0 {
		left = min(left, chunk)
		if cap(v.buf) < left {
			v.buf = make([]byte, left)
		}
		n := t.kept.read(v.at, v.buf[:left])
		at := v.at
		v.at += int64(n)
		return &guestv1.TerminalEvent{Event: &guestv1.TerminalEvent_Output{Output: &guestv1.TerminalOutput{Offset: at, Data: v.buf[:n]}}}
	}
	if t.exit != nil {
		return &guestv1.TerminalEvent{Event: &guestv1.TerminalEvent_Exit{Exit: t.exit}}
	}
	return nil
}

// follow sends what the terminal shows until its exit.
func (v *viewer) follow(ctx context.Context, send func(*guestv1.TerminalEvent) error) error {
	if err := send(&guestv1.TerminalEvent{Event: &guestv1.TerminalEvent_Attached{Attached: v.t.describe()}}); err != nil {
		return err
	}
	bell := time.NewTicker(silence)
	defer bell.Stop()
	for {
		if e := v.next(); e != nil {
			if err := send(e); err != nil || e.GetExit() != nil {
				return err
			}
			continue
		}
		select {
		case <-v.wake:
			bell.Reset(silence)
		case <-bell.C:
			if err := send(&guestv1.TerminalEvent{Event: &guestv1.TerminalEvent_KeepAlive{KeepAlive: &guestv1.KeepAlive{}}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return connect.NewError(codeOfContext(ctx), ctx.Err())
		}
	}
}
