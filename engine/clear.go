package engine

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// clearRest is how long Clear waits before it looks again for what was being made
// while it looked.
const clearRest = 100 * time.Millisecond

// Clear removes all that an account has. It is for whoever removes the account,
// who has seen to it that Quota is an error by now: then nothing new is admitted.
// It can be called again after it failed, or after the engine that it was called
// on ended.
func (e *Engine) Clear(ctx context.Context, account string) error {
	const op = "clear account"
	done, err := e.task()
	if err != nil {
		return fail(op, "", err)
	}
	defer done()
	// Whoever was admitted before the account ended is in the ledger after this.
	unlock, err := e.admitting.Lock(ctx, account)
	if err != nil {
		return fail(op, "", err)
	}
	unlock()
	for {
		left, err := e.clearSandboxes(ctx, account)
		if err != nil {
			return fail(op, "", err)
		}
		if left == 0 {
			break
		}
		rest(ctx, clearRest)
		if ctx.Err() != nil {
			return fail(op, "", context.Cause(ctx))
		}
	}
	if err := e.clearKept(ctx, account); err != nil {
		return fail(op, "", err)
	}
	ctx = sandbox.WithCaller(ctx, sandbox.Caller{Account: account, Key: "end of account", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
	for _, clear := range []func(context.Context, string) error{e.clearHooks, e.clearSnapshots, e.clearBackups, e.clearDomains, e.clearSecrets, e.clearVolumes} {
		if err := clear(ctx, account); err != nil {
			return fail(op, "", err)
		}
	}
	return nil
}

// clearSandboxes removes the sandboxes of an account, and says how many there
// were, those that are being made included.
func (e *Engine) clearSandboxes(ctx context.Context, account string) (count int, err error) {
	ids := map[sandbox.ID]bool{}
	e.ledger.mu.Lock()
	for what, u := range e.ledger.uses {
		if id, err := sandbox.ParseID(what); err == nil && u.account == account {
			ids[id] = true
		}
	}
	e.ledger.mu.Unlock()
	if err := e.eachEntry(ctx, ownKey(account, ""), func(entry record.Entry) error {
		ids[sandbox.ID(entry.Value)] = true
		return nil
	}); err != nil {
		return 0, err
	}
	var errs []error
	for id := range ids {
		e.abort(id)
		if err := e.remove(ctx, id, "its account has ended", nil); err != nil {
			errs = append(errs, fail("remove", id, err))
		}
	}
	return len(ids), errors.Join(errs...)
}

func (e *Engine) clearHooks(ctx context.Context, account string) error {
	all, err := e.hooksOf(ctx, account)
	for _, h := range all {
		if err := e.removeHook(ctx, h); err != nil {
			return err
		}
	}
	return err
}

// clearKept removes the snapshots and backups of an account.
func (e *Engine) clearKept(ctx context.Context, account string) error {
	shots, err := e.shotsOf(ctx, account)
	for _, sh := range shots {
		if err := e.removeShot(ctx, sh); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			return err
		}
	}
	if err != nil {
		return err
	}
	backups, err := e.backupsOf(ctx, account)
	for _, b := range backups {
		if err := e.removeBackup(ctx, b); err != nil {
			return err
		}
	}
	return err
}

func (e *Engine) clearSnapshots(ctx context.Context, account string) error {
	all, err := e.shotsOf(ctx, account)
	for _, sh := range all {
		if err := e.removeShot(ctx, sh); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			return err
		}
	}
	return err
}

func (e *Engine) clearBackups(ctx context.Context, account string) error {
	all, err := e.backupsOf(ctx, account)
	for _, b := range all {
		if err := e.removeBackup(ctx, b); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			return err
		}
	}
	return err
}

func (e *Engine) clearDomains(ctx context.Context, account string) error {
	all, err := e.domainsOf(ctx, account)
	for _, d := range all {
		if err := e.RemoveDomain(ctx, d.Name); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			return err
		}
	}
	return err
}

func (e *Engine) clearSecrets(ctx context.Context, account string) error {
	if e.vault == nil {
		return nil
	}
	all, err := e.vault.List(ctx, account)
	for _, s := range all {
		if err := e.vault.Remove(ctx, account, s.Name); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			return err
		}
	}
	return err
}
