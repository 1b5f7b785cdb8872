package cloudflare

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// stream takes the events of an answer that goes on.
type stream interface {
	// send sends an event; the first one begins the answer.
	send(name string, v any) error
}

// streaming is an operation that answers with events. An error before its first one
// is the answer.
type streaming func(ctx context.Context, out stream) error

// writeTime is how long a client may take to take an event.
const writeTime = 60 * time.Second

// serverSent sends events over HTTP.
type serverSent struct {
	w     http.ResponseWriter
	begun bool
}

var errGone = &sandbox.Error{Op: "send", Kind: sandbox.Unavailable, Err: errors.New("the client has gone")}

func (s *serverSent) send(_ string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return sandbox.Errorf("encode event", sandbox.Internal, "%w", err)
	}
	control := http.NewResponseController(s.w)
	if !s.begun {
		s.begun = true
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		s.w.WriteHeader(http.StatusOK)
	}
	_ = control.SetWriteDeadline(time.Now().Add(writeTime)) // where it can be had
	if _, err := s.w.Write(frame("", b)); err != nil {
		return errGone
	}
	if err := control.Flush(); err != nil {
		return errGone
	}
	_ = control.SetWriteDeadline(time.Time{})
	return nil
}

// frame is an event as bytes.
func frame(name string, data []byte) []byte {
	var b []byte
	if name != "" {
		b = append(b, "event: "+name+"\n"...)
	}
	b = append(b, "data: "...)
	b = append(b, data...)
	return append(b, "\n\n"...)
}

// tell runs a stream over an answer. What goes wrong once it has begun is its last
// event.
func (s *Server) tell(w http.ResponseWriter, r *http.Request, run streaming) {
	var out stream
	var begun func() bool
	if sink, ok := w.(eventSink); ok {
		one := &counting{stream: sink.events()}
		out, begun = one, func() bool { return one.any }
	} else {
		one := &serverSent{w: w}
		out, begun = one, func() bool { return one.begun }
	}
	err := run(r.Context(), out)
	switch {
	case err == nil, errors.Is(err, errGone):
	case !begun():
		s.render(w, err)
	default:
		_ = out.send("error", errorEvent{Type: "error", Error: s.bodyOf(err).Message, Timestamp: now()})
	}
}

// eventSink is an answer that takes events as they are.
type eventSink interface{ events() stream }

// counting knows whether an event was sent.
type counting struct {
	stream
	any bool
}

func (c *counting) send(name string, v any) error {
	c.any = true
	return c.stream.send(name, v)
}
