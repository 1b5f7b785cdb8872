package guestclient_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/guestapi/v1/guestv1connect"
	"github.com/berth-dev/berth/sandbox"
)

// evilEye is a guest that tells of changes as a test tells it to.
type evilEye struct {
	guestv1connect.UnimplementedWatcherHandler
	all []*guestv1.WatchMessage
}

func (e *evilEye) Watch(_ context.Context, _ *connect.Request[guestv1.WatchRequest], s *connect.ServerStream[guestv1.WatchMessage]) error {
	for _, m := range e.all {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return nil
}

const goodCursor = "abcdefghijklmnop-1"

func saidReady(cursor string) *guestv1.WatchMessage {
	return &guestv1.WatchMessage{Message: &guestv1.WatchMessage_Ready{Ready: &guestv1.WatchReady{Cursor: cursor}}}
}

func told(kind, path, from, cursor string) *guestv1.WatchMessage {
	return &guestv1.WatchMessage{Message: &guestv1.WatchMessage_Event{Event: &guestv1.WatchEvent{
		Type: kind, Path: []byte(path), From: []byte(from), Cursor: cursor, Reason: strings.Repeat("r\x1b", 4000)}}}
}

// TestHostileWatch: what breaks the contract is Internal and never passed on.
func TestHostileWatch(t *testing.T) {
	good := told("create", "/w/a", "", goodCursor)
	for what, all := range map[string][]*guestv1.WatchMessage{
		"nothing":             {},
		"no beginning":        {good},
		"a bad cursor":        {saidReady("../../x")},
		"ready twice":         {saidReady(goodCursor), saidReady(goodCursor)},
		"an unknown type":     {saidReady(goodCursor), told("explode", "/w/a", "", goodCursor)},
		"ready as an event":   {saidReady(goodCursor), told("ready", "/w/a", "", goodCursor)},
		"a path outside":      {saidReady(goodCursor), told("create", "/etc/passwd", "", goodCursor)},
		"a path beside":       {saidReady(goodCursor), told("create", "/ww/a", "", goodCursor)},
		"a relative path":     {saidReady(goodCursor), told("create", "w/a", "", goodCursor)},
		"a long path":         {saidReady(goodCursor), told("create", "/w/"+strings.Repeat("x", 5000), "", goodCursor)},
		"from outside":        {saidReady(goodCursor), told("rename", "/w/a", "/etc/passwd", goodCursor)},
		"a rename of nothing": {saidReady(goodCursor), told("rename", "/w/a", "", goodCursor)},
		"an event's cursor":   {saidReady(goodCursor), told("create", "/w/a", "", "x\nid: y")},
	} {
		c := meet(t, &evil{routes: func(m *http.ServeMux) { m.Handle(guestv1connect.NewWatcherHandler(&evilEye{all: all})) }})
		w, err := c.Watch(t.Context(), sandbox.WatchRequest{Path: "/w/"})
		if err == nil {
			if _, err = w.Recv(); err == nil {
				_, err = w.Recv()
			}
			w.Close()
		}
		wantKind(t, what, err, sandbox.Internal)
	}
	c := meet(t, &evil{routes: func(m *http.ServeMux) {
		m.Handle(guestv1connect.NewWatcherHandler(&evilEye{all: []*guestv1.WatchMessage{told("overflow", "/etc", "/etc", goodCursor), good}}))
	}})
	w, err := c.Watch(t.Context(), sandbox.WatchRequest{Path: "/w"})
	do(t, err)
	defer w.Close()
	if e, err := w.Recv(); err != nil || e.Path != "" || len(e.Reason) > 2048 || strings.ContainsRune(e.Reason, 0x1b) {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := w.Recv(); err != nil || e.Path != "/w/a" {
		t.Errorf("%+v, %v", e, err)
	}
	_, err = w.Recv()
	wantKind(t, "the end", err, sandbox.Unavailable)
}

// TestOldGuest: a guest that lacks the newer services says so as Unsupported, and
// an addition to a file does not replace it.
func TestOldGuest(t *testing.T) {
	replaced := false
	c := meet(t, &evil{files: func(w http.ResponseWriter, r *http.Request) {
		replaced = replaced || r.Method == http.MethodPut
		w.WriteHeader(http.StatusMethodNotAllowed)
	}})
	_, err := c.Watch(t.Context(), sandbox.WatchRequest{Path: "/w"})
	wantKind(t, "watch", err, sandbox.Unsupported)
	_, err = c.Hash(t.Context(), "/w")
	wantKind(t, "hash", err, sandbox.Unsupported)
	if _, err = c.WriteFile(t.Context(), "/w", sandbox.WriteOptions{Append: true}, strings.NewReader("x")); replaced {
		t.Error("an addition replaced the file")
	}
	wantKind(t, "append", err, sandbox.Unsupported)
}

// TestHostileCounts: the counts of an unpacked stream are numbers.
func TestHostileCounts(t *testing.T) {
	for _, body := range []string{"", "{", `{"Files":-1}`, strings.Repeat("[", 1<<17)} {
		c := meet(t, &evil{routes: func(m *http.ServeMux) {
			m.HandleFunc("/archive", func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				io.WriteString(w, body)
			})
		}})
		_, err := c.Unpack(t.Context(), "/w", sandbox.UnpackOptions{}, strings.NewReader(""))
		wantKind(t, "counts", err, sandbox.Internal)
	}
}
