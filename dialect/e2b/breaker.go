package e2b

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
)

// breaker breaks the connection of a stream whose sandbox was removed under it. These
// clients take that, and nothing else, as a reason to ask whether the sandbox lives.
// What was only put aside they must not ask, for that would wake it.
type breaker struct{}

// WrapUnary leaves answers as they are.
func (breaker) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

// WrapStreamingClient does nothing: there are no clients here.
func (breaker) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler breaks a stream that has begun, and whose sandbox is gone.
func (breaker) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		c := &begun{StreamingHandlerConn: conn}
		err := next(ctx, c)
		if c.sent && errors.Is(err, errGone) && ctx.Err() == nil {
			panic(http.ErrAbortHandler)
		}
		return err
	}
}

// begun notes that something was sent.
type begun struct {
	connect.StreamingHandlerConn
	sent bool
}

// Send sends a message.
func (c *begun) Send(m any) error {
	c.sent = true
	return c.StreamingHandlerConn.Send(m)
}
