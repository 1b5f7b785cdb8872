package guest

import (
	"context"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// terminalService answers the contract's calls on terminals.
type terminalService struct{ *Guest }

func (s *terminalService) Open(_ context.Context, r *connect.Request[guestv1.OpenTerminalRequest]) (*connect.Response[guestv1.OpenTerminalResponse], error) {
	t, made, err := s.terms.open(r.Msg, func() (*plan, error) { return s.planTerminal(r.Msg) })
	if err != nil {
		return nil, err
	}
	return answer(&guestv1.OpenTerminalResponse{Terminal: t.describe(), Made: made}, nil)
}

// planTerminal is the plan of the program, which is the login shell if none is
// named. Its environment says what the screen understands.
func (g *Guest) planTerminal(r *guestv1.OpenTerminalRequest) (*plan, error) {
	env := append([][]byte{[]byte("TERM=xterm-256color"), []byte("COLORTERM=truecolor")}, r.Env...)
	start := &guestv1.StartRequest{Argv: r.Argv, Shell: r.Shell, Env: env, Cwd: r.Cwd, User: r.User}
	if len(r.Argv) > 0 || len(r.Shell) > 0 {
		return g.plan(start)
	}
	who, err := g.runAs(&plan{}, r.User)
	if err != nil {
		return nil, err
	}
	for _, shell := range []string{who.shell, "/bin/bash", "/bin/sh"} {
		start.Argv = [][]byte{[]byte(shell)}
		var p *plan
		if p, err = g.plan(start); err == nil {
			p.loginShell()
			return p, nil
		}
		if checkProgram(shell, shell) == nil {
			break // the shell is not what is wrong
		}
	}
	return nil, err
}

func (s *terminalService) Attach(ctx context.Context, r *connect.Request[guestv1.AttachTerminalRequest], out *connect.ServerStream[guestv1.TerminalEvent]) error {
	t, err := s.terms.find(r.Msg.Terminal)
	if err != nil {
		return err
	}
	v, err := t.view(r.Msg)
	if err != nil {
		return err
	}
	defer v.close()
	return v.follow(ctx, out.Send)
}

func (s *terminalService) Input(ctx context.Context, r *connect.Request[guestv1.TerminalInputRequest]) (*connect.Response[guestv1.TerminalInputResponse], error) {
	t, err := s.terms.find(r.Msg.Terminal)
	if err == nil && len(r.Msg.Data) > maxInput {
		err = refuse(invalid, "send it in parts", "%d bytes of input, at most %d are taken at once", len(r.Msg.Data), maxInput)
	}
	if err == nil {
		err = t.in.write(ctx, r.Msg.Data)
	}
	return answer(&guestv1.TerminalInputResponse{}, err)
}

func (s *terminalService) Resize(_ context.Context, r *connect.Request[guestv1.ResizeTerminalRequest]) (*connect.Response[guestv1.ResizeTerminalResponse], error) {
	t, err := s.terms.find(r.Msg.Terminal)
	if err == nil {
		err = checkSize(r.Msg.Cols, r.Msg.Rows)
	}
	if err == nil {
		err = t.resize(int(r.Msg.Cols), int(r.Msg.Rows))
	}
	return answer(&guestv1.ResizeTerminalResponse{}, err)
}

func (s *terminalService) Signal(_ context.Context, r *connect.Request[guestv1.SignalTerminalRequest]) (*connect.Response[guestv1.SignalTerminalResponse], error) {
	sig, err := parseSignal(r.Msg.Signal)
	if err != nil {
		return nil, err
	}
	t, err := s.terms.find(r.Msg.Terminal)
	if err != nil {
		return nil, err
	}
	alive, err := t.kids.signalForeground(t.child, sig)
	if err == nil && !alive {
		err = errEnded()
	}
	return answer(&guestv1.SignalTerminalResponse{}, fromOS(err))
}

func (s *terminalService) Close(ctx context.Context, r *connect.Request[guestv1.CloseTerminalRequest]) (*connect.Response[guestv1.CloseTerminalResponse], error) {
	t, err := s.terms.find(r.Msg.Terminal)
	if err != nil {
		return nil, err
	}
	t.hangUp()
	select {
	case <-t.done:
		s.terms.remove(t)
	case <-ctx.Done():
		return nil, connect.NewError(codeOfContext(ctx), ctx.Err())
	}
	return answer(&guestv1.CloseTerminalResponse{}, nil)
}

func (s *terminalService) List(context.Context, *connect.Request[guestv1.ListTerminalsRequest]) (*connect.Response[guestv1.ListTerminalsResponse], error) {
	r := &guestv1.ListTerminalsResponse{}
	for _, t := range s.terms.list() {
		r.Terminals = append(r.Terminals, t.describe())
	}
	return answer(r, nil)
}
