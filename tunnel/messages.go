package tunnel

import (
	"context"
	"io"
)

// Messages reads what comes in parts, as the messages of a WebSocket do, as one stream,
// which ends with ctx. An empty part is passed over.
func Messages(ctx context.Context, parts <-chan []byte) io.Reader {
	return &messages{ctx: ctx, parts: parts}
}

type messages struct {
	ctx   context.Context
	parts <-chan []byte
	rest  []byte
}

func (m *messages) Read(p []byte) (int, error) {
	for len(m.rest) == 0 {
		select {
		case m.rest = <-m.parts:
		case <-m.ctx.Done():
			return 0, io.EOF
		}
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}
