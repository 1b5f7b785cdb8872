package guestclient

import (
	"context"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

// Bounds of ListDir.
const (
	MaxEntries = 10_000 // of one page
	MaxDepth   = 1024
)

// Stat describes the entry at path; with follow, what a symbolic link points to.
func (c *Client) Stat(ctx context.Context, path string, follow bool) (sandbox.FileInfo, error) {
	op := "stat " + text(path, maxText)
	if err := sandbox.CheckPath(path); err != nil {
		return sandbox.FileInfo{}, &sandbox.Error{Op: op, Err: err}
	}
	r, err := call(c.to(ctx), op, c.rpc.Stat, &guestv1.StatRequest{Path: []byte(path), Follow: follow})
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	return oneFile(op, r.Info)
}

// ListDir lists a folder down to depth (1: the entries alone), in the order of
// the paths compared name by name. It gives at most limit entries (0 means
// MaxEntries) behind the path "after", and whether there are more.
func (c *Client) ListDir(ctx context.Context, path string, depth, limit int, after string) ([]sandbox.FileInfo, bool, error) {
	op := "list " + text(path, maxText)
	if err := sandbox.CheckPath(path); err != nil {
		return nil, false, &sandbox.Error{Op: op, Err: err}
	}
	if depth < 0 || depth > MaxDepth || limit < 0 || limit > MaxEntries {
		return nil, false, sandbox.Errorf(op, sandbox.Invalid, "depth takes 1 to %d and limit 1 to %d, not %d and %d", MaxDepth, MaxEntries, depth, limit)
	}
	r, err := call(c.to(ctx), op, c.rpc.ListDir, &guestv1.ListDirRequest{Path: []byte(path), Depth: int32(depth), Limit: int32(limit), After: []byte(after)})
	if err != nil {
		return nil, false, err
	}
	return entries(op, r, limit)
}

// entries takes a page of at most limit entries over.
func entries(op string, r *guestv1.ListDirResponse, limit int) ([]sandbox.FileInfo, bool, error) {
	if limit == 0 {
		limit = MaxEntries
	}
	if len(r.Entries) > limit || (r.More && len(r.Entries) == 0) {
		return nil, false, broken(op, "a page of %d entries where %d were asked for", len(r.Entries), limit)
	}
	list := make([]sandbox.FileInfo, 0, len(r.Entries))
	for _, e := range r.Entries {
		f, err := oneFile(op, e)
		if err != nil {
			return nil, false, err
		}
		list = append(list, f)
	}
	return list, r.More, nil
}

// MakeDir makes a folder that belongs to user ("" means the default). mode 0
// means 0755. With parents it makes those above it too, and one that is there is
// no error; without, that is Conflict.
func (c *Client) MakeDir(ctx context.Context, path string, mode uint32, user string, parents bool) (sandbox.FileInfo, error) {
	op := "make folder " + text(path, maxText)
	if err := sandbox.CheckPath(path); err != nil {
		return sandbox.FileInfo{}, &sandbox.Error{Op: op, Err: err}
	}
	if err := checkText(op, user); err != nil {
		return sandbox.FileInfo{}, err
	}
	r, err := call(c.to(ctx), op, c.rpc.MakeDir, &guestv1.MakeDirRequest{Path: []byte(path), Mode: mode, User: user, Parents: parents})
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	return oneFile(op, r.Info)
}

// Move renames an entry. What is at "to" is Conflict unless replace is set.
func (c *Client) Move(ctx context.Context, from, to string, replace bool) error {
	op := "move " + text(from, maxText)
	for _, p := range []string{from, to} {
		if err := sandbox.CheckPath(p); err != nil {
			return &sandbox.Error{Op: op, Err: err}
		}
	}
	_, err := callLong(c.to(ctx), op, c.rpc.Move, &guestv1.MoveRequest{From: []byte(from), To: []byte(to), Replace: replace})
	return err
}

// Remove deletes an entry; with recursive, a folder and all that is in it.
func (c *Client) Remove(ctx context.Context, path string, recursive bool) error {
	op := "remove " + text(path, maxText)
	if err := sandbox.CheckPath(path); err != nil {
		return &sandbox.Error{Op: op, Err: err}
	}
	_, err := callLong(c.to(ctx), op, c.rpc.Remove, &guestv1.RemoveRequest{Path: []byte(path), Recursive: recursive})
	return err
}

func oneFile(op string, f *guestv1.FileInfo) (sandbox.FileInfo, error) {
	info, err := fileInfo(f)
	if err != nil {
		return info, broken(op, "%w", err)
	}
	return info, nil
}
