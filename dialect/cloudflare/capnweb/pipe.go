package capnweb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Readable is a stream that the peer sends. Each chunk is acknowledged once it was
// read, so that a peer which keeps to the protocol waits for its reader.
type Readable struct {
	session *Session

	mu     sync.Mutex
	more   chan struct{} // one token: something has changed
	chunks []inChunk
	err    error // io.EOF after a close
	taken  bool  // somebody reads it
	left   bool  // nobody reads it any more
}

// inChunk is a chunk whose writer waits.
type inChunk struct {
	data  []byte
	whole int // bytes at first
	entry *entry
}

// pipe makes a stream that the peer will write to.
func (s *Session) pipe() error {
	e := s.spawnable()
	e.pipe = &Readable{session: s, more: make(chan struct{}, 1)}
	_, err := s.add(e)
	return err
}

// readable is the reading end of a pipe, which is given once.
func (s *Session) readable(id int64) (*Readable, error) {
	e := s.exported(id)
	if e == nil || e.pipe == nil {
		return nil, fmt.Errorf("%w: export %d is not a pipe", errProtocol, id)
	}
	e.pipe.mu.Lock()
	defer e.pipe.mu.Unlock()
	if e.pipe.taken {
		return nil, fmt.Errorf("%w: the readable end of pipe %d was consumed", errProtocol, id)
	}
	e.pipe.taken = true
	return e.pipe, nil
}

// feedPipe does what the writing end of a pipe is asked to, in the order of messages.
func (s *Session) feedPipe(p *Readable, path []string, args []any) (*entry, error) {
	e := s.spawnable()
	verb := ""
	if len(path) == 1 {
		verb = path[0]
	}
	switch verb {
	case "write":
		var b []byte
		if len(args) == 1 {
			switch x := args[0].(type) {
			case []byte:
				b = x
			case string:
				b = []byte(x)
			default:
				e.finish(nil, &Error{Name: "TypeError", Message: "the stream takes bytes"})
				return e, nil
			}
		}
		return e, p.write(b, e)
	case "close":
		p.fail(io.EOF)
		e.finish(Undefined{}, nil)
	case "abort":
		var why error = errors.New("the stream was aborted")
		if len(args) == 1 {
			why = asError(args[0])
		}
		p.fail(why)
		e.finish(Undefined{}, nil)
	default:
		e.finish(nil, &Error{Name: "TypeError", Message: "a stream has no such method"})
	}
	return e, nil
}

func (e *entry) finish(v any, err error) {
	e.value, e.err = v, err
	close(e.done)
}

// write adds a chunk. What nobody has read yet is bounded for all streams together.
func (p *Readable) write(b []byte, e *entry) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left || p.err != nil {
		e.finish(nil, errNotRead)
		return nil
	}
	s := p.session
	s.mu.Lock()
	s.pending += int64(len(b))
	over := s.pending > s.limits.Pending
	s.mu.Unlock()
	if over {
		return fmt.Errorf("%w: more than %d bytes of streams wait", errProtocol, s.limits.Pending)
	}
	p.chunks = append(p.chunks, inChunk{b, len(b), e})
	p.poke()
	return nil
}

var errNotRead = &Error{Message: "the stream is no longer read"}

func (p *Readable) poke() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// fail ends the stream behind what it has.
func (p *Readable) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.poke()
}

// Read reads the stream; it is for one goroutine at a time.
func (p *Readable) Read(b []byte) (int, error) {
	for {
		n, err, ok := p.take(b)
		if ok {
			return n, err
		}
		select {
		case <-p.more:
		case <-p.session.ctx.Done():
			return 0, ErrEnded
		}
	}
}

func (p *Readable) take(b []byte) (n int, err error, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.chunks) > 0 {
		c := &p.chunks[0]
		n = copy(b, c.data)
		if c.data = c.data[n:]; len(c.data) == 0 {
			p.drop(nil)
		}
		if n > 0 || len(b) == 0 {
			return n, nil, true
		}
	}
	if p.left {
		return 0, io.ErrClosedPipe, true
	}
	return 0, p.err, p.err != nil
}

// drop lets go of the first chunk, and tells its writer.
func (p *Readable) drop(err error) {
	c := p.chunks[0]
	p.chunks = p.chunks[1:]
	s := p.session
	s.mu.Lock()
	s.pending -= int64(c.whole)
	s.mu.Unlock()
	if err != nil {
		c.entry.finish(nil, err)
	} else {
		c.entry.finish(Undefined{}, nil)
	}
}

// Close says that nobody reads on; the peer's writes fail from then on.
func (p *Readable) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = true
	for len(p.chunks) > 0 {
		p.drop(errNotRead)
	}
	p.poke()
	return nil
}

// closeStreams closes the streams among a call's arguments when it is over.
func closeStreams(v any) {
	switch v := v.(type) {
	case *Readable:
		_ = v.Close()
	case []any:
		for _, one := range v {
			closeStreams(one)
		}
	case map[string]any:
		for _, one := range v {
			closeStreams(one)
		}
	}
}

const (
	outChunk = 64 << 10  // bytes of one message of a stream
	window   = 512 << 10 // bytes that a peer may not have acknowledged
)

// outPipe is a stream that the peer reads.
type outPipe struct {
	session *Session
	id      int64
	ctx     context.Context

	mu     sync.Mutex
	flight int64
	err    error
	more   chan struct{} // one token: something was acknowledged
}

// openPipe makes a pipe of the peer's.
func (s *Session) openPipe() (*outPipe, error) {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	id := s.nextOwn
	s.nextOwn++
	s.mu.Unlock()
	return &outPipe{session: s, id: id, more: make(chan struct{}, 1)}, s.write([]byte(`["pipe"]`))
}

// feed writes a stream to the peer, until its end.
func (s *Session) feed(p *outPipe, source Source) {
	s.work.Go(func() {
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		p.ctx = ctx
		err := s.pour(ctx, p, source)
		p.mu.Lock()
		gone := p.err != nil
		p.mu.Unlock()
		switch {
		case gone:
		case err != nil:
			out := &encoder{session: s}
			if x, xerr := out.value(errorValue(err), 0); xerr == nil {
				_ = p.message("abort", []any{x}, 0)
			}
		default:
			if p.message("close", []any{}, 0) == nil {
				p.drain()
			}
		}
		_ = s.send("release", p.id, 1)
	})
}

// pour runs a source. One that panics ends its stream, not the program.
func (s *Session) pour(ctx context.Context, p *outPipe, source Source) (err error) {
	defer func() {
		if recover() != nil {
			err = errPanic
		}
	}()
	return source(ctx, p)
}

// Write sends bytes, and waits while the peer has too much that it has not read.
func (p *outPipe) Write(b []byte) (int, error) {
	n := 0
	for len(b) > 0 {
		part := b[:min(len(b), outChunk)]
		if err := p.room(); err != nil {
			return n, err
		}
		out := &encoder{session: p.session}
		x, err := out.value(part, 0)
		if err == nil {
			err = p.message("write", []any{x}, int64(len(part)))
		}
		if err != nil {
			return n, err
		}
		n += len(part)
		b = b[len(part):]
	}
	return n, nil
}

// message sends one call of the pipe's writing end.
func (p *outPipe) message(verb string, args []any, size int64) error {
	p.mu.Lock()
	p.flight += size + 1
	p.mu.Unlock()
	_, err := p.session.request("stream", []any{"pipeline", p.id, []string{verb}, args}, func(_ any, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.flight -= size + 1
		if err != nil && p.err == nil {
			p.err = err
		}
		select {
		case p.more <- struct{}{}:
		default:
		}
	})
	return err
}

// room waits until the peer has read enough.
func (p *outPipe) room() error { return p.until(func() bool { return p.flight < window }) }

// drain waits until the peer has acknowledged everything.
func (p *outPipe) drain() { _ = p.until(func() bool { return p.flight == 0 }) }

func (p *outPipe) until(enough func() bool) error {
	for {
		p.mu.Lock()
		ok, err := enough(), p.err
		p.mu.Unlock()
		if err != nil || ok {
			return err
		}
		select {
		case <-p.more:
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		}
	}
}
