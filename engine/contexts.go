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

// contextPrefix + account/digest: when the context was last uploaded or used.
const contextPrefix = "context/"

// Bounds on what builds copy from.
const (
	maxContext  = 8 << 30        // bytes of one
	contextLife = 24 * time.Hour // after its last use
)

func contextKey(account, digest string) string { return contextPrefix + account + "/" + digest }

// errNoContexts says that a server builds from its own machine only.
var errNoContexts = &sandbox.Error{Kind: sandbox.Unsupported, Err: errors.New("this server takes no files for builds")}

// PutContext keeps a tar stream, packed with gzip or not, that builds of the
// account copy from, for a day after its last use. It returns the digest of its
// bytes.
func (e *Engine) PutContext(ctx context.Context, body io.Reader) (digest string, size int64, err error) {
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
	if err := e.dropContexts(ctx); err != nil {
		return "", 0, fail(op, "", err)
	}
	info, err := e.contexts.Put(ctx, &bounds{r: body, left: maxContext})
	if err != nil {
		return "", 0, fail(op, "", err)
	}
	return string(info.Digest), info.Size, fail(op, "", e.touchContext(ctx, c.Account, string(info.Digest)))
}

// HasContext reports whether a context of the account is there.
func (e *Engine) HasContext(ctx context.Context, digest string) (bool, error) {
	const op = "look for context"
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return false, fail(op, "", err)
	}
	if err := sandbox.CheckContext(digest); err != nil {
		return false, fail(op, "", err)
	}
	_, err = e.records.Get(ctx, contextKey(c.Account, digest))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return false, nil
	}
	return err == nil, fail(op, "", err)
}

// openContext opens a context of the caller's account.
func (e *Engine) openContext(ctx context.Context, digest string) (io.ReadCloser, error) {
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return nil, err
	}
	if e.contexts == nil {
		return nil, errNoContexts
	}
	_, err = e.records.Get(ctx, contextKey(c.Account, digest))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, &sandbox.Error{Op: "open context", Kind: sandbox.NotFound, Err: errors.New("no such context " + digest),
			Hint: "upload it again: it is kept for a day after its last use"}
	}
	if err != nil {
		return nil, err
	}
	if err := e.touchContext(ctx, c.Account, digest); err != nil {
		return nil, err
	}
	return e.contexts.Open(ctx, blob.Digest(digest), 0)
}

func (e *Engine) touchContext(ctx context.Context, account, digest string) error {
	value, err := json.Marshal(e.now().UTC())
	if err != nil {
		return sandbox.Errorf("encode time", sandbox.Internal, "%w", err)
	}
	_, err = e.records.Commit(ctx, record.Txn{Then: []record.Op{{Key: contextKey(account, digest), Value: value}}})
	return err
}

// dropContexts removes the contexts that nobody has used for their time. A blob
// goes when no account has it.
func (e *Engine) dropContexts(ctx context.Context) error {
	used := map[string]bool{}
	var old []record.Op
	if err := e.eachEntry(ctx, contextPrefix, func(entry record.Entry) error {
		var at time.Time
		digest := entry.Key[len(entry.Key)-len("sha256:")-64:]
		if err := json.Unmarshal(entry.Value, &at); err != nil || e.now().Sub(at) > contextLife {
			old = append(old, record.Op{Key: entry.Key, Delete: true})
			return nil
		}
		used[digest] = true
		return nil
	}); err != nil || len(old) == 0 {
		return err
	}
	if _, err := e.records.Commit(ctx, record.Txn{Then: old}); err != nil {
		return err
	}
	for _, op := range old {
		if digest := op.Key[len(op.Key)-len("sha256:")-64:]; !used[digest] {
			if err := e.contexts.Remove(ctx, blob.Digest(digest)); err != nil {
				return err
			}
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
