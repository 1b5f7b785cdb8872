package engine

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/sandbox"
)

// resolve returns the id that the caller of ctx means, who gave an id or a name. A
// name has never the form of an id, and is one of the caller's account.
//
// It is the one place that decides whether a sandbox is there for a caller; what
// lies behind it works by sandbox.ID and asks nobody. The caller's account is part
// of the key that is looked up: another's sandbox is a key that is not there, and
// takes as long to miss.
func (e *Engine) resolve(ctx context.Context, given string) (sandbox.ID, error) {
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return "", err
	}
	if id, err := sandbox.ParseID(given); err == nil {
		return id, e.sees(ctx, c, id)
	}
	if err := sandbox.CheckRef(given); err != nil {
		return "", err
	}
	entry, err := e.records.Get(ctx, nameKey(c.Account, given))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return "", &sandbox.Error{Kind: sandbox.NotFound, Err: fmt.Errorf("no sandbox has the name %q", given), Hint: "berth ls lists them"}
	}
	if err != nil {
		return "", err
	}
	return sandbox.ID(entry.Value), nil
}

// sees reports NotFound unless a sandbox is there for a caller.
func (e *Engine) sees(ctx context.Context, c sandbox.Caller, id sandbox.ID) error {
	key := ownKey(c.Account, id)
	if c.Operator {
		key = recordKey(id)
	}
	_, err := e.records.Get(ctx, key)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return notFound()
	}
	return err
}

// known is id for an error's text, if it can be one: what else a caller sends is
// not repeated.
func known(id string) sandbox.ID {
	sid, err := sandbox.ParseID(id)
	if err != nil {
		return ""
	}
	return sid
}

// getOrCreate returns the living sandbox of a name as it is, or makes it. Of many
// calls at once one makes it and the others wait for that.
func (e *Engine) getOrCreate(ctx context.Context, req sandbox.CreateRequest) (sandbox.Sandbox, error) {
	if err := req.Check(); err != nil {
		return sandbox.Sandbox{}, err
	}
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	unlock, err := e.taken.Lock(ctx, nameKey(c.Account, req.Name))
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer unlock()
	for {
		id, err := e.resolve(ctx, req.Name)
		if sandbox.KindOf(err) == sandbox.NotFound {
			req.Get = false
			return e.Create(ctx, req)
		}
		if err != nil {
			return sandbox.Sandbox{}, err
		}
		s, err := e.arrived(ctx, id)
		if err == nil && s.living() {
			return s.Sandbox, nil
		}
		if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			return sandbox.Sandbox{}, err
		}
	}
}

// arrived returns a sandbox's record once no verb is under way: a create of the
// same name, without get, may be.
func (e *Engine) arrived(ctx context.Context, id sandbox.ID) (*stored, error) {
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return nil, err
	}
	defer unlock()
	return e.loadMended(ctx, id)
}
