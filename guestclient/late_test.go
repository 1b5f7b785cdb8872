package guestclient_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/guestapi/v1/guestv1connect"
)

// TestAnAnswerAfterTheCancel: what a guest says to one who has gone is not taken for the
// answer to the next question.
func TestAnAnswerAfterTheCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	defer let()
	var calls atomic.Int32
	answer := func(context.Context, *connect.Request[guestv1.ListProcessesRequest]) (*connect.Response[guestv1.ListProcessesResponse], error) {
		id := "p2"
		if calls.Add(1) == 1 {
			cancel()
			<-release
			id = "p1"
		}
		return connect.NewResponse(&guestv1.ListProcessesResponse{Processes: []*guestv1.Process{{Id: id, Pid: 2}}}), nil
	}
	const path = guestv1connect.GuestListProcessesProcedure
	c := meet(t, &evil{routes: func(m *http.ServeMux) { m.Handle(path, connect.NewUnaryHandler(path, answer)) }})
	if _, err := c.Processes(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("the first question: %v", err)
	}
	let()
	for range 20 {
		all, err := c.Processes(t.Context())
		if err != nil || len(all) != 1 || all[0].ID != "p2" {
			t.Fatalf("a later question is answered %+v, %v", all, err)
		}
	}
}
