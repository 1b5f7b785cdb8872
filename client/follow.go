package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// maxLogLine bounds one entry of a log, in bytes.
const maxLogLine = 256 << 10

// follow streams a log of the server's, what is to come too.
func follow[T any](ctx context.Context, c *Client, op, route string, query url.Values, cursor func(T) string) (source[T], error) {
	ctx, cancel := context.WithCancel(ctx)
	resp, err := c.send(ctx, call{op: op, method: http.MethodGet, path: []string{route}, query: query, accept: wire.TypeNDJSON})
	if err != nil {
		cancel()
		return nil, err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4096), maxLogLine)
	return &logStream[T]{ctx: ctx, cancel: cancel, op: op, body: resp.Body, lines: lines, cursor: cursor}, nil
}

// source is what a sandbox.ChangeStream and a sandbox.AuditStream both are.
type source[T any] interface {
	Recv() (T, error)
	Close() error
}

// logStream is a log's entries, read from lines of JSON.
type logStream[T any] struct {
	ctx    context.Context
	cancel context.CancelFunc
	op     string
	body   io.ReadCloser
	lines  *bufio.Scanner
	cursor func(T) string // of an entry; none has ""
	once   sync.Once
	err    error
}

func (s *logStream[T]) Recv() (entry T, err error) {
	for s.lines.Scan() {
		line := bytes.TrimSpace(s.lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var broken wire.Error
		if json.Unmarshal(line, &broken) == nil && broken.Error.Code != "" {
			return entry, &sandbox.Error{Op: s.op, Err: broken.Err()}
		}
		if err = json.Unmarshal(line, &entry); err == nil && s.cursor(entry) == "" {
			err = errors.New("it has no cursor")
		}
		if err != nil {
			err = &sandbox.Error{Op: s.op, Kind: sandbox.Internal, Err: fmt.Errorf("read an entry: %w", err)}
		}
		return entry, err
	}
	if s.ctx.Err() != nil {
		return entry, &sandbox.Error{Op: s.op, Err: context.Cause(s.ctx)}
	}
	if err = s.lines.Err(); err == nil {
		err = io.ErrUnexpectedEOF
	}
	return entry, &sandbox.Error{Op: s.op, Kind: sandbox.Unavailable, Err: err, Hint: "follow again with the cursor of the last entry"}
}

// Close ends the stream. It may be called at any time, twice too.
func (s *logStream[T]) Close() error {
	s.once.Do(func() {
		s.cancel()
		s.err = s.body.Close()
	})
	return s.err
}
