package guestclient

import (
	"context"
	"encoding/hex"
	"slices"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

// Find lists what lies beneath a folder and matches a pattern, in the order of
// ListDir, and says whether there is more.
func (c *Client) Find(ctx context.Context, q sandbox.FindQuery) ([]sandbox.FileInfo, bool, error) {
	op := "find in " + text(q.Path, maxText)
	err := sandbox.CheckPath(q.Path)
	if err == nil {
		err = sandbox.CheckGlob(q.Glob)
	}
	if err != nil {
		return nil, false, &sandbox.Error{Op: op, Err: err}
	}
	if q.Depth < 0 || q.Depth > MaxDepth || q.Limit < 0 || q.Limit > MaxEntries {
		return nil, false, sandbox.Errorf(op, sandbox.Invalid, "depth takes 1 to %d and limit 1 to %d, not %d and %d", MaxDepth, MaxEntries, q.Depth, q.Limit)
	}
	list := &guestv1.ListDirRequest{Path: []byte(q.Path), Depth: int32(q.Depth), Limit: int32(q.Limit), After: []byte(q.After)}
	r, err := callLong(c.to(ctx), op, c.tools.Find, &guestv1.FindRequest{List: list, Glob: q.Glob})
	if err != nil {
		return nil, false, err
	}
	return entries(op, r, q.Limit)
}

// Change sets mode, owner or time of an entry.
func (c *Client) Change(ctx context.Context, path string, ch sandbox.FileChange) (sandbox.FileInfo, error) {
	op := "change " + text(path, maxText)
	err := sandbox.CheckPath(path)
	if err == nil {
		err = ch.Check()
	}
	if err != nil {
		return sandbox.FileInfo{}, &sandbox.Error{Op: op, Err: err}
	}
	q := &guestv1.ChangeRequest{Path: []byte(path), Mode: ch.Mode, Owner: ch.Owner, Recursive: ch.Recursive, Create: ch.Create, User: ch.User}
	if ch.Modified != nil {
		n := ch.Modified.UnixNano()
		q.ModifiedUnixNano = &n
	}
	r, err := callLong(c.to(ctx), op, c.tools.Change, q)
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	return oneFile(op, r.Info)
}

// Copy copies an entry inside the sandbox.
func (c *Client) Copy(ctx context.Context, from, to string, o sandbox.CopyOptions) (sandbox.FileInfo, error) {
	op := "copy " + text(from, maxText)
	for _, p := range []string{from, to} {
		if err := sandbox.CheckPath(p); err != nil {
			return sandbox.FileInfo{}, &sandbox.Error{Op: op, Err: err}
		}
	}
	r, err := callLong(c.to(ctx), op, c.tools.Copy, &guestv1.CopyRequest{From: []byte(from), To: []byte(to), Recursive: o.Recursive, Replace: o.Replace})
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	return oneFile(op, r.Info)
}

// Link makes a symbolic link that says target; what is at path is Conflict
// unless replace is set.
func (c *Client) Link(ctx context.Context, path, target, user string, replace bool) (sandbox.FileInfo, error) {
	op := "link " + text(path, maxText)
	if err := sandbox.CheckPath(path); err != nil {
		return sandbox.FileInfo{}, &sandbox.Error{Op: op, Err: err}
	}
	r, err := call(c.to(ctx), op, c.tools.Link, &guestv1.LinkRequest{Path: []byte(path), Target: []byte(target), User: user, Replace: replace})
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	return oneFile(op, r.Info)
}

// Hash has the guest read a file and tell the SHA-256 of its bytes.
func (c *Client) Hash(ctx context.Context, path string) (sandbox.FileHash, error) {
	op := "hash " + text(path, maxText)
	if err := sandbox.CheckPath(path); err != nil {
		return sandbox.FileHash{}, &sandbox.Error{Op: op, Err: err}
	}
	r, err := callLong(c.to(ctx), op, c.tools.Hash, &guestv1.HashRequest{Path: []byte(path)})
	if err != nil {
		return sandbox.FileHash{}, err
	}
	if len(r.Sha256) != 32 || r.Size < 0 {
		return sandbox.FileHash{}, broken(op, "a hash of %d bytes of a file of %d", len(r.Sha256), r.Size)
	}
	return sandbox.FileHash{SHA256: hex.EncodeToString(r.Sha256), Size: r.Size}, nil
}

// Attributes gives the extended attributes of an entry.
func (c *Client) Attributes(ctx context.Context, path string) (sandbox.Attributes, error) {
	op := "read attributes of " + text(path, maxText)
	if err := sandbox.CheckPath(path); err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	r, err := call(c.to(ctx), op, c.tools.GetAttributes, &guestv1.GetAttributesRequest{Path: []byte(path)})
	if err != nil {
		return nil, err
	}
	return attributes(op, r.Attributes)
}

// SetAttributes changes extended attributes and gives all that there are then.
func (c *Client) SetAttributes(ctx context.Context, path string, ch sandbox.AttributeChange) (sandbox.Attributes, error) {
	op := "set attributes of " + text(path, maxText)
	err := sandbox.CheckPath(path)
	if err == nil {
		err = ch.Check()
	}
	if err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	q := &guestv1.SetAttributesRequest{Path: []byte(path), Remove: slices.Clone(ch.Remove)}
	for name, value := range ch.Set {
		q.Set = append(q.Set, &guestv1.Attribute{Name: name, Value: value})
	}
	r, err := call(c.to(ctx), op, c.tools.SetAttributes, q)
	if err != nil {
		return nil, err
	}
	return attributes(op, r.Attributes)
}

// attributes takes a list over; the size of a message bounds it.
func attributes(op string, list []*guestv1.Attribute) (sandbox.Attributes, error) {
	all := make(sandbox.Attributes, len(list))
	for _, a := range list {
		if a.GetName() == "" || len(a.Name) > maxName {
			return nil, broken(op, "an attribute called %.40q", a.GetName())
		}
		all[a.Name] = a.Value
	}
	return all, nil
}
