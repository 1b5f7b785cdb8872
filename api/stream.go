package api

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

const (
	keepAlive = 15 * time.Second // of silence; then a stream says that it lives
	writeTime = 30 * time.Second // for a client to take what is sent; a slower one is gone
)

// sink takes the events of one thing in one of the API's forms.
type sink[E any] interface {
	Event(E) error
	KeepAlive() error
}

// source gives the events of one thing; io.EOF follows the last.
type source[E any] interface {
	Recv() (E, error)
	Close() error
}

// stream is a sink that can say, after it has begun, that it is broken.
type stream interface {
	sink[sandbox.Event]
	Error(wire.Error) error
}

// accepted picks the form of an answer from the Accept header: the first of
// those offered that it names, JSON if it names any type or none.
func accepted(r *http.Request, offered ...string) (string, error) {
	header := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		return wire.TypeJSON, nil
	}
	for part := range strings.SplitSeq(header, ",") {
		t, _, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		if t == "*/*" || t == "application/*" {
			return wire.TypeJSON, nil
		}
		for _, o := range offered {
			if t == o {
				return o, nil
			}
		}
	}
	return "", &sandbox.Error{Op: "choose the answer's form", Kind: sandbox.Invalid, Err: errors.New("nothing in the Accept header is served here"),
		Hint: "this route gives " + strings.Join(offered, ", ")}
}

// untilClose returns a context that ends with the request or with the API.
func (a *API) untilClose(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(r.Context())
	detach := context.AfterFunc(a.ctx, func() { cancel(errClosing) })
	return ctx, func() { detach(); cancel(nil) }
}

var errClosing = &sandbox.Error{Kind: sandbox.Unavailable, Err: errors.New("the server is shutting down"),
	Hint: "try again in a moment; attach to a process that lives on with the offsets you have"}

// sendEvents answers with the events, in the form given, until they end.
func (a *API) sendEvents(ctx context.Context, w http.ResponseWriter, form string, events sandbox.Events) error {
	if form == wire.TypeJSON {
		var c collector
		if err := pump[sandbox.Event](ctx, events, &c); err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, c.output())
	}
	out := gather(paced(w, form))
	defer out.end()
	err := pump[sandbox.Event](ctx, events, out)
	if err == nil {
		return nil
	}
	return out.Error(a.errorBody(w.(*answer), err)) // told in the stream itself
}

// begin starts an answer that is a stream.
func begin(w http.ResponseWriter, form string) stream {
	s, _ := paced(w, form)
	return s
}

// paced is begin that tells what paces the stream.
func paced(w http.ResponseWriter, form string) (stream, *pacedWriter) {
	h := w.Header()
	h.Set("Content-Type", form)
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	out := &pacedWriter{w: w, rc: http.NewResponseController(w), prompt: true}
	if form == wire.TypeRaw {
		return wire.NewFrameWriter(out), out
	}
	return wire.NewSSEWriter(out), out
}

// pacedWriter gives up on a client that takes nothing for writeTime. A prompt one
// sends at once what it is given.
type pacedWriter struct {
	w      io.Writer
	rc     *http.ResponseController
	prompt bool
}

func (p *pacedWriter) Write(b []byte) (int, error) {
	if err := p.rc.SetWriteDeadline(time.Now().Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := p.w.Write(b)
	if err != nil || !p.prompt {
		return n, err
	}
	return n, p.rc.Flush()
}

// pump passes events on until the last, and fills silence with signs of life.
// Whatever ends it, the events are closed and their reader is gone afterwards.
func pump[E any](ctx context.Context, events source[E], out sink[E]) error {
	type received struct {
		event E
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	arrived := make(chan received)
	var reader sync.WaitGroup
	defer func() {
		cancel()
		events.Close()
		reader.Wait()
	}()
	reader.Go(func() {
		for {
			e, err := events.Recv()
			select {
			case arrived <- received{e, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	for {
		var err error
		select {
		case r := <-arrived:
			if errors.Is(r.err, io.EOF) {
				return nil
			}
			if r.err != nil {
				return r.err
			}
			err = out.Event(r.event)
			quiet.Reset(keepAlive)
		case <-quiet.C:
			err = out.KeepAlive()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err != nil {
			return &sandbox.Error{Op: "send events", Kind: sandbox.Unavailable, Err: err}
		}
	}
}
