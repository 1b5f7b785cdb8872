package engine

import (
	"context"
	"io"

	"github.com/berth-dev/berth/sandbox"
)

// ReadFile opens a file's bytes, or a part of them, and describes the whole
// file. The caller closes them; they live no longer than ctx.
func (e *Engine) ReadFile(ctx context.Context, id, path string, r sandbox.ReadRange) (io.ReadCloser, sandbox.FileInfo, error) {
	const op = "read file"
	var none sandbox.FileInfo
	if err := sandbox.CheckPath(path); err != nil {
		return nil, none, fail(op, "", err)
	}
	if r.Offset < 0 || r.Length < 0 {
		return nil, none, sandbox.Errorf(op, sandbox.Invalid, "offset %d and length %d must not be negative", r.Offset, r.Length)
	}
	s, l, err := e.running(ctx, id)
	if err != nil {
		return nil, none, fail(op, known(id), err)
	}
	body, fi, err := l.guest.ReadFile(ctx, path, r)
	if err != nil {
		return nil, none, explain(ctx, op, s, l, err)
	}
	return body, fi, nil
}
