package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/sandbox"
)

// ask puts a short question to the guest of a running sandbox and bounds the
// time that it may take over the answer.
func (e *Engine) ask(ctx context.Context, op, id string, question func(context.Context, *live) error) error {
	s, l, err := e.running(ctx, id)
	if err != nil {
		return fail(op, sandbox.ID(id), err)
	}
	limited, cancel := context.WithTimeoutCause(ctx, callTime, errSlowGuest)
	defer cancel()
	err = question(limited, l)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), errSlowGuest) {
		err = errSlowGuest
	}
	return e.explain(ctx, op, s, err)
}

// errSlowGuest is the end of a question that was not answered in time.
var errSlowGuest = &sandbox.Error{Kind: sandbox.Timeout, Err: fmt.Errorf("the guest has not answered within %v", callTime),
	Hint: "the sandbox may be out of memory or CPU: try again, or remove it"}
