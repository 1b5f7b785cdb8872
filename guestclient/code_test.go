package guestclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/guestapi/v1/guestv1connect"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// evilKernels answers about code as a test tells it to.
type evilKernels struct {
	guestv1connect.UnimplementedKernelsHandler
	events []*guestv1.CodeEvent
	list   *guestv1.ListCodeContextsResponse
}

func (e *evilKernels) AttachCode(_ context.Context, _ *connect.Request[guestv1.AttachCodeRequest], s *connect.ServerStream[guestv1.CodeEvent]) error {
	for _, ev := range e.events {
		if err := s.Send(ev); err != nil {
			return err
		}
	}
	return nil
}

func (e *evilKernels) ListContexts(context.Context, *connect.Request[guestv1.ListCodeContextsRequest]) (*connect.Response[guestv1.ListCodeContextsResponse], error) {
	return connect.NewResponse(e.list), nil
}

func meetKernels(t *testing.T, e *evilKernels) *guestclient.Client {
	t.Helper()
	return meet(t, &evil{routes: func(mux *http.ServeMux) { mux.Handle(guestv1connect.NewKernelsHandler(e)) }})
}

func codeStarted(run, of string) *guestv1.CodeEvent {
	return &guestv1.CodeEvent{Event: &guestv1.CodeEvent_Started{Started: &guestv1.CodeStarted{Run: run, Context: of}}}
}

func codeText(seq int64, text string) *guestv1.CodeEvent {
	return &guestv1.CodeEvent{Seq: seq, Event: &guestv1.CodeEvent_Text{Text: &guestv1.CodeText{Text: []byte(text)}}}
}

func codeMissed(seq, events int64) *guestv1.CodeEvent {
	return &guestv1.CodeEvent{Seq: seq, Event: &guestv1.CodeEvent_Missed{Missed: &guestv1.CodeMissed{Events: events}}}
}

func codeForms(seq int64, forms ...*guestv1.CodeForm) *guestv1.CodeEvent {
	return &guestv1.CodeEvent{Seq: seq, Event: &guestv1.CodeEvent_Result{Result: &guestv1.CodeResult{Forms: forms}}}
}

func codeEnd(seq int64, status guestv1.CodeStatus) *guestv1.CodeEvent {
	return &guestv1.CodeEvent{Seq: seq, Event: &guestv1.CodeEvent_End{End: &guestv1.CodeEnd{Status: status, Count: -1, Reason: "a\x1b[31m\nb"}}}
}

// follow reads a run's events to their end.
func followCode(c *guestclient.Client, t *testing.T, after int64) (all []sandbox.CodeEvent, err error) {
	t.Helper()
	events, err := c.AttachCode(t.Context(), "r1", after)
	if err != nil {
		return nil, err
	}
	defer events.Close()
	for {
		e, err := events.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
}

func TestCodeEventsOutOfOrder(t *testing.T) {
	const ok = guestv1.CodeStatus_CODE_STATUS_OK
	many := make([]*guestv1.CodeForm, 100)
	for i := range many {
		many[i] = &guestv1.CodeForm{Type: "text/plain"}
	}
	for name, events := range map[string][]*guestv1.CodeEvent{
		"no start":           {codeText(1, "a"), codeEnd(2, ok)},
		"no run's id":        {codeStarted("x", "k1"), codeEnd(1, ok)},
		"no context's id":    {codeStarted("r1", "../k"), codeEnd(1, ok)},
		"a second start":     {codeStarted("r1", "k1"), {Seq: 1, Event: codeStarted("r1", "k1").Event}},
		"a gap":              {codeStarted("r1", "k1"), codeText(2, "a")},
		"a step back":        {codeStarted("r1", "k1"), codeText(1, "a"), codeText(1, "b")},
		"missed before":      {codeStarted("r1", "k1"), codeText(1, "a"), codeMissed(1, 1)},
		"missed none":        {codeStarted("r1", "k1"), codeMissed(3, 0)},
		"an unknown end":     {codeStarted("r1", "k1"), codeEnd(1, 99)},
		"a form of no JSON":  {codeStarted("r1", "k1"), codeForms(1, &guestv1.CodeForm{Type: "application/json", Json: true, Data: []byte(`{"a"`)})},
		"a hundred of forms": {codeStarted("r1", "k1"), codeForms(1, many...)},
	} {
		if got, err := followCode(meetKernels(t, &evilKernels{events: events}), t, 0); sandbox.KindOf(err) != sandbox.Internal {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	early := []*guestv1.CodeEvent{codeStarted("r1", "k1"), codeText(1, "a")}
	if _, err := followCode(meetKernels(t, &evilKernels{events: early}), t, 0); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a stream that ends before the run: %v", err)
	}
}

func TestCodeEvents(t *testing.T) {
	events := []*guestv1.CodeEvent{codeStarted("r1", "k1"), {Event: &guestv1.CodeEvent_KeepAlive{KeepAlive: &guestv1.CodeKeepAlive{}}}, codeMissed(7, 2), codeText(8, "a\xff"),
		codeForms(9, &guestv1.CodeForm{Type: "text/html", Data: []byte("<b>\xff")}, &guestv1.CodeForm{Type: "application/vnd.berth.chart+json", Json: true, Data: []byte(`{"type":"line"}`)},
			&guestv1.CodeForm{Type: "a/b\x1b" + strings.Repeat("x", 1000), Data: []byte("own")}),
		codeEnd(10, guestv1.CodeStatus_CODE_STATUS_DIED), codeText(11, "after the end")}
	all, err := followCode(meetKernels(t, &evilKernels{events: events}), t, 5)
	if err != nil || len(all) != 5 {
		t.Fatalf("%+v, %v", all, err)
	}
	if all[0].Run != "r1" || all[0].Context != "k1" || all[1].Missed != 2 || all[2].Text != "a\uFFFD" {
		t.Errorf("%+v", all[:3])
	}
	r := all[3].Result
	if r.HTML != "<b>\uFFFD" || string(r.Chart) != `{"type":"line"}` || len(r.Extra) != 1 {
		t.Errorf("%+v", r)
	}
	for name := range r.Extra {
		if len(name) > 200 || strings.ContainsRune(name, 0x1b) {
			t.Errorf("a media type of %d bytes: %.40q", len(name), name)
		}
	}
	if end := all[4].End; end.Status != sandbox.CodeDied || end.Count != 0 || end.Reason != "a\uFFFD[31m\nb" {
		t.Errorf("%+v", end)
	}
}

func TestCodeContextsOfALiar(t *testing.T) {
	const idle = guestv1.CodeState_CODE_STATE_IDLE
	for name, one := range map[string]*guestv1.CodeContext{
		"no id": {Name: "a", State: idle}, "a name with a slash": {Id: "k1", Name: "a/b", State: idle},
		"no state": {Id: "k1", Name: "a"}, "a run of no id": {Id: "k1", Name: "a", State: idle, Running: "<x>"},
	} {
		c := meetKernels(t, &evilKernels{list: &guestv1.ListCodeContextsResponse{Contexts: []*guestv1.CodeContext{one}}})
		if got, err := c.CodeContexts(t.Context()); sandbox.KindOf(err) != sandbox.Internal {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	c := meetKernels(t, &evilKernels{list: &guestv1.ListCodeContextsResponse{Contexts: []*guestv1.CodeContext{
		{Id: "k1", Name: "a", State: idle, Pid: -1, Queued: -5, Runs: -1, User: "u\x00", Cwd: []byte(strings.Repeat("x", 10000))}}}})
	all, err := c.CodeContexts(t.Context())
	if err != nil || len(all) != 1 || all[0].PID != 0 || all[0].Queued != 0 || all[0].Runs != 0 || len(all[0].Cwd) > sandbox.MaxPathBytes || all[0].User != "u\uFFFD" {
		t.Errorf("%+v, %v", all, err)
	}
}
