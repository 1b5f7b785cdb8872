package capnweb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Session is the RPC with one peer.
type Session struct {
	transport Transport
	limits    Limits
	ctx       context.Context // ends with the session
	end       context.CancelCauseFunc
	turns     chan struct{} // one a method that runs
	work      sync.WaitGroup

	sending sync.Mutex

	mu       sync.Mutex
	exports  map[int64]*entry // what the peer has here: 0 is the main object
	nextPeer int64            // id of what the peer makes next
	nextLent int64            // the same, of what it is lent: negative
	running  int              // goroutines of calls
	pending  int64            // bytes of streams that were not read yet

	imports map[int64]func(any, error) // answers that are waited for
	nextOwn int64
	awaited map[int64]*entry // promises that the peer has lent
}

// entry is a value that the peer knows by an id, or will be one.
type entry struct {
	done  chan struct{} // closed when value or err is set
	value any
	err   error
	pipe  *Readable // if it is the writing end of one

	refs   int64 // the rest: under Session.mu
	pulled bool  // the peer waits for it
	auto   bool  // it goes when it was answered
}

// Serve serves main to one peer until it goes, breaks the protocol, or ctx ends. It
// returns when every call has ended. The end of the transport is no error.
func Serve(ctx context.Context, t Transport, main Object, limits Limits) error {
	ctx, end := context.WithCancelCause(ctx)
	s := &Session{transport: t, limits: limits.orDefaults(), ctx: ctx, end: end, exports: map[int64]*entry{}, nextPeer: 1, nextLent: -1,
		imports: map[int64]func(any, error){}, nextOwn: 1, awaited: map[int64]*entry{}}
	s.turns = make(chan struct{}, s.limits.Calls)
	first := &entry{done: make(chan struct{}), value: main, refs: 1}
	close(first.done)
	s.exports[0] = first
	err := s.listen()
	if errors.Is(err, errProtocol) {
		_ = s.send("abort", s.plainError(err)) // as a courtesy
	}
	s.end(ErrEnded)
	s.fail()
	s.work.Wait()
	if errors.Is(err, errProtocol) {
		return err
	}
	return nil
}

func (s *Session) plainError(err error) any { return []any{"error", "Error", err.Error()} }

// fail ends what waits for the peer.
func (s *Session) fail() {
	s.mu.Lock()
	waiting := s.imports
	s.imports = map[int64]func(any, error){}
	var pipes []*Readable
	for _, e := range s.exports {
		if e.pipe != nil {
			pipes = append(pipes, e.pipe)
		}
	}
	s.mu.Unlock()
	for _, answer := range waiting {
		answer(nil, ErrEnded)
	}
	for _, p := range pipes {
		p.fail(ErrEnded)
	}
}

// listen takes the peer's messages until there are no more.
func (s *Session) listen() error {
	for {
		b, err := s.transport.Receive(s.ctx)
		if err != nil {
			return err
		}
		var m []any
		if err := json.Unmarshal(b, &m); err != nil {
			return fmt.Errorf("%w: %w", errProtocol, err)
		}
		if over, err := s.take(m); err != nil || over {
			return err
		}
	}
}

// take does what a message says. It never sends: a peer that does not read must not
// keep what it sends from being read.
func (s *Session) take(m []any) (over bool, err error) {
	kind := ""
	if len(m) > 0 {
		kind, _ = m[0].(string)
	}
	var id int64
	numbered := false
	if len(m) > 1 {
		id, numbered = number(m[1])
	}
	switch {
	case (kind == "push" || kind == "stream") && len(m) > 1:
		return false, s.push(m[1], kind == "stream")
	case kind == "pipe":
		return false, s.pipe()
	case kind == "pull" && numbered:
		return false, s.pull(id)
	case (kind == "resolve" || kind == "reject") && numbered && len(m) > 2:
		return false, s.settled(id, m[2], kind == "reject")
	case kind == "release" && numbered && len(m) > 2:
		n, ok := number(m[2])
		if !ok || n < 1 {
			break
		}
		return false, s.release(id, n)
	case kind == "abort":
		return true, nil
	}
	return false, fmt.Errorf("%w: %.40q", errProtocol, kind)
}

// add puts what the peer has made into the table, under its next id.
func (s *Session) add(e *entry) (id int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.exports) >= s.limits.Table {
		return 0, fmt.Errorf("%w: more than %d things are held", errProtocol, s.limits.Table)
	}
	e.refs = 1
	id = s.nextPeer
	s.exports[id] = e
	s.nextPeer++
	return id, nil
}

// push evaluates an expression, for later use or, if auto is set, for its answer.
func (s *Session) push(expression any, auto bool) error {
	d := &decoder{session: s}
	v, err := d.value(expression, 0)
	if err != nil {
		return err
	}
	p, ok := v.(promise)
	if !ok { // a value of the peer's own
		p = promise{s.spawnable()}
		if err := s.spawn(p.entry, d.stubs, func() (any, error) { return s.settle(v) }); err != nil {
			return err
		}
	}
	e := p.entry
	e.auto, e.pulled = auto, auto // nobody else knows it yet
	id, err := s.add(e)
	if err == nil && auto {
		s.answerLater(id, e)
	}
	return err
}

// pull sends the peer what an entry is, once that is known.
func (s *Session) pull(id int64) error {
	s.mu.Lock()
	e := s.exports[id]
	again := e != nil && e.pulled
	if e != nil {
		e.pulled = true
	}
	s.mu.Unlock()
	if e == nil {
		return fmt.Errorf("%w: no such export ID: %d", errProtocol, id)
	}
	if !again {
		s.answerLater(id, e)
	}
	return nil
}

// answerLater waits for an entry beside the reader, and sends it.
func (s *Session) answerLater(id int64, e *entry) {
	s.work.Go(func() {
		select {
		case <-e.done:
		case <-s.ctx.Done():
			return
		}
		s.answer(id, e)
	})
}

// answer sends what an entry is.
func (s *Session) answer(id int64, e *entry) {
	kind, v, err := "resolve", e.value, e.err
	out := &encoder{session: s}
	var expression any
	if err == nil {
		if expression, err = out.value(v, 0); err != nil {
			out.sources = nil
		}
	}
	if err != nil {
		kind = "reject"
		if expression, err = out.value(errorValue(err), 0); err != nil {
			expression = s.plainError(err)
		}
	}
	if s.send(kind, id, expression) != nil {
		return
	}
	for _, start := range out.sources {
		start()
	}
	s.mu.Lock()
	if e.auto && s.exports[id] == e {
		delete(s.exports, id)
	}
	s.mu.Unlock()
}

// release lets go of what the peer no longer needs.
func (s *Session) release(id, n int64) error {
	s.mu.Lock()
	e := s.exports[id]
	if e == nil || e.refs < n {
		s.mu.Unlock()
		return fmt.Errorf("%w: no such export ID: %d", errProtocol, id)
	}
	if e.refs -= n; e.refs > 0 || id == 0 {
		s.mu.Unlock()
		return nil
	}
	delete(s.exports, id)
	s.mu.Unlock()
	if e.pipe != nil {
		e.pipe.fail(errors.New("the stream was let go before its end"))
	}
	return nil
}

// exported is an entry by its id; nil if there is none.
func (s *Session) exported(id int64) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exports[id]
}

// spawnable is an entry that is not known yet.
func (s *Session) spawnable() *entry { return &entry{done: make(chan struct{})} }

// spawn finds out beside the reader what an entry is. The stubs are the peer's again
// then.
func (s *Session) spawn(e *entry, stubs []*Stub, find func() (any, error)) error {
	s.mu.Lock()
	if s.running >= s.limits.Table {
		s.mu.Unlock()
		return fmt.Errorf("%w: more than %d calls are under way", errProtocol, s.limits.Table)
	}
	s.running++
	s.mu.Unlock()
	s.work.Go(func() {
		e.value, e.err = find()
		close(e.done)
		s.mu.Lock()
		s.running--
		s.mu.Unlock()
		for _, stub := range stubs {
			stub.release()
		}
	})
	return nil
}

// get is a part of an entry.
func (s *Session) get(target *entry, path []string) *entry {
	e := s.spawnable()
	err := s.spawn(e, nil, func() (any, error) {
		v, err := s.wait(target)
		if err == nil {
			v, err = part(v, path)
		}
		return v, err
	})
	if err != nil {
		e.err = err
		close(e.done)
	}
	return e
}

// call calls a method of an entry.
func (s *Session) call(target *entry, path []string, args []any, stubs []*Stub) (*entry, error) {
	if target.pipe != nil {
		return s.feedPipe(target.pipe, path, args)
	}
	e := s.spawnable()
	return e, s.spawn(e, stubs, func() (any, error) {
		defer closeStreams(args)
		v, err := s.wait(target)
		if err == nil {
			v, err = part(v, path)
		}
		if err != nil {
			return nil, err
		}
		m, ok := v.(Method)
		if !ok {
			return nil, &Error{Name: "TypeError", Message: fmt.Sprintf("%q is not a function.", path)}
		}
		settled, err := s.settle(args)
		if err != nil {
			return nil, err
		}
		select {
		case s.turns <- struct{}{}:
			defer func() { <-s.turns }()
		case <-s.ctx.Done():
			return nil, ErrEnded
		}
		return s.invoke(m, settled.([]any))
	})
}

// errPanic is told in place of what went wrong in a method.
var errPanic = &Error{Message: "internal error"}

// invoke calls a method. One that panics ends its call, not the program.
func (s *Session) invoke(m Method, args []any) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			debug.PrintStack()
			v, err = nil, errPanic
		}
	}()
	return m(s.ctx, args)
}

// wait returns what an entry is.
func (s *Session) wait(e *entry) (any, error) {
	select {
	case <-e.done:
		return e.value, e.err
	case <-s.ctx.Done():
		return nil, ErrEnded
	}
}

// settle puts what promises have become in their place.
func (s *Session) settle(v any) (any, error) {
	switch v := v.(type) {
	case promise:
		return s.wait(v.entry)
	case []any:
		for i, one := range v {
			x, err := s.settle(one)
			if err != nil {
				return nil, err
			}
			v[i] = x
		}
	case map[string]any:
		for k, one := range v {
			x, err := s.settle(one)
			if err != nil {
				return nil, err
			}
			v[k] = x
		}
	}
	return v, nil
}

// part walks into a value.
func part(v any, path []string) (any, error) {
	for _, name := range path {
		var ok bool
		switch x := v.(type) {
		case Object:
			if v, ok = x[name]; !ok {
				return nil, &Error{Name: "TypeError", Message: fmt.Sprintf("RPC object has no property %.80q.", name)}
			}
		case map[string]any:
			if v, ok = x[name]; !ok {
				v = Undefined{}
			}
		case []any:
			v = element(x, name)
		case nil, Undefined:
			return nil, &Error{Name: "TypeError", Message: fmt.Sprintf("Cannot read property %.80q of undefined.", name)}
		default:
			v = Undefined{}
		}
	}
	return v, nil
}

func element(list []any, name string) any {
	var i int
	if _, err := fmt.Sscanf(name, "%d", &i); err != nil || i < 0 || i >= len(list) || fmt.Sprint(i) != name {
		return Undefined{}
	}
	return list[i]
}

// send sends a message.
func (s *Session) send(m ...any) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.write(b)
}

// write sends bytes; s.sending is held.
func (s *Session) write(b []byte) error {
	if err := s.transport.Send(s.ctx, b); err != nil {
		s.end(ErrEnded)
		return err
	}
	return nil
}
