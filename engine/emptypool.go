package engine

import (
	"context"
	"errors"

	"github.com/berth-dev/berth/sandbox"
)

// EmptyPool ends the machines that wait for a create. What is asked for lately is made
// again in time. It is for the operator: the machines are every account's.
func (e *Engine) EmptyPool(ctx context.Context) error {
	const op = "empty pool"
	done, err := e.task()
	if err != nil {
		return fail(op, "", err)
	}
	defer done()
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return fail(op, "", err)
	}
	if !c.Operator {
		return fail(op, "", &sandbox.Error{Kind: sandbox.Forbidden, Err: errors.New("this is for the server's operator")})
	}
	ctx, cancel := bounded(ctx, stopTime)
	defer cancel()
	var errs []error
	for _, w := range e.pool.surplus(e.now(), true, nil) {
		errs = append(errs, e.endWarm(ctx, w))
	}
	return fail(op, "", errors.Join(errs...))
}
