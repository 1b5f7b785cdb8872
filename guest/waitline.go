package guest

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

const (
	maxLine    = 64 << 10 // of a longer line each part of this size counts as one
	maxPattern = 4096
)

// lineSearch looks for a line in two streams of bytes that come in parts.
type lineSearch struct {
	text   []byte         // a part of the line; or
	regexp *regexp.Regexp // tried on whole lines
	only   int            // the stream to look at; -1 for both
	part   [streams][]byte
	at     [streams]int64 // offset of part's first byte
}

func newLineSearch(r *guestv1.WaitLineRequest) (*lineSearch, error) {
	s := &lineSearch{text: r.Text, only: -1}
	switch r.Stream {
	case guestv1.Stream_STREAM_STDOUT:
		s.only = stdout
	case guestv1.Stream_STREAM_STDERR:
		s.only = stderr
	}
	if (len(r.Text) == 0) == (r.Regexp == "") || len(r.Text) > maxPattern || len(r.Regexp) > maxPattern || bytes.IndexByte(r.Text, '\n') >= 0 {
		return nil, refuse(invalid, "give a part of a line, or an expression", "need exactly one of text and regexp, of at most %d bytes", maxPattern)
	}
	if r.Regexp != "" {
		var err error
		if s.regexp, err = regexp.Compile(r.Regexp); err != nil {
			return nil, refuse(invalid, "expressions are those of RE2", "%w", err)
		}
	}
	return s, nil
}

// add takes the bytes of a stream at an offset and returns the first line that
// matches, as far as it is there.
func (s *lineSearch) add(stream int, offset int64, data []byte) *guestv1.WaitLineResponse {
	if s.only >= 0 && stream != s.only {
		return nil
	}
	if offset != s.at[stream]+int64(len(s.part[stream])) { // a gap: what came before it is no part of this line
		s.part[stream], s.at[stream] = nil, offset
	}
	for len(data) > 0 {
		n := bytes.IndexByte(data, '\n')
		whole := n >= 0
		if !whole {
			n = len(data)
		}
		if room := maxLine - len(s.part[stream]); n > room {
			n, whole = room, false
		}
		s.part[stream] = append(s.part[stream], data[:n]...)
		data = data[n:]
		long := len(s.part[stream]) == maxLine
		if found := s.match(stream, whole || long); found != nil {
			return found
		}
		if whole || long {
			s.at[stream] += int64(len(s.part[stream]))
			s.part[stream] = s.part[stream][:0]
		}
		if whole {
			data = data[1:]
			s.at[stream]++
		}
	}
	return nil
}

// end tries the unfinished lines.
func (s *lineSearch) end() *guestv1.WaitLineResponse {
	for i := range s.part {
		if len(s.part[i]) > 0 {
			if found := s.match(i, true); found != nil {
				return found
			}
		}
	}
	return nil
}

func (s *lineSearch) match(stream int, whole bool) *guestv1.WaitLineResponse {
	line := s.part[stream]
	switch {
	case s.regexp == nil && bytes.Contains(line, s.text):
	case s.regexp != nil && whole && s.regexp.Match(bytes.TrimSuffix(line, []byte("\r"))):
	default:
		return nil
	}
	return &guestv1.WaitLineResponse{Stream: streamName(stream), Offset: s.at[stream], Line: bytes.Clone(line)}
}

// waitLine reads a process's output until a line matches.
func waitLine(ctx context.Context, p *process, r *guestv1.WaitLineRequest) (*guestv1.WaitLineResponse, error) {
	search, err := newLineSearch(r)
	if err != nil {
		return nil, err
	}
	c, err := p.out.read([streams]int64{r.StdoutOffset, r.StderrOffset})
	if err != nil {
		return nil, err
	}
	defer c.close()
	search.at = c.at
	ctx, cancel := within(ctx, r.TimeoutMs)
	defer cancel()
	for {
		for e := c.next(); e != nil; e = c.next() {
			switch {
			case e.GetOutput() != nil:
				o := e.GetOutput()
				if found := search.add(streamIndex(o.Stream), o.Offset, o.Data); found != nil {
					return found, nil
				}
			case e.GetExit() != nil:
				if found := search.end(); found != nil {
					return found, nil
				}
				return nil, endedFirst(p, e.GetExit(), "wrote such a line")
			}
			if ctx.Err() != nil {
				return nil, late(ctx, r.TimeoutMs, "no such line came")
			}
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return nil, late(ctx, r.TimeoutMs, "no such line came")
		}
	}
}

func streamIndex(s guestv1.Stream) int {
	if s == guestv1.Stream_STREAM_STDERR {
		return stderr
	}
	return stdout
}

// errLate is the cause of a context that ended at a wait's own timeout.
var errLate = errors.New("timeout")

// within bounds ctx by a wait's own timeout; 0 is none.
func within(ctx context.Context, ms int64) (context.Context, context.CancelFunc) {
	if ms <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, time.Duration(min(ms, 1<<40))*time.Millisecond, errLate)
}

// late is the error of a wait whose context has ended.
func late(ctx context.Context, ms int64, what string) error {
	if context.Cause(ctx) == errLate {
		return refuse(connect.CodeDeadlineExceeded, "", "%s in %v", what, time.Duration(ms)*time.Millisecond)
	}
	return connect.NewError(codeOfContext(ctx), ctx.Err())
}

// endedFirst is the error of a wait for what can no longer come.
func endedFirst(p *process, e *guestv1.Exit, before string) error {
	how := "exit code " + itoa(e.Code)
	if e.Signal != "" {
		how = e.Signal
	}
	return refuse(conflict, "its output says why", "process %s ended (%s) before it %s", p.id, how, before)
}
