package e2b

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/dialect/e2b/envd/process"
	"github.com/berth-dev/berth/sandbox"
)

// closeTime bounds the end of a terminal whose time is over.
const closeTime = 30 * time.Second

// startTerminal runs a program with a terminal. It lives on when the stream ends;
// at the request's deadline it is ended.
func (p *processes) startTerminal(ctx context.Context, t *target, r *process.StartRequest, ping time.Duration, send func(*process.ProcessEvent) error) error {
	config := r.Process
	req := sandbox.TerminalRequest{New: true, Argv: append([]string{config.Cmd}, config.Args...), Env: t.env(config.Envs), Cwd: t.cwd(config), User: t.user,
		Cols: int(r.Pty.GetSize().GetCols()), Rows: int(r.Pty.GetSize().GetRows())}
	term, _, err := p.engine.OpenTerminal(ctx, t.id, req)
	if err != nil {
		return p.startError(ctx, t, req.Cwd, err)
	}
	events, err := p.engine.AttachTerminal(ctx, t.id, term.ID, sandbox.TerminalAttach{Resume: true})
	if err != nil {
		return err
	}
	err = relayTerminal(ctx, events, ping, send)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		if cerr := p.engine.CloseTerminal(end, t.id, term.ID); cerr != nil && sandbox.KindOf(cerr) != sandbox.NotFound {
			return errors.Join(err, cerr)
		}
		return connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
	}
	return err
}

// relayTerminal sends what a terminal prints from now on. What draws the screen
// that was there is left out: these clients do not expect it.
func relayTerminal(ctx context.Context, events sandbox.TerminalEvents, ping time.Duration, send func(*process.ProcessEvent) error) error {
	return pump(ctx, events.Recv, events.Close, ping, func(e sandbox.TerminalEvent) (bool, error) {
		switch {
		case e.Attached != nil:
			return false, send(started(e.Attached.PID))
		case e.Exit != nil:
			return true, send(ended(e.Exit))
		case len(e.Data) > 0 && !e.Seeding:
			return false, send(output(&process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Pty{Pty: e.Data}}))
		}
		return false, nil
	}, func() error { return send(alive()) })
}
