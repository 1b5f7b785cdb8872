package engine

import "context"

// ask puts a question to the guest of a running sandbox, which guestclient
// bounds in time, and explains what goes wrong.
func (e *Engine) ask(ctx context.Context, op, id string, question func(*live) error) error {
	s, l, err := e.running(ctx, id)
	if err != nil {
		return fail(op, known(id), err)
	}
	return explain(ctx, op, s, l, question(l))
}
