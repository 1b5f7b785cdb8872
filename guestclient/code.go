package guestclient

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"time"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

// Bounds on what a guest says of code.
const (
	maxCodeEvent  = 20 << 20 // bytes of one event's message
	maxCodeText   = 2 << 20  // bytes of one piece of text
	maxTraceback  = 4096     // lines
	maxCodeForms  = 64       // of one result
	maxFormType   = 128      // bytes
	maxRaisedText = 256 << 10
	codeStartTime = 3 * time.Minute // for a kernel to be ready
)

var codeContextID = regexp.MustCompile(`^k[0-9]{1,18}$`)

// CreateCodeContext makes a context and waits until its kernel is ready.
func (c *Client) CreateCodeContext(ctx context.Context, o sandbox.CodeOptions) (sandbox.CodeContext, error) {
	const op = "create context"
	ctx, cancel := context.WithTimeout(ctx, codeStartTime)
	defer cancel()
	r, err := callLong(c.to(ctx), op, c.code.CreateContext, codeOptions(o))
	if err != nil {
		return sandbox.CodeContext{}, err
	}
	return codeContextAnswer(op, r)
}

func codeOptions(o sandbox.CodeOptions) *guestv1.CreateCodeContextRequest {
	q := &guestv1.CreateCodeContextRequest{Name: o.Name, Language: o.Language, Cwd: []byte(o.Cwd), User: o.User}
	for k, v := range o.Env {
		q.Env = append(q.Env, []byte(k+"="+v))
	}
	return q
}

func codeContextAnswer(op string, r *guestv1.CodeContextResponse) (sandbox.CodeContext, error) {
	out, err := codeContext(r.Context)
	if err != nil {
		return out, broken(op, "%w", err)
	}
	return out, nil
}

// CodeContexts lists the contexts in the order of their creation.
func (c *Client) CodeContexts(ctx context.Context) ([]sandbox.CodeContext, error) {
	const op = "list contexts"
	r, err := call(c.to(ctx), op, c.code.ListContexts, &guestv1.ListCodeContextsRequest{})
	if err != nil {
		return nil, err
	}
	list := make([]sandbox.CodeContext, 0, len(r.Contexts))
	for _, m := range r.Contexts {
		one, err := codeContext(m)
		if err != nil {
			return nil, broken(op, "%w", err)
		}
		list = append(list, one)
	}
	return list, nil
}

// PrepareCode starts a kernel ahead and waits until it is ready: the first context that
// begins so, or nearly so, takes it. False: there is no kernel of the language.
func (c *Client) PrepareCode(ctx context.Context, o sandbox.CodeOptions) (ready bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, codeStartTime)
	defer cancel()
	r, err := callLong(c.to(ctx), "prepare code", c.code.PrepareCode, &guestv1.PrepareCodeRequest{Begin: codeOptions(o)})
	if err != nil {
		return false, err
	}
	return r.Ready, nil
}

// RestartCodeContext gives a context, by id or name, a new kernel, and ends its runs.
func (c *Client) RestartCodeContext(ctx context.Context, key string) (sandbox.CodeContext, error) {
	const op = "restart context"
	if err := checkText(op, key); err != nil {
		return sandbox.CodeContext{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, codeStartTime)
	defer cancel()
	r, err := callLong(c.to(ctx), op, c.code.RestartContext, &guestv1.RestartCodeContextRequest{Context: key})
	if err != nil {
		return sandbox.CodeContext{}, err
	}
	return codeContextAnswer(op, r)
}

// InterruptCodeContext breaks off the run that is under way, if there is one.
func (c *Client) InterruptCodeContext(ctx context.Context, key string) error {
	const op = "interrupt context"
	if err := checkText(op, key); err != nil {
		return err
	}
	_, err := call(c.to(ctx), op, c.code.InterruptContext, &guestv1.InterruptCodeContextRequest{Context: key})
	return err
}

// RemoveCodeContext ends a context and its kernel.
func (c *Client) RemoveCodeContext(ctx context.Context, key string) error {
	const op = "remove context"
	if err := checkText(op, key); err != nil {
		return err
	}
	_, err := call(c.to(ctx), op, c.code.RemoveContext, &guestv1.RemoveCodeContextRequest{Context: key})
	return err
}

// RunCode queues code and returns its events; the first is CodeStarted, at once. When
// ctx ends, the stream breaks, and the run is interrupted unless r says Detach. options
// make the context if r names none, and there is none of their name.
func (c *Client) RunCode(ctx context.Context, r sandbox.CodeRun, options sandbox.CodeOptions) (sandbox.CodeEvents, error) {
	const op = "run code"
	if err := checkText(op, r.Code, r.Context); err != nil {
		return nil, err
	}
	q := &guestv1.RunCodeRequest{Code: r.Code, Context: r.Context, Language: r.Language, TimeoutMs: milliseconds(r.Timeout), Detach: r.Detach, Open: codeOptions(options)}
	for k, v := range r.Env {
		q.Env = append(q.Env, []byte(k+"="+v))
	}
	return open(c.to(ctx), op, c.code.RunCode, q, &codeReading{})
}

// AttachCode returns the events of a run that come after one, CodeStarted before
// them.
func (c *Client) AttachCode(ctx context.Context, run string, after int64) (sandbox.CodeEvents, error) {
	const op = "attach to run"
	if err := checkText(op, run); err != nil {
		return nil, err
	}
	return open(c.to(ctx), op, c.code.AttachCode, &guestv1.AttachCodeRequest{Run: run, After: after}, &codeReading{at: after})
}

// CancelCode drops a run that waits and interrupts one that is under way.
func (c *Client) CancelCode(ctx context.Context, run string) error {
	const op = "cancel run"
	if err := checkText(op, run); err != nil {
		return err
	}
	_, err := call(c.to(ctx), op, c.code.CancelCode, &guestv1.CancelCodeRequest{Run: run})
	return err
}

// CodeLanguages lists the languages that a user's code may be in.
func (c *Client) CodeLanguages(ctx context.Context, user string) ([]string, error) {
	const op = "list languages"
	r, err := call(c.to(ctx), op, c.code.ListLanguages, &guestv1.ListLanguagesRequest{User: user})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, l := range r.Languages {
		out = append(out, text(l, 64))
	}
	return out, nil
}

var codeStates = map[guestv1.CodeState]sandbox.CodeState{
	guestv1.CodeState_CODE_STATE_STARTING: sandbox.CodeStarting, guestv1.CodeState_CODE_STATE_IDLE: sandbox.CodeIdle,
	guestv1.CodeState_CODE_STATE_BUSY: sandbox.CodeBusy, guestv1.CodeState_CODE_STATE_DEAD: sandbox.CodeDead,
}

// codeContext takes a description over.
func codeContext(m *guestv1.CodeContext) (sandbox.CodeContext, error) {
	state, ok := codeStates[m.GetState()]
	if !codeContextID.MatchString(m.GetId()) || !sessionName.MatchString(m.GetName()) || !ok {
		return sandbox.CodeContext{}, errorf("context %.40q of the name %.80q in state %d", m.GetId(), m.GetName(), m.GetState())
	}
	if m.Running != "" && !sandbox.IsCodeRunID(m.Running) {
		return sandbox.CodeContext{}, errorf("run id %.40q", m.Running)
	}
	return sandbox.CodeContext{ID: m.Id, Name: m.Name, Language: text(m.Language, 64), Kernel: text(m.Kernel, maxName), Cwd: limit(string(m.Cwd), sandbox.MaxPathBytes),
		User: text(m.User, maxName), State: state, Reason: reason(m.Reason), PID: int(max(m.Pid, 0)), Running: m.Running,
		Queued: int(max(m.Queued, 0)), Runs: max(m.Runs, 0), Restarts: max(m.Restarts, 0),
		Created: time.Unix(0, m.CreatedUnixNano), Used: time.Unix(0, m.UsedUnixNano)}, nil
}

// reason is a text of several lines that a kernel may have had a part in.
func reason(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = text(lines[i], maxText)
	}
	return limitText(strings.Join(lines, "\n"), 4*maxText)
}

// limitText cuts valid text to at most size bytes of whole characters.
func limitText(s string, size int) string { return strings.ToValidUTF8(limit(s, size), "") }

// codeReading holds a run's events to their order.
type codeReading struct {
	at int64 // seq of the last event
}

func (r *codeReading) first(m *guestv1.CodeEvent) (sandbox.CodeEvent, error) {
	s := m.GetStarted()
	if s == nil || !sandbox.IsCodeRunID(s.Run) || !codeContextID.MatchString(s.Context) {
		return sandbox.CodeEvent{}, errors.New("the first event is not the start")
	}
	return sandbox.CodeEvent{Type: sandbox.CodeStarted, Time: time.Unix(0, m.UnixNano), Run: s.Run, Context: s.Context}, nil
}

func (r *codeReading) last(e sandbox.CodeEvent) bool { return e.Type == sandbox.CodeEnded }

func (r *codeReading) next(m *guestv1.CodeEvent) (sandbox.CodeEvent, bool, error) {
	switch m.Event.(type) {
	case *guestv1.CodeEvent_KeepAlive, nil:
		return sandbox.CodeEvent{}, false, nil
	}
	e, err := r.take(m)
	return e, true, err
}

// take checks one event's place, and takes it over.
func (r *codeReading) take(m *guestv1.CodeEvent) (ev sandbox.CodeEvent, err error) {
	ev = sandbox.CodeEvent{Seq: m.Seq, Time: time.Unix(0, m.UnixNano)}
	if missed := m.GetMissed(); missed != nil {
		if missed.Events < 1 || m.Seq <= r.at || m.Seq-r.at < 1 {
			return ev, errorf("%d events missed up to %d, after %d", missed.Events, m.Seq, r.at)
		}
		ev.Type, ev.Missed, r.at = sandbox.CodeMissed, missed.Events, m.Seq
		return ev, nil
	}
	if m.Seq != r.at+1 {
		return ev, errorf("event %d after %d", m.Seq, r.at)
	}
	r.at = m.Seq
	switch x := m.Event.(type) {
	case *guestv1.CodeEvent_Text:
		ev.Type = sandbox.CodeStdout
		if x.Text.Stderr {
			ev.Type = sandbox.CodeStderr
		}
		ev.Text = limitText(strings.ToValidUTF8(string(x.Text.Text), "\uFFFD"), maxCodeText)
	case *guestv1.CodeEvent_Result:
		ev.Type = sandbox.CodeShown
		ev.Result, err = codeResult(x.Result)
	case *guestv1.CodeEvent_Error:
		ev.Type, ev.Error = sandbox.CodeRaised, codeError(x.Error)
	case *guestv1.CodeEvent_Clear:
		ev.Type = sandbox.CodeClear
	case *guestv1.CodeEvent_End:
		ev.Type = sandbox.CodeEnded
		ev.End, err = codeEnd(x.End)
	default:
		err = errors.New("a second start")
	}
	return ev, err
}

var codeStatuses = map[guestv1.CodeStatus]sandbox.CodeStatus{
	guestv1.CodeStatus_CODE_STATUS_OK: sandbox.CodeOK, guestv1.CodeStatus_CODE_STATUS_ERROR: sandbox.CodeFailed,
	guestv1.CodeStatus_CODE_STATUS_INTERRUPTED: sandbox.CodeInterrupted, guestv1.CodeStatus_CODE_STATUS_TIMED_OUT: sandbox.CodeTimedOut,
	guestv1.CodeStatus_CODE_STATUS_CANCELLED: sandbox.CodeCancelled, guestv1.CodeStatus_CODE_STATUS_DIED: sandbox.CodeDied,
}

func codeEnd(m *guestv1.CodeEnd) (*sandbox.CodeEnd, error) {
	status, ok := codeStatuses[m.GetStatus()]
	if !ok {
		return nil, errorf("an end of status %d", m.GetStatus())
	}
	return &sandbox.CodeEnd{Status: status, Count: max(m.Count, 0), Reason: reason(m.Reason)}, nil
}

func codeError(m *guestv1.CodeError) *sandbox.CodeError {
	valid := func(b []byte) string { return limitText(strings.ToValidUTF8(string(b), "\uFFFD"), maxRaisedText) }
	e := &sandbox.CodeError{Name: valid(m.GetName()), Value: valid(m.GetValue()), Traceback: []string{}}
	for _, line := range m.GetTraceback()[:min(len(m.GetTraceback()), maxTraceback)] {
		e.Traceback = append(e.Traceback, valid(line))
	}
	return e
}

// codeResult sorts the forms of a result into their places.
func codeResult(m *guestv1.CodeResult) (*sandbox.CodeResult, error) {
	if len(m.GetForms()) > maxCodeForms || len(m.GetOmitted()) > maxCodeForms {
		return nil, errorf("a result of %d forms", len(m.GetForms()))
	}
	r := &sandbox.CodeResult{Main: m.GetMain(), DisplayID: text(m.GetDisplayId(), maxName), Update: m.GetUpdate()}
	for _, o := range m.GetOmitted() {
		if r.Omitted == nil {
			r.Omitted = map[string]int64{}
		}
		r.Omitted[text(o.Type, maxFormType)] = max(o.Bytes, 0)
	}
	for _, f := range m.GetForms() {
		if f.Json && !json.Valid(f.Data) {
			return nil, errorf("a form of type %.80q that is no JSON", f.Type)
		}
		place(r, text(f.Type, maxFormType), f)
	}
	return r, nil
}

// The media types that the interpreters of the template attach.
const (
	chartType = "application/vnd.berth.chart+json"
	dataType  = "application/vnd.berth.data+json"
)

func place(r *sandbox.CodeResult, kind string, f *guestv1.CodeForm) {
	if f.Json {
		switch kind {
		case "application/json":
			r.JSON = f.Data
		case chartType:
			r.Chart = f.Data
		case dataType:
			r.Data = f.Data
		default:
			extra(r, kind, f.Data)
		}
		return
	}
	s := strings.ToValidUTF8(string(f.Data), "\uFFFD")
	switch kind {
	case "text/plain":
		r.Text = s
	case "text/html":
		r.HTML = s
	case "text/markdown":
		r.Markdown = s
	case "text/latex":
		r.LaTeX = s
	case "image/svg+xml":
		r.SVG = s
	case "image/png":
		r.PNG = s
	case "image/jpeg":
		r.JPEG = s
	case "application/pdf":
		r.PDF = s
	case "application/javascript", "text/javascript":
		r.JavaScript = s
	default:
		if b, err := json.Marshal(s); err == nil {
			extra(r, kind, b)
		}
	}
}

func extra(r *sandbox.CodeResult, kind string, b json.RawMessage) {
	if r.Extra == nil {
		r.Extra = map[string]json.RawMessage{}
	}
	r.Extra[kind] = b
}
