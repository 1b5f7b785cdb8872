package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// WaitProcess returns when the process has ended, or ctx.
func (e *Engine) WaitProcess(ctx context.Context, id, process string) (sandbox.Exit, error) {
	const op = "wait"
	s, l, end, err := e.using(ctx, id, sandbox.ActivityStream)
	if err != nil {
		return sandbox.Exit{}, fail(op, known(id), err)
	}
	defer end()
	exit, err := l.guest.Wait(ctx, process)
	return exit, explain(ctx, op, s, l, err)
}

// WaitLine returns the first line of a process's output that matches, or an
// error of kind Conflict if the process ends first.
func (e *Engine) WaitLine(ctx context.Context, id, process string, w sandbox.LineWait) (sandbox.Line, error) {
	const op = "wait"
	s, l, end, err := e.using(ctx, id, sandbox.ActivityStream)
	if err != nil {
		return sandbox.Line{}, fail(op, known(id), err)
	}
	defer end()
	line, err := l.guest.WaitLine(ctx, process, w)
	return line, explain(ctx, op, s, l, err)
}

// WaitPort returns when a port inside the sandbox answers, or an error of kind
// Conflict if the process ends first. The process "" is none.
func (e *Engine) WaitPort(ctx context.Context, id, process string, w sandbox.PortWait) (sandbox.PortAnswer, error) {
	const op = "wait"
	s, l, end, err := e.using(ctx, id, sandbox.ActivityStream)
	if err != nil {
		return sandbox.PortAnswer{}, fail(op, known(id), err)
	}
	defer end()
	answer, err := l.guest.WaitPort(ctx, process, w)
	return answer, explain(ctx, op, s, l, err)
}
