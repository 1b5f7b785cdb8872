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
	"unicode/utf8"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/guestapi/v1/guestv1connect"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// evil is a guest that answers as a test tells it to.
type evil struct {
	guestv1connect.UnimplementedGuestHandler
	hello  *guestv1.HelloResponse
	events []*guestv1.ProcessEvent
	list   *guestv1.ListProcessesResponse
	dir    *guestv1.ListDirResponse
	err    error
	files  http.HandlerFunc
	routes func(*http.ServeMux) // more of them
}

func (e *evil) Hello(context.Context, *connect.Request[guestv1.HelloRequest]) (*connect.Response[guestv1.HelloResponse], error) {
	return connect.NewResponse(e.hello), e.err
}

func (e *evil) Start(_ context.Context, _ *connect.Request[guestv1.StartRequest], s *connect.ServerStream[guestv1.ProcessEvent]) error {
	for _, ev := range e.events {
		if err := s.Send(ev); err != nil {
			return err
		}
	}
	return e.err
}

func (e *evil) ListProcesses(context.Context, *connect.Request[guestv1.ListProcessesRequest]) (*connect.Response[guestv1.ListProcessesResponse], error) {
	return connect.NewResponse(e.list), nil
}

func (e *evil) ListDir(context.Context, *connect.Request[guestv1.ListDirRequest]) (*connect.Response[guestv1.ListDirResponse], error) {
	return connect.NewResponse(e.dir), nil
}

// meet serves an evil guest and returns a client of it.
func meet(t *testing.T, e *evil) *guestclient.Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(guestv1connect.NewGuestHandler(e))
	if e.files != nil {
		mux.HandleFunc("/files", e.files)
	}
	if e.routes != nil {
		e.routes(mux)
	}
	s := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() { s.Serve(l); close(done) }()
	c := guestclient.New(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	})
	t.Cleanup(func() { c.Close(); s.Close(); <-done })
	return c
}

var (
	started = &guestv1.ProcessEvent{Event: &guestv1.ProcessEvent_Started{Started: &guestv1.Process{Id: "p1", Pid: 2}}}
	exited  = &guestv1.ProcessEvent{Event: &guestv1.ProcessEvent_Exit{Exit: &guestv1.Exit{Code: 9000, Signal: "SIG\x1b[31m"}}}
)

func out(stream guestv1.Stream, offset int64, data string) *guestv1.ProcessEvent {
	return &guestv1.ProcessEvent{Event: &guestv1.ProcessEvent_Output{Output: &guestv1.Output{Stream: stream, Offset: offset, Data: []byte(data)}}}
}

func missed(offset, n int64) *guestv1.ProcessEvent {
	return &guestv1.ProcessEvent{Event: &guestv1.ProcessEvent_Missed{Missed: &guestv1.Missed{Stream: 1, Offset: offset, Bytes: n}}}
}

func TestEventsOutOfOrder(t *testing.T) {
	for what, events := range map[string][]*guestv1.ProcessEvent{
		"none":                 {},
		"no start":             {exited},
		"two starts":           {started, started},
		"bad id":               {{Event: &guestv1.ProcessEvent_Started{Started: &guestv1.Process{Id: "../x", Pid: 2}}}},
		"bad pid":              {{Event: &guestv1.ProcessEvent_Started{Started: &guestv1.Process{Id: "p1", Pid: -1}}}},
		"a gap":                {started, out(1, 5, "x"), exited},
		"a step back":          {started, out(1, 0, "xx"), out(1, 1, "x"), exited},
		"no stream":            {started, out(0, 0, "x"), exited},
		"unknown stream":       {started, out(7, 0, "x"), exited},
		"nothing":              {started, out(1, 0, ""), exited},
		"a negative gap":       {started, missed(0, -1), exited},
		"a gap that overflows": {started, missed(0, 1), missed(1, math.MaxInt64), exited},
	} {
		c := meet(t, &evil{events: events})
		ev, err := c.Start(t.Context(), sandbox.Command{Argv: []string{"x"}})
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

func TestAStreamThatEndsEarlyIsNoExit(t *testing.T) {
	c := meet(t, &evil{events: []*guestv1.ProcessEvent{started, out(1, 0, "x")}})
	ev, err := c.Start(t.Context(), sandbox.Command{Argv: []string{"x"}})
	for err == nil {
		_, err = ev.Recv()
	}
	if errors.Is(err, io.EOF) || sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("%v", err)
	}
}

func TestValuesAreBrokenToTheirRanges(t *testing.T) {
	c := meet(t, &evil{events: []*guestv1.ProcessEvent{started, exited, out(1, 0, "after the end")}})
	ev, err := c.Start(t.Context(), sandbox.Command{Argv: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	r := collect(t, ev)
	if r.exit.Code != 255 || strings.Contains(r.exit.Signal, "\x1b") || r.stdout.Len() > 0 {
		t.Errorf("%+v %q", r.exit, &r.stdout)
	}
}

func TestAnswersBeyondTheBounds(t *testing.T) {
	huge := strings.Repeat("x", 5<<20)
	c := meet(t, &evil{
		hello:  &guestv1.HelloResponse{Protocol: 1, Version: huge},
		list:   &guestv1.ListProcessesResponse{Processes: []*guestv1.Process{{Id: "p1", Pid: 2, Name: "a\nb" + strings.Repeat("é", 300)}}},
		dir:    &guestv1.ListDirResponse{Entries: []*guestv1.FileInfo{{Path: []byte("/a"), Type: "file"}, {Path: []byte("/b"), Type: "file"}}},
		events: []*guestv1.ProcessEvent{started, out(1, 0, huge)},
	})
	_, err := c.Hello(t.Context())
	wantKind(t, "a huge answer", err, sandbox.Internal)
	list, err := c.Processes(t.Context())
	if err != nil || len(list[0].Name) > 255+8 || strings.Contains(list[0].Name, "\n") || !utf8.ValidString(list[0].Name) {
		t.Errorf("%+v %v", list, err)
	}
	_, _, err = c.ListDir(t.Context(), "/", 1, 1, "")
	wantKind(t, "more entries than asked for", err, sandbox.Internal)
	ev, err := c.Start(t.Context(), sandbox.Command{Argv: []string{"x"}})
	for err == nil {
		_, err = ev.Recv()
	}
	wantKind(t, "a huge event", err, sandbox.Internal)
}

func TestProtocols(t *testing.T) {
	for _, p := range []uint32{0, 2, math.MaxUint32} {
		_, err := meet(t, &evil{hello: &guestv1.HelloResponse{Protocol: p}}).Hello(t.Context())
		wantKind(t, "protocol", err, sandbox.Unsupported)
	}
}

func TestErrorsAreBounded(t *testing.T) {
	e := connect.NewError(connect.CodeNotFound, errors.New(strings.Repeat("\x1b[2J", 100_000)))
	_, err := meet(t, &evil{hello: &guestv1.HelloResponse{}, err: e}).Hello(t.Context())
	wantKind(t, "a long error", err, sandbox.NotFound)
	if len(err.Error()) > 8192 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%d bytes of text", len(err.Error()))
	}
}

func TestFileRoutesOfALiar(t *testing.T) {
	for what, h := range map[string]http.HandlerFunc{
		"no info":      func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("x")) },
		"a bad path":   func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Berth-File-Info", `{"path":"eA=="}`) },
		"no reason":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"an odd kind":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400); w.Write([]byte(`{"code":"fine"}`)) },
		"a redirect":   func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://10.0.0.9/", 302) },
		"another type": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Berth-File-Info", `[]`) },
	} {
		c := meet(t, &evil{files: h})
		_, _, err := c.ReadFile(t.Context(), "/x", sandbox.ReadRange{})
		wantKind(t, "read: "+what, err, sandbox.Internal)
		_, err = c.WriteFile(t.Context(), "/x", sandbox.WriteOptions{}, strings.NewReader("x"))
		wantKind(t, "write: "+what, err, sandbox.Internal)
	}
	c := meet(t, &evil{files: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Berth-File-Info", `{"path":"L3g=","type":"file","size":"100"}`)
		w.Header().Set("Content-Length", "100")
		w.Write([]byte("short"))
	}})
	body, _, err := c.ReadFile(t.Context(), "/x", sandbox.ReadRange{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(body)
	wantKind(t, "a short body", err, sandbox.Unavailable)
	body.Close()
}
