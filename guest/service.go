package guest

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/guestapi"
	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// service answers the contract's calls. It holds no state: each call is one
// line or two into the parts that do.
type service struct{ *Guest }

func (s *service) Hello(context.Context, *connect.Request[guestv1.HelloRequest]) (*connect.Response[guestv1.HelloResponse], error) {
	return connect.NewResponse(&guestv1.HelloResponse{
		Protocol: guestapi.Protocol, Version: s.config.Version, SandboxId: s.self.sandboxID(),
		Pid: int32(pid()), BootUnixNano: s.boot.UnixNano(),
	}), nil
}

func (s *service) Start(ctx context.Context, r *connect.Request[guestv1.StartRequest], out *connect.ServerStream[guestv1.ProcessEvent]) error {
	begun := time.Now()
	if g := gatheringOf(ctx); g != nil {
		begun = g.begun
	}
	plan, err := s.outline(r.Msg)
	if err != nil {
		return err
	}
	plan.setMark()
	planned, brief := time.Now(), time.Duration(0)
	prompt := r.Msg.Stdin || r.Msg.Detach && !r.Msg.Lossless // somebody waits for its id, not for what it says
	if gatheringOf(ctx) != nil && !prompt {
		brief = gatherTime - planned.Sub(begun)
	}
	p, cursor, err := s.procs.start(plan, r.Msg, s.look, brief)
	if err != nil {
		return err
	}
	if prompt {
		gatheringOf(ctx).release()
	}
	if err = follow(ctx, p, cursor, out.Send); err == nil {
		ended := p.endedAt()
		out.ResponseTrailer().Set(guestapi.TimingTrailer, guestapi.Timing{Plan: planned.Sub(begun), Start: p.started.Sub(planned),
			Run: ended.Sub(p.started), Output: time.Since(ended)}.String())
	}
	cursor.close()
	s.part(p)
	return err
}

func (s *service) Attach(ctx context.Context, r *connect.Request[guestv1.AttachRequest], out *connect.ServerStream[guestv1.ProcessEvent]) error {
	p, err := s.procs.find(r.Msg.Process)
	if err != nil {
		return err
	}
	cursor, err := p.out.read([streams]int64{r.Msg.StdoutOffset, r.Msg.StderrOffset})
	if err != nil {
		return err
	}
	defer cursor.close()
	return follow(ctx, p, cursor, out.Send)
}

// maxInput bounds the bytes of one Input.
const maxInput = 1 << 20

func (s *service) Input(ctx context.Context, r *connect.Request[guestv1.InputRequest]) (*connect.Response[guestv1.InputResponse], error) {
	in, err := s.input(r.Msg.Process)
	if err == nil && len(r.Msg.Data) > maxInput {
		err = refuse(invalid, "send it in parts", "%d bytes of input, at most %d are taken at once", len(r.Msg.Data), maxInput)
	}
	if err == nil {
		err = in.write(ctx, r.Msg.Data)
	}
	return answer(&guestv1.InputResponse{}, err)
}

func (s *service) CloseInput(ctx context.Context, r *connect.Request[guestv1.CloseInputRequest]) (*connect.Response[guestv1.CloseInputResponse], error) {
	in, err := s.input(r.Msg.Process)
	if err == nil {
		err = in.close(ctx)
	}
	return answer(&guestv1.CloseInputResponse{}, err)
}

// input is the input of a process that has one.
func (s *service) input(process string) (*input, error) {
	p, err := s.procs.find(process)
	if err == nil && p.in == nil {
		err = refuse(conflict, "set stdin when you start it", "process %s was started without input", p.id)
	}
	if err != nil {
		return nil, err
	}
	return p.in, nil
}

func (s *service) Signal(_ context.Context, r *connect.Request[guestv1.SignalRequest]) (*connect.Response[guestv1.SignalResponse], error) {
	sig, err := parseSignal(r.Msg.Signal)
	if err != nil {
		return nil, err
	}
	p, err := s.procs.find(r.Msg.Process)
	if err == nil {
		err = p.signal(sig)
	}
	return answer(&guestv1.SignalResponse{}, err)
}

func (s *service) Wait(ctx context.Context, r *connect.Request[guestv1.WaitRequest]) (*connect.Response[guestv1.WaitResponse], error) {
	p, err := s.procs.find(r.Msg.Process)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
		return answer(&guestv1.WaitResponse{Exit: p.describe().Exit}, nil)
	case <-ctx.Done():
		return nil, connect.NewError(codeOfContext(ctx), ctx.Err())
	}
}

// listBytes bounds the arguments in a list, all together.
const listBytes = 1 << 20

func (s *service) ListProcesses(context.Context, *connect.Request[guestv1.ListProcessesRequest]) (*connect.Response[guestv1.ListProcessesResponse], error) {
	r := &guestv1.ListProcessesResponse{}
	all, stats := s.procs.list(), processStats()
	for _, p := range all {
		d := shorten(p.describe(), min(4096, listBytes/len(all)))
		d.Usage = p.leader.usage(stats)
		r.Processes = append(r.Processes, d)
	}
	return answer(r, nil)
}

func (s *service) Stat(_ context.Context, r *connect.Request[guestv1.StatRequest]) (*connect.Response[guestv1.StatResponse], error) {
	info, err := s.stat(string(r.Msg.Path), r.Msg.Follow)
	return answer(&guestv1.StatResponse{Info: info}, err)
}

func (s *service) ListDir(ctx context.Context, r *connect.Request[guestv1.ListDirRequest]) (*connect.Response[guestv1.ListDirResponse], error) {
	entries, more, err := s.listDir(ctx, r.Msg)
	return answer(&guestv1.ListDirResponse{Entries: entries, More: more}, err)
}

func (s *service) MakeDir(_ context.Context, r *connect.Request[guestv1.MakeDirRequest]) (*connect.Response[guestv1.MakeDirResponse], error) {
	info, err := s.makeDir(r.Msg)
	return answer(&guestv1.MakeDirResponse{Info: info}, err)
}

func (s *service) Move(ctx context.Context, r *connect.Request[guestv1.MoveRequest]) (*connect.Response[guestv1.MoveResponse], error) {
	return answer(&guestv1.MoveResponse{}, s.move(string(r.Msg.From), string(r.Msg.To), r.Msg.Replace))
}

func (s *service) Remove(_ context.Context, r *connect.Request[guestv1.RemoveRequest]) (*connect.Response[guestv1.RemoveResponse], error) {
	return answer(&guestv1.RemoveResponse{}, s.remove(string(r.Msg.Path), r.Msg.Recursive))
}

func answer[T any](m *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}
