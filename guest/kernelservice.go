package guest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/guest/kernel"
	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/guestapi/v1/guestv1connect"
)

// kernelService answers the calls of guestv1.Kernels.
type kernelService struct{ *Guest }

var _ guestv1connect.KernelsHandler = (*kernelService)(nil)

// maxCode bounds the bytes of one run.
const maxCode = 3 << 20

// whyNoCode gives the refusals of package kernel their codes.
func whyNoCode(err error, language string, folders []string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kernel.ErrNoKernel):
		hint := "install a Jupyter kernel for it, or use the template code-interpreter"
		if has := kernel.Languages(folders); len(has) > 0 {
			hint = "this sandbox runs " + strings.Join(has, ", ")
		}
		return refuse(unsupported, hint, "no Jupyter kernel for %.40q is installed", language)
	case errors.Is(err, kernel.ErrTaken):
		return refuse(conflict, "take another name, or remove it first", "a context of that name is there")
	case errors.Is(err, kernel.ErrCrowded):
		return refuse(exhausted, "remove some", "%s", err)
	case errors.Is(err, kernel.ErrFull):
		return refuse(exhausted, "wait until some have ended, or make another context", "%s in this context", err)
	case errors.Is(err, kernel.ErrNoContext):
		return refuse(notFound, "it was removed meanwhile", "%s", err)
	case errors.Is(err, kernel.ErrNoSetter):
		return refuse(unsupported, "set them when the context is made", "%s", err)
	case errors.Is(err, kernel.ErrOtherSpeak):
		return refuse(invalid, "leave out the language, or the context", "%s", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fromOS(err)
	}
	return refuse(connect.CodeUnavailable, "what the kernel printed says why; the sandbox may need more memory", "%s", err)
}

func (s *kernelService) CreateContext(ctx context.Context, r *connect.Request[guestv1.CreateCodeContextRequest]) (*connect.Response[guestv1.CodeContextResponse], error) {
	o, err := s.kernelOptions(r.Msg)
	if err != nil {
		return nil, err
	}
	if o.Name != "" && !namePattern.MatchString(o.Name) {
		return nil, refuse(invalid, "a name has 1 to 64 characters of A-Z a-z 0-9 . _ - and starts with a letter or a digit", "%.80q is not a context's name", o.Name)
	}
	c, err := s.kernels.Create(ctx, o)
	if err != nil {
		return nil, whyNoCode(err, o.Language, o.Folders)
	}
	return answer(&guestv1.CodeContextResponse{Context: describeContext(c)}, nil)
}

func describeContext(c *kernel.Context) *guestv1.CodeContext {
	i := c.Info()
	return &guestv1.CodeContext{Id: c.ID, Name: c.Options.Name, Language: c.Options.Language, Kernel: strings.ToValidUTF8(c.Spec.Name, "\uFFFD"),
		Cwd: []byte(c.Options.Cwd), User: c.Options.User, State: guestv1.CodeState(i.State), Reason: strings.ToValidUTF8(i.Reason, "\uFFFD"), Pid: int32(i.PID),
		Running: i.Running, Queued: int32(i.Queued), Runs: i.Runs, Restarts: i.Restarts,
		CreatedUnixNano: c.Created.UnixNano(), UsedUnixNano: i.Used.UnixNano()}
}

func (s *kernelService) ListContexts(context.Context, *connect.Request[guestv1.ListCodeContextsRequest]) (*connect.Response[guestv1.ListCodeContextsResponse], error) {
	out := &guestv1.ListCodeContextsResponse{}
	for _, c := range s.kernels.List() {
		out.Contexts = append(out.Contexts, describeContext(c))
	}
	return answer(out, nil)
}

func (s *kernelService) find(key string) (*kernel.Context, error) {
	if c := s.kernels.Find(key); c != nil {
		return c, nil
	}
	return nil, refuse(notFound, "the list of contexts has those that are", "no context %.80q", key)
}

func (s *kernelService) RestartContext(ctx context.Context, r *connect.Request[guestv1.RestartCodeContextRequest]) (*connect.Response[guestv1.CodeContextResponse], error) {
	c, err := s.find(r.Msg.Context)
	if err == nil {
		err = whyNoCode(c.Restart(ctx), "", nil)
	}
	if err != nil {
		return nil, err
	}
	return answer(&guestv1.CodeContextResponse{Context: describeContext(c)}, nil)
}

func (s *kernelService) InterruptContext(_ context.Context, r *connect.Request[guestv1.InterruptCodeContextRequest]) (*connect.Response[guestv1.InterruptCodeContextResponse], error) {
	c, err := s.find(r.Msg.Context)
	if err != nil {
		return nil, err
	}
	return answer(&guestv1.InterruptCodeContextResponse{Interrupted: c.Interrupt()}, nil)
}

func (s *kernelService) RemoveContext(_ context.Context, r *connect.Request[guestv1.RemoveCodeContextRequest]) (*connect.Response[guestv1.RemoveCodeContextResponse], error) {
	c, err := s.find(r.Msg.Context)
	if err != nil {
		return nil, err
	}
	s.kernels.Remove(c)
	return answer(&guestv1.RemoveCodeContextResponse{}, nil)
}

// contextOf gives the context that a run is for, made if need be.
func (s *kernelService) contextOf(r *guestv1.RunCodeRequest) (*kernel.Context, error) {
	if r.Context != "" {
		c, err := s.find(r.Context)
		if err == nil && r.Language != "" && c.Options.Language != r.Language {
			err = whyNoCode(kernel.ErrOtherSpeak, "", nil)
		}
		return c, err
	}
	if r.Open == nil || !namePattern.MatchString(r.Open.Name) {
		return nil, refuse(invalid, "", "a context, or the name of one to make, is needed")
	}
	if c := s.kernels.Find(r.Open.Name); c != nil {
		return c, nil
	}
	o, err := s.kernelOptions(r.Open)
	if err != nil {
		return nil, err
	}
	c, err := s.kernels.Default(o)
	return c, whyNoCode(err, o.Language, o.Folders)
}

func (s *kernelService) RunCode(ctx context.Context, r *connect.Request[guestv1.RunCodeRequest], out *connect.ServerStream[guestv1.CodeEvent]) error {
	if len(r.Msg.Code) > maxCode {
		return refuse(invalid, "write data to a file, and read it in the code", "the code has %d bytes, at most %d are taken", len(r.Msg.Code), maxCode)
	}
	env := map[string]string{}
	for _, e := range r.Msg.Env {
		name, value, ok := strings.Cut(string(e), "=")
		if !ok || name == "" || strings.ContainsRune(string(e), 0) {
			return refuse(invalid, "a variable is NAME=value, without a NUL", "environment variable %.80q is malformed", e)
		}
		env[strings.ToValidUTF8(name, "\uFFFD")] = strings.ToValidUTF8(value, "\uFFFD")
	}
	c, err := s.contextOf(r.Msg)
	if err != nil {
		return err
	}
	run, err := s.kernels.Run(c, r.Msg.Code, env, time.Duration(r.Msg.TimeoutMs)*time.Millisecond)
	if err != nil {
		return whyNoCode(err, c.Options.Language, nil)
	}
	cursor, _ := run.Read(0)
	defer cursor.Close()
	err = followCode(ctx, run, cursor, out.Send)
	if !r.Msg.Detach {
		s.partCode(run)
	}
	return err
}

func (s *kernelService) AttachCode(ctx context.Context, r *connect.Request[guestv1.AttachCodeRequest], out *connect.ServerStream[guestv1.CodeEvent]) error {
	run, err := s.findRun(r.Msg.Run)
	if err != nil {
		return err
	}
	cursor, ok := run.Read(r.Msg.After)
	if !ok {
		return refuse(invalid, "go on after the number of an event that you have", "run %s has no event %d yet", run.ID, r.Msg.After)
	}
	defer cursor.Close()
	return followCode(ctx, run, cursor, out.Send)
}

func (s *kernelService) findRun(id string) (*kernel.Run, error) {
	if r := s.kernels.FindRun(id); r != nil {
		return r, nil
	}
	return nil, refuse(notFound, "the last 256 runs that ended are remembered", "no run %.80q", id)
}

func (s *kernelService) CancelCode(_ context.Context, r *connect.Request[guestv1.CancelCodeRequest]) (*connect.Response[guestv1.CancelCodeResponse], error) {
	run, err := s.findRun(r.Msg.Run)
	if err != nil {
		return nil, err
	}
	run.Cancel("it was cancelled")
	return answer(&guestv1.CancelCodeResponse{}, nil)
}

func (s *kernelService) PrepareCode(ctx context.Context, r *connect.Request[guestv1.PrepareCodeRequest]) (*connect.Response[guestv1.PrepareCodeResponse], error) {
	if r.Msg.Begin == nil {
		return nil, refuse(invalid, "", "what a kernel is to begin with is needed")
	}
	o, err := s.kernelOptions(r.Msg.Begin)
	if err != nil {
		return nil, err
	}
	err = s.kernels.Prepare(ctx, o)
	if errors.Is(err, kernel.ErrNoKernel) {
		return answer(&guestv1.PrepareCodeResponse{}, nil)
	}
	return answer(&guestv1.PrepareCodeResponse{Ready: err == nil}, whyNoCode(err, o.Language, o.Folders))
}

func (s *kernelService) ListLanguages(_ context.Context, r *connect.Request[guestv1.ListLanguagesRequest]) (*connect.Response[guestv1.ListLanguagesResponse], error) {
	folders, err := s.kernelFolders(r.Msg.User)
	if err != nil {
		return nil, err
	}
	return answer(&guestv1.ListLanguagesResponse{Languages: kernel.Languages(folders)}, nil)
}

// partCode interrupts a run whose stream has ended, unless it is to outlive that.
func (g *Guest) partCode(r *kernel.Run) {
	select {
	case <-r.Over():
		return
	default:
	}
	g.self.wait()
	if !r.Loose() {
		r.Cancel("its stream ended")
	}
}

// followCode sends what a run does, from the cursor on, until its end.
func followCode(ctx context.Context, r *kernel.Run, c *kernel.Cursor, send func(*guestv1.CodeEvent) error) error {
	if err := send(&guestv1.CodeEvent{UnixNano: time.Now().UnixNano(), Event: &guestv1.CodeEvent_Started{
		Started: &guestv1.CodeStarted{Run: r.ID, Context: r.Context.ID}}}); err != nil {
		return err
	}
	bell := time.NewTicker(silence)
	defer bell.Stop()
	for {
		if e, ok := c.Next(); ok {
			if err := send(codeEvent(e)); err != nil || e.Kind == kernel.Ended {
				return err
			}
			continue
		}
		select {
		case <-c.Wake():
			bell.Reset(silence)
		case <-bell.C:
			if err := send(&guestv1.CodeEvent{Event: &guestv1.CodeEvent_KeepAlive{KeepAlive: &guestv1.CodeKeepAlive{}}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return connect.NewError(codeOfContext(ctx), ctx.Err())
		}
	}
}

func codeEvent(e kernel.Event) *guestv1.CodeEvent {
	out := &guestv1.CodeEvent{Seq: e.Seq, UnixNano: e.Time.UnixNano()}
	switch e.Kind {
	case kernel.Stdout, kernel.Stderr:
		out.Event = &guestv1.CodeEvent_Text{Text: &guestv1.CodeText{Stderr: e.Kind == kernel.Stderr, Text: []byte(e.Text)}}
	case kernel.Shown:
		out.Event = &guestv1.CodeEvent_Result{Result: codeResult(e.Result)}
	case kernel.Raised:
		m := &guestv1.CodeError{Name: []byte(e.Error.Name), Value: []byte(e.Error.Value)}
		for _, line := range e.Error.Traceback {
			m.Traceback = append(m.Traceback, []byte(line))
		}
		out.Event = &guestv1.CodeEvent_Error{Error: m}
	case kernel.Cleared:
		out.Event = &guestv1.CodeEvent_Clear{Clear: &guestv1.CodeClear{}}
	case kernel.Missed:
		out.Event = &guestv1.CodeEvent_Missed{Missed: &guestv1.CodeMissed{Events: e.Missed}}
	case kernel.Ended:
		out.Event = &guestv1.CodeEvent_End{End: &guestv1.CodeEnd{Status: guestv1.CodeStatus(e.End.Status), Count: e.End.Count,
			Reason: strings.ToValidUTF8(e.End.Reason, "\uFFFD")}}
	default:
		panic(fmt.Sprintf("event of kind %d", e.Kind))
	}
	return out
}

func codeResult(r *kernel.Result) *guestv1.CodeResult {
	m := &guestv1.CodeResult{Main: r.Main, DisplayId: strings.ToValidUTF8(r.DisplayID, "\uFFFD"), Update: r.Update}
	for _, f := range r.Forms {
		m.Forms = append(m.Forms, &guestv1.CodeForm{Type: strings.ToValidUTF8(f.Type, "\uFFFD"), Json: f.JSON, Data: f.Data})
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Omitted)) {
		m.Omitted = append(m.Omitted, &guestv1.CodeOmitted{Type: strings.ToValidUTF8(kind, "\uFFFD"), Bytes: r.Omitted[kind]})
	}
	return m
}
