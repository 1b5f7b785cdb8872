package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// prepareCode has a machine that waits start the interpreter that its first run of code
// would start. Somebody may claim the machine meanwhile: that run then waits for what is
// left of the start. Most images have no interpreter, and what cannot be started ahead is
// started, and explained, when code is run.
func (e *Engine) prepareCode(ctx context.Context, w *warm) {
	s := &stored{Base: w.base}
	o, err := s.codeOptions(sandbox.CodeOptions{})
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, rehearsalTime)
		defer cancel()
		_, err = w.guest.PrepareCode(ctx, o)
	}
	if err != nil && ctx.Err() == nil {
		e.log.Debug("start an interpreter ahead", "machine", w.id, "error", err)
	}
}
