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
	s, l, end, err := e.using(ctx, id, sandbox.ActivityStream)
	if err != nil {
		return nil, none, fail(op, known(id), err)
	}
	body, fi, err := l.guest.ReadFile(ctx, path, r)
	if err != nil {
		end()
		return nil, none, explain(ctx, op, s, l, err)
	}
	return &activeBody{body, end, context.AfterFunc(ctx, end)}, fi, nil
}

// activeBody is a body whose end ends an activity.
type activeBody struct {
	io.ReadCloser
	end    func()
	detach func() bool
}

// WriteTo gives the body in pieces as large as its source has them.
func (b *activeBody) WriteTo(w io.Writer) (int64, error) {
	if whole, ok := b.ReadCloser.(io.WriterTo); ok {
		return whole.WriteTo(w)
	}
	return io.CopyBuffer(w, b.ReadCloser, make([]byte, 256<<10))
}

func (b *activeBody) Close() error {
	err := b.ReadCloser.Close()
	b.detach()
	b.end()
	return err
}
