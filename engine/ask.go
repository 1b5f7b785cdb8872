package engine

import "context"

// ask puts a question to the guest of a sandbox, which it wakes. guestclient
// bounds it in time; what goes wrong is explained.
func (e *Engine) ask(ctx context.Context, op, id string, question func(*live) error) error {
	s, l, end, err := e.using(ctx, id, shortCall)
	if err != nil {
		return fail(op, known(id), err)
	}
	defer end()
	return explain(ctx, op, s, l, question(l))
}
