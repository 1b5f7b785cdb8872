package engine

import (
	"context"
	"io"

	"github.com/berth-dev/berth/sandbox"
)

// FindFiles lists what lies beneath a folder and matches a pattern, and says
// whether there is more.
func (e *Engine) FindFiles(ctx context.Context, id string, q sandbox.FindQuery) (all []sandbox.FileInfo, more bool, err error) {
	const op = "find files"
	if err := checkListDir(q.Path, q.Depth, q.Limit, q.After); err != nil {
		return nil, false, fail(op, "", err)
	}
	if err := sandbox.CheckGlob(q.Glob); err != nil {
		return nil, false, fail(op, "", err)
	}
	err = e.toil(ctx, op, id, func(l *live) error {
		all, more, err = l.guest.Find(ctx, q)
		return err
	})
	return all, more, err
}

// ChangeFile sets mode, owner or time of an entry, or makes an empty file.
func (e *Engine) ChangeFile(ctx context.Context, id, path string, c sandbox.FileChange) (fi sandbox.FileInfo, err error) {
	const op = "change file"
	err = sandbox.CheckPath(path)
	if err == nil {
		err = c.Check()
	}
	if err != nil {
		return fi, fail(op, "", err)
	}
	if c.User, err = e.owner(ctx, id, c.User); err != nil {
		return fi, fail(op, known(id), err)
	}
	err = e.toil(ctx, op, id, func(l *live) error {
		fi, err = l.guest.Change(ctx, path, c)
		return err
	})
	return fi, err
}

// CopyFile copies an entry to another path of the same sandbox.
func (e *Engine) CopyFile(ctx context.Context, id, from, to string, o sandbox.CopyOptions) (fi sandbox.FileInfo, err error) {
	const op = "copy file"
	for _, p := range []string{from, to} {
		if err := sandbox.CheckPath(p); err != nil {
			return fi, fail(op, "", err)
		}
	}
	err = e.toil(ctx, op, id, func(l *live) error {
		fi, err = l.guest.Copy(ctx, from, to, o)
		return err
	})
	return fi, err
}

// LinkFile makes a symbolic link that says target, whatever that is; replace
// lets it take the place of a file or a link.
func (e *Engine) LinkFile(ctx context.Context, id, path, target string, replace bool) (fi sandbox.FileInfo, err error) {
	const op = "link file"
	if err := sandbox.CheckPath(path); err != nil {
		return fi, fail(op, "", err)
	}
	user, err := e.owner(ctx, id, "")
	if err != nil {
		return fi, fail(op, known(id), err)
	}
	err = e.ask(ctx, op, id, func(l *live) error {
		fi, err = l.guest.Link(ctx, path, target, user, replace)
		return err
	})
	return fi, err
}

// HashFile tells the SHA-256 of a file's bytes, which do not leave the sandbox.
func (e *Engine) HashFile(ctx context.Context, id, path string) (h sandbox.FileHash, err error) {
	const op = "hash file"
	if err := sandbox.CheckPath(path); err != nil {
		return h, fail(op, "", err)
	}
	err = e.toil(ctx, op, id, func(l *live) error {
		h, err = l.guest.Hash(ctx, path)
		return err
	})
	return h, err
}

// FileAttributes gives the extended attributes of an entry. A file system that
// keeps none is Unsupported.
func (e *Engine) FileAttributes(ctx context.Context, id, path string) (all sandbox.Attributes, err error) {
	const op = "read attributes"
	if err := sandbox.CheckPath(path); err != nil {
		return nil, fail(op, "", err)
	}
	err = e.ask(ctx, op, id, func(l *live) error {
		all, err = l.guest.Attributes(ctx, path)
		return err
	})
	return all, err
}

// SetFileAttributes changes extended attributes and gives all there are then.
func (e *Engine) SetFileAttributes(ctx context.Context, id, path string, c sandbox.AttributeChange) (all sandbox.Attributes, err error) {
	const op = "set attributes"
	err = sandbox.CheckPath(path)
	if err == nil {
		err = c.Check()
	}
	if err != nil {
		return nil, fail(op, "", err)
	}
	err = e.ask(ctx, op, id, func(l *live) error {
		all, err = l.guest.SetAttributes(ctx, path, c)
		return err
	})
	return all, err
}

// Archive opens a tar stream of what a folder holds, or of one file. The caller
// closes it; it lives no longer than ctx. What it holds is the sandbox's word.
func (e *Engine) Archive(ctx context.Context, id, path string, o sandbox.ArchiveOptions) (io.ReadCloser, error) {
	const op = "archive"
	if err := sandbox.CheckPath(path); err != nil {
		return nil, fail(op, "", err)
	}
	s, l, end, err := e.using(ctx, id, sandbox.ActivityStream)
	if err != nil {
		return nil, fail(op, known(id), err)
	}
	body, err := l.guest.Archive(ctx, path, o)
	if err != nil {
		end()
		return nil, explain(ctx, op, s, l, err)
	}
	return &activeBody{body, end, context.AfterFunc(ctx, end)}, nil
}

// Unpack turns a tar stream into what a folder holds. An error leaves what was
// unpacked before it.
func (e *Engine) Unpack(ctx context.Context, id, path string, o sandbox.UnpackOptions, body io.Reader) (sandbox.Unpacked, error) {
	const op = "unpack"
	if err := sandbox.CheckPath(path); err != nil {
		return sandbox.Unpacked{}, fail(op, "", err)
	}
	s, l, end, err := e.using(ctx, id, sandbox.ActivityStream)
	if err != nil {
		return sandbox.Unpacked{}, fail(op, known(id), err)
	}
	defer end()
	o.User = orElse(o.User, s.Base.User)
	u, err := l.guest.Unpack(ctx, path, o, body)
	return u, explain(ctx, op, s, l, err)
}

// toil is ask for work that takes as long as there are files. It counts as an
// activity, so that a pause ends it rather than waits for it.
func (e *Engine) toil(ctx context.Context, op, id string, question func(*live) error) error {
	s, l, end, err := e.using(ctx, id, sandbox.ActivityStream)
	if err != nil {
		return fail(op, known(id), err)
	}
	defer end()
	return explain(ctx, op, s, l, question(l))
}
