package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// MaxDirPage bounds one page of a directory; 0 means as many.
const MaxDirPage = 10_000

// Stat describes a path; follow says whether a symbolic link is followed.
func (e *Engine) Stat(ctx context.Context, id, path string, follow bool) (fi sandbox.FileInfo, err error) {
	const op = "stat"
	if err := sandbox.CheckPath(path); err != nil {
		return fi, fail(op, "", err)
	}
	err = e.ask(ctx, op, id, func(l *live) error {
		fi, err = l.guest.Stat(ctx, path, follow)
		return err
	})
	return fi, err
}

// ListDir lists a directory down to depth (1: its entries alone; 0 means 1), at
// most limit entries after the path "after", and says whether more follow.
func (e *Engine) ListDir(ctx context.Context, id, path string, depth, limit int, after string) (all []sandbox.FileInfo, more bool, err error) {
	const op = "list directory"
	if err := checkListDir(path, depth, limit, after); err != nil {
		return nil, false, fail(op, "", err)
	}
	if depth == 0 {
		depth = 1
	}
	if limit == 0 {
		limit = MaxDirPage
	}
	err = e.ask(ctx, op, id, func(l *live) error {
		all, more, err = l.guest.ListDir(ctx, path, depth, limit, after)
		return err
	})
	return all, more, err
}

func checkListDir(path string, depth, limit int, after string) error {
	switch {
	case depth < 0 || depth > 64:
		return sandbox.Errorf("check depth", sandbox.Invalid, "depth is %d, 1 to 64 are taken", depth)
	case limit < 0 || limit > MaxDirPage:
		return sandbox.Errorf("check limit", sandbox.Invalid, "limit is %d, 1 to %d are taken", limit, MaxDirPage)
	case after != "":
		if err := sandbox.CheckPath(after); err != nil {
			return err
		}
	}
	return sandbox.CheckPath(path)
}

// MakeDir makes a directory; parents also makes those above it, and then one
// that is there is no error. Mode 0 means 0755, user "" the template's.
func (e *Engine) MakeDir(ctx context.Context, id, path string, mode uint32, user string, parents bool) (fi sandbox.FileInfo, err error) {
	const op = "make directory"
	if err := checkTarget(path, mode); err != nil {
		return fi, fail(op, "", err)
	}
	if mode == 0 {
		mode = 0o755
	}
	if user, err = e.owner(ctx, id, user); err != nil {
		return fi, fail(op, known(id), err)
	}
	err = e.ask(ctx, op, id, func(l *live) error {
		fi, err = l.guest.MakeDir(ctx, path, mode, user, parents)
		return err
	})
	return fi, err
}

// Move renames a path; replace lets it take the place of what is there.
func (e *Engine) Move(ctx context.Context, id, from, to string, replace bool) error {
	const op = "move"
	for _, p := range []string{from, to} {
		if err := sandbox.CheckPath(p); err != nil {
			return fail(op, "", err)
		}
	}
	return e.ask(ctx, op, id, func(l *live) error {
		return l.guest.Move(ctx, from, to, replace)
	})
}

// RemoveFile removes a path; recursive also removes what a directory holds.
func (e *Engine) RemoveFile(ctx context.Context, id, path string, recursive bool) error {
	const op = "remove file"
	if err := sandbox.CheckPath(path); err != nil {
		return fail(op, "", err)
	}
	return e.ask(ctx, op, id, func(l *live) error {
		return l.guest.Remove(ctx, path, recursive)
	})
}

func checkTarget(path string, mode uint32) error {
	if mode > 0o7777 {
		return sandbox.Errorf("check mode", sandbox.Invalid, "mode %o has more than permission bits", mode)
	}
	return sandbox.CheckPath(path)
}

// owner is who owns what is made for a caller who names nobody.
func (e *Engine) owner(ctx context.Context, id, user string) (string, error) {
	if user != "" {
		return user, nil
	}
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return "", err
	}
	s, err := e.load(ctx, sid)
	if err != nil {
		return "", err
	}
	return s.Base.User, nil
}
