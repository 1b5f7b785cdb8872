package guest

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// processService answers what goes beyond the first contract's calls.
type processService struct{ *Guest }

func (s *processService) WaitLine(ctx context.Context, r *connect.Request[guestv1.WaitLineRequest]) (*connect.Response[guestv1.WaitLineResponse], error) {
	p, err := s.procs.find(r.Msg.Process)
	if err != nil {
		return nil, err
	}
	line, err := waitLine(ctx, p, r.Msg)
	return answer(line, err)
}

func (s *processService) WaitPort(ctx context.Context, r *connect.Request[guestv1.WaitPortRequest]) (*connect.Response[guestv1.WaitPortResponse], error) {
	var p *process
	if r.Msg.Process != "" {
		var err error
		if p, err = s.procs.find(r.Msg.Process); err != nil {
			return nil, err
		}
	}
	found, err := waitPort(ctx, p, r.Msg)
	return answer(found, err)
}

func (s *processService) Forget(ctx context.Context, r *connect.Request[guestv1.ForgetRequest]) (*connect.Response[guestv1.ForgetResponse], error) {
	p, err := s.procs.find(r.Msg.Process)
	if err != nil {
		return nil, err
	}
	p.kill()
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, connect.NewError(codeOfContext(ctx), ctx.Err())
	}
	s.procs.forget(p)
	return answer(&guestv1.ForgetResponse{Exit: p.describe().Exit}, nil)
}

// forget drops an ended process, its output as soon as nobody reads it.
func (t *table) forget(p *process) {
	p.out.forget()
	t.mu.Lock()
	defer t.mu.Unlock()
	p.forgotten = true
	t.ended = slices.DeleteFunc(t.ended, func(q *process) bool { return q == p })
}
