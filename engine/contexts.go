package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// contextPrefix + account/name: a keptContext. Its name is its digest, or what the
// caller calls it.
const contextPrefix = "context/"

// keptContext is where a context is, and when it was last uploaded or used.
type keptContext struct {
	Digest blob.Digest `json:"digest"`
	Used   time.Time   `json:"used"`
}

// Bounds on what builds copy from.
const (
	maxContext  = 8 << 30        // bytes of one
	contextLife = 24 * time.Hour // after its last use
)

func contextKey(account, name string) string { return contextPrefix + account + "/" + name }

// errNoContexts says that a server builds from its own machine only.
var errNoContexts = &sandbox.Error{Kind: sandbox.Unsupported, Err: errors.New("this server takes no files for builds")}

// PutContext keeps a tar stream, packed with gzip or not, that builds of the
// account copy from, for a day after its last use. It returns the digest of its
// bytes, by which it is named unless the caller gives another name.
func (e *Engine) PutContext(ctx context.Context, name string, body io.Reader) (digest string, size int64, err error) {
	const op = "upload context"
	done, err := e.task()
	if err != nil {
		return "", 0, fail(op, "", err)
	}
	defer done()
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return "", 0, fail(op, "", err)
	}
	if e.contexts == nil {
		return "", 0, fail(op, "", errNoContexts)
	}
	if name != "" {
		if err := sandbox.CheckContext(name); err != nil {
			return "", 0, fail(op, "", err)
		}
	}
	if err := e.room.need(0); err != nil {
		return "", 0, fail(op, "", err)
	}
	if err := e.dropContexts(ctx); err != nil {
		return "", 0, fail(op, "", err)
	}
	info, err := e.contexts.Put(ctx, &bounds{r: body, left: maxContext})
	if err != nil {
		return "", 0, fail(op, "", err)
	}
	name = orElse(name, string(info.Digest))
	return string(info.Digest), info.Size, fail(op, "", e.touchContext(ctx, c.Account, name, info.Digest))
}

// HasContext reports whether a context of the account is there.
func (e *Engine) HasContext(ctx context.Context, name string) (bool, error) {
	const op = "look for context"
	if err := sandbox.CheckContext(name); err != nil {
		return false, fail(op, "", err)
	}
	_, err := e.findContext(ctx, name)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return false, nil
	}
	return err == nil, fail(op, "", err)
}

// findContext finds a context of the caller's account.
func (e *Engine) findContext(ctx context.Context, name string) (k keptContext, err error) {
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return k, err
	}
	if e.contexts == nil {
		return k, errNoContexts
	}
	entry, err := e.records.Get(ctx, contextKey(c.Account, name))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return k, &sandbox.Error{Op: "find context", Kind: sandbox.NotFound, Err: errors.New("no such context " + name),
			Hint: "upload it again: it is kept for a day after its last use"}
	}
	if err != nil {
		return k, err
	}
	if err := json.Unmarshal(entry.Value, &k); err != nil {
		return k, sandbox.Errorf("decode record "+entry.Key, sandbox.Internal, "%w", err)
	}
	return k, e.touchContext(ctx, c.Account, name, k.Digest)
}

// openContext opens a context of the caller's account.
func (e *Engine) openContext(ctx context.Context, name string) (io.ReadCloser, error) {
	k, err := e.findContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return e.contexts.Open(ctx, k.Digest, 0)
}

func (e *Engine) touchContext(ctx context.Context, account, name string, digest blob.Digest) error {
	value, err := json.Marshal(keptContext{digest, e.now().UTC().Round(0)})
	if err != nil {
		return sandbox.Errorf("encode context", sandbox.Internal, "%w", err)
	}
	_, err = e.records.Commit(ctx, record.Txn{Then: []record.Op{{Key: contextKey(account, name), Value: value}}})
	return err
}

// dropContexts removes the contexts that nobody has used for their time, and the
// blobs that no context of any account is in.
func (e *Engine) dropContexts(ctx context.Context) error {
	used := map[blob.Digest]bool{}
	var old []record.Op
	var gone []blob.Digest
	if err := e.eachEntry(ctx, contextPrefix, func(entry record.Entry) error {
		var k keptContext
		if err := json.Unmarshal(entry.Value, &k); err != nil || e.now().Sub(k.Used) > contextLife {
			old, gone = append(old, record.Op{Key: entry.Key, Delete: true}), append(gone, k.Digest)
			return nil
		}
		used[k.Digest] = true
		return nil
	}); err != nil || len(old) == 0 {
		return err
	}
	if _, err := e.records.Commit(ctx, record.Txn{Then: old}); err != nil {
		return err
	}
	for _, digest := range gone {
		if _, err := blob.ParseDigest(string(digest)); err != nil || used[digest] {
			continue
		}
		if err := e.contexts.Remove(ctx, digest); err != nil {
			return err
		}
	}
	return nil
}

// bounds refuses what is longer than left.
type bounds struct {
	r    io.Reader
	left int64
}

func (b *bounds) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, &sandbox.Error{Op: "read context", Kind: sandbox.Exhausted, Err: errors.New("it is larger than 8 GiB"),
			Hint: "leave out what the build does not copy, with a .dockerignore"}
	}
	return n, err
}
