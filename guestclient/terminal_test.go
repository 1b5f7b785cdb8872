package guestclient_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/guestapi/v1/guestv1connect"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// evilTerminals is a guest whose terminals answer as a test tells them to.
type evilTerminals struct {
	guestv1connect.UnimplementedTerminalsHandler
	events []*guestv1.TerminalEvent
	list   *guestv1.ListTerminalsResponse
}

func (e *evilTerminals) Attach(_ context.Context, _ *connect.Request[guestv1.AttachTerminalRequest], s *connect.ServerStream[guestv1.TerminalEvent]) error {
	for _, ev := range e.events {
		if err := s.Send(ev); err != nil {
			return err
		}
	}
	return nil
}

func (e *evilTerminals) List(context.Context, *connect.Request[guestv1.ListTerminalsRequest]) (*connect.Response[guestv1.ListTerminalsResponse], error) {
	return connect.NewResponse(e.list), nil
}

func meetTerminals(t *testing.T, e *evilTerminals) *guestclient.Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(guestv1connect.NewTerminalsHandler(e))
	s := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	s.Protocols.SetHTTP1(true)
	done := make(chan struct{})
	go func() { s.Serve(l); close(done) }()
	c := guestclient.New(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	})
	t.Cleanup(func() { c.Close(); s.Close(); <-done })
	return c
}

// described is a terminal, changed.
func described(change ...func(*guestv1.Terminal)) *guestv1.Terminal {
	d := &guestv1.Terminal{Id: "t1", Name: "main", Pid: 2, Cols: 80, Rows: 24}
	for _, f := range change {
		f(d)
	}
	return d
}

func attached(change ...func(*guestv1.Terminal)) *guestv1.TerminalEvent {
	return &guestv1.TerminalEvent{Event: &guestv1.TerminalEvent_Attached{Attached: described(change...)}}
}

func seed(offset, bytes int64, cols, rows uint32) *guestv1.TerminalEvent {
	return &guestv1.TerminalEvent{Event: &guestv1.TerminalEvent_Seed{Seed: &guestv1.Seed{Offset: offset, Bytes: bytes, Cols: cols, Rows: rows}}}
}

func seedData(data string) *guestv1.TerminalEvent {
	return &guestv1.TerminalEvent{Event: &guestv1.TerminalEvent_SeedData{SeedData: []byte(data)}}
}

func printed(offset int64, data string) *guestv1.TerminalEvent {
	return &guestv1.TerminalEvent{Event: &guestv1.TerminalEvent_Output{Output: &guestv1.TerminalOutput{Offset: offset, Data: []byte(data)}}}
}

func resized(cols, rows uint32) *guestv1.TerminalEvent {
	return &guestv1.TerminalEvent{Event: &guestv1.TerminalEvent_Resized{Resized: &guestv1.Size{Cols: cols, Rows: rows}}}
}

var over = &guestv1.TerminalEvent{Event: &guestv1.TerminalEvent_Exit{Exit: &guestv1.Exit{Code: 9000}}}

func TestTerminalEventsOutOfOrder(t *testing.T) {
	for what, events := range map[string][]*guestv1.TerminalEvent{
		"none":                    {},
		"no attachment":           {over},
		"two attachments":         {attached(), attached()},
		"a bad id":                {attached(func(d *guestv1.Terminal) { d.Id = "../x" })},
		"a bad pid":               {attached(func(d *guestv1.Terminal) { d.Pid = 0 })},
		"a bad offset":            {attached(func(d *guestv1.Terminal) { d.Offset = -1 })},
		"no size":                 {attached(func(d *guestv1.Terminal) { d.Cols = 0 })},
		"a huge size":             {attached(func(d *guestv1.Terminal) { d.Rows = math.MaxUint32 })},
		"output before a seed":    {attached(), printed(0, "x")},
		"seed data alone":         {attached(), seedData("x")},
		"too much of a seed":      {attached(), seed(0, 1, 80, 24), seedData("xx")},
		"an empty part of a seed": {attached(), seed(0, 1, 80, 24), seedData("")},
		"too little of a seed":    {attached(), seed(0, 2, 80, 24), seedData("x"), printed(0, "x")},
		"an exit within a seed":   {attached(), seed(0, 2, 80, 24), over},
		"a negative seed":         {attached(), seed(0, -1, 80, 24)},
		"a huge seed":             {attached(), seed(0, math.MaxInt64, 80, 24)},
		"a seed of no size":       {attached(), seed(0, 1, 0, 0)},
		"a seed from the past":    {attached(), seed(9, 1, 80, 24), seedData("x"), seed(8, 1, 80, 24)},
		"a gap":                   {attached(), seed(5, 1, 80, 24), seedData("x"), printed(6, "x")},
		"a step back":             {attached(), seed(5, 1, 80, 24), seedData("x"), printed(4, "x")},
		"nothing":                 {attached(), seed(5, 1, 80, 24), seedData("x"), printed(5, "")},
		"an overflow":             {attached(), seed(math.MaxInt64, 1, 80, 24), seedData("x"), printed(math.MaxInt64, "x")},
		"resized to nothing":      {attached(), resized(0, 24)},
	} {
		c := meetTerminals(t, &evilTerminals{events: events})
		ev, err := c.AttachTerminal(t.Context(), "main", sandbox.TerminalAttach{})
		for err == nil {
			_, err = ev.Recv()
		}
		wantKind(t, what, err, sandbox.Internal)
		if ev != nil {
			if _, again := ev.Recv(); again == nil || errors.Is(again, io.EOF) {
				t.Errorf("%s: after the error came %v", what, again)
			}
			ev.Close()
		}
	}
}

func TestTerminalEvents(t *testing.T) {
	c := meetTerminals(t, &evilTerminals{
		events: []*guestv1.TerminalEvent{attached(func(d *guestv1.Terminal) { d.Title, d.Name = "a\x1b]t", strings.Repeat("n", 999) }),
			seed(5, 3, 80, 24), seedData("ab"), seedData("c"), printed(5, "\xff\x1b"), resized(10, 10), printed(7, "z"), over},
		list: &guestv1.ListTerminalsResponse{Terminals: []*guestv1.Terminal{described(), nil}},
	})
	ev, err := c.AttachTerminal(t.Context(), "main", sandbox.TerminalAttach{})
	if err != nil {
		t.Fatal(err)
	}
	defer ev.Close()
	var screen, output string
	for {
		e, err := ev.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Attached != nil && (strings.ContainsRune(e.Attached.Title, 0x1b) || len(e.Attached.Name) > 255):
			t.Errorf("taken over: %+v", e.Attached)
		case e.Seeding:
			screen += string(e.Data)
		case e.Exit != nil && e.Exit.Code != 255:
			t.Errorf("exit %+v", e.Exit)
		}
		if !e.Seeding {
			output += string(e.Data)
		}
	}
	if screen != "abc" || output != "\xff\x1bz" {
		t.Errorf("screen %q, output %q", screen, output)
	}
	_, err = c.Terminals(t.Context())
	wantKind(t, "a list with nothing in it", err, sandbox.Internal)
	for _, at := range []sandbox.TerminalAttach{{Cols: 80}, {Cols: -1, Rows: 5}, {Cols: 65535, Rows: 65535}} {
		_, err := c.AttachTerminal(t.Context(), "main", at)
		wantKind(t, "a size", err, sandbox.Invalid)
	}
}
