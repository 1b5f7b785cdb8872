package capnweb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Stub is something of the peer's: a function, or an object with methods. It is lent
// to a method for as long as its call lasts.
type Stub struct {
	session *Session
	id      int64
}

// Call calls the stub, or the method of it that path names, and waits for the result.
func (t *Stub) Call(ctx context.Context, path []string, args ...any) (any, error) {
	s := t.session
	out := &encoder{session: s}
	list := make([]any, len(args))
	for i, a := range args {
		x, err := out.value(a, 0)
		if err != nil {
			return nil, err
		}
		list[i] = x
	}
	if path == nil {
		path = []string{}
	}
	type result struct {
		v   any
		err error
	}
	got := make(chan result, 1)
	id, err := s.request("push", []any{"pipeline", t.id, path, list}, func(v any, err error) { got <- result{v, err} })
	if err == nil {
		err = s.send("pull", id)
	}
	if err != nil {
		return nil, err
	}
	for _, start := range out.sources {
		start()
	}
	select {
	case r := <-got:
		return r.v, errors.Join(r.err, s.send("release", id, 1))
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.ctx.Done():
		return nil, ErrEnded
	}
}

// release gives the stub back.
func (t *Stub) release() { _ = t.session.send("release", t.id, 1) }

// request sends a message that takes the next id and has an answer.
func (s *Session) request(kind string, expression any, answer func(any, error)) (int64, error) {
	b, err := json.Marshal([]any{kind, expression})
	if err != nil {
		return 0, err
	}
	s.sending.Lock() // ids go in the order of sending
	defer s.sending.Unlock()
	s.mu.Lock()
	id := s.nextOwn
	s.nextOwn++
	s.imports[id] = answer
	s.mu.Unlock()
	return id, s.write(b)
}

// settled takes an answer of the peer's.
func (s *Session) settled(id int64, expression any, failed bool) error {
	d := &decoder{session: s}
	v, err := d.value(expression, 0)
	if err != nil {
		return err
	}
	s.mu.Lock()
	answer, e := s.imports[id], s.awaited[id]
	delete(s.imports, id)
	delete(s.awaited, id)
	s.mu.Unlock()
	failure := error(nil)
	if failed {
		failure = asError(v)
	}
	if e != nil {
		return s.spawn(e, append(d.stubs, &Stub{s, id}), func() (any, error) {
			if failed {
				return nil, failure
			}
			return s.settle(v)
		})
	}
	if answer != nil {
		answer(v, failure)
	}
	return nil
}

func asError(v any) error {
	if e, ok := v.(*Error); ok {
		return e
	}
	return &Error{Message: fmt.Sprintf("%v", v)}
}

// lent is something that the peer has lent.
func (s *Session) lent(id int64) (*Stub, error) {
	if id >= 0 {
		return nil, fmt.Errorf("%w: %d is not an id of something lent", errProtocol, id)
	}
	return &Stub{s, id}, nil
}

// lentPromise is something that the peer will tell.
func (s *Session) lentPromise(id int64) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id >= 0 || s.awaited[id] != nil || len(s.awaited) >= s.limits.Table {
		return nil, fmt.Errorf("%w: %d is not an id of a promise", errProtocol, id)
	}
	e := s.spawnable()
	s.awaited[id] = e
	return e, nil
}

// lend gives the peer a function to call.
func (s *Session) lend(m Method) int64 {
	e := &entry{done: make(chan struct{}), value: m, refs: 1}
	close(e.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.nextLent
	s.nextLent--
	s.exports[id] = e
	return id
}
