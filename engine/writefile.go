package engine

import (
	"context"
	"io"

	"github.com/berth-dev/berth/sandbox"
)

// WriteFile writes a file from what body gives, whole or not at all: an error of
// body's leaves what was there before.
func (e *Engine) WriteFile(ctx context.Context, id, path string, o sandbox.WriteOptions, body io.Reader) (sandbox.FileInfo, error) {
	const op = "write file"
	var none sandbox.FileInfo
	if err := checkTarget(path, o.Mode); err != nil {
		return none, fail(op, "", err)
	}
	s, l, end, err := e.using(ctx, id, sandbox.ActivityStream)
	if err != nil {
		return none, fail(op, known(id), err)
	}
	defer end()
	o.User = orElse(o.User, s.Base.User)
	fi, err := l.guest.WriteFile(ctx, path, o, body)
	return fi, explain(ctx, op, s, l, err)
}
