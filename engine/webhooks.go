package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// hookPrefix + account/id: a webhook with its secret, as JSON.
const hookPrefix = "webhook/"

// Bounds on webhooks.
const (
	maxHooks     = 64   // of one account
	maxHookURL   = 2048 // bytes
	leastSecret  = 16   // bytes
	mostSecret   = 256  // bytes
	hookIDPrefix = "wh-"
)

// hook is a webhook as it is stored.
type hook struct {
	sandbox.Webhook
	Secret string `json:"secret"`

	revision int64
}

// CreateWebhook has every change of the account from now on sent to an address.
//
// Exhausted: there are 64 already.
func (e *Engine) CreateWebhook(ctx context.Context, req sandbox.WebhookRequest) (sandbox.NewWebhook, error) {
	const op = "create webhook"
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return sandbox.NewWebhook{}, fail(op, "", err)
	}
	if err := checkHook(&req); err != nil {
		return sandbox.NewWebhook{}, fail(op, "", err)
	}
	unlock, err := e.admitting.Lock(ctx, c.Account) // so that all are counted
	if err != nil {
		return sandbox.NewWebhook{}, fail(op, "", err)
	}
	defer unlock()
	if _, err := e.quotaOf(ctx, c.Account); err != nil { // the account has ended
		return sandbox.NewWebhook{}, fail(op, "", err)
	}
	all, err := e.hooksOf(ctx, c.Account)
	if err != nil {
		return sandbox.NewWebhook{}, fail(op, "", err)
	}
	if len(all) >= maxHooks {
		return sandbox.NewWebhook{}, &sandbox.Error{Op: op, Kind: sandbox.Exhausted, Err: fmt.Errorf("there are %d already", len(all)),
			Hint: "remove one first"}
	}
	stable, _ := e.journal.stable()
	h := &hook{Secret: req.Secret, Webhook: sandbox.Webhook{ID: hookIDPrefix + strings.ToLower(rand.Text()[:20]),
		URL: req.URL, Events: req.Events, Account: c.Account, Created: e.now().UTC().Round(0), Cursor: cursorOf(stable)}}
	if h.Secret == "" {
		h.Secret = "whsec_" + rand.Text()
	}
	if err := e.saveHook(ctx, h); err != nil {
		return sandbox.NewWebhook{}, fail(op, "", err)
	}
	e.deliverTo(h.key())
	return sandbox.NewWebhook{Webhook: h.Webhook, Secret: h.Secret}, nil
}

func checkHook(r *sandbox.WebhookRequest) error {
	u, err := url.Parse(r.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || len(r.URL) > maxHookURL {
		return &sandbox.Error{Op: "check address", Kind: sandbox.Invalid, Err: errors.New("it is not an http or https address"),
			Hint: fmt.Sprintf("an address has at most %d bytes and no user in it", maxHookURL)}
	}
	if n := len(r.Secret); n > 0 && (n < leastSecret || n > mostSecret) {
		return &sandbox.Error{Op: "check secret", Kind: sandbox.Invalid, Err: fmt.Errorf("it has %d bytes", n),
			Hint: fmt.Sprintf("a secret has %d to %d bytes; leave it out and one is made", leastSecret, mostSecret)}
	}
	return checkChangeTypes(r.Events)
}

// Webhooks lists the webhooks of the account.
func (e *Engine) Webhooks(ctx context.Context) ([]sandbox.Webhook, error) {
	const op = "list webhooks"
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return nil, fail(op, "", err)
	}
	all, err := e.hooksOf(ctx, c.Account)
	if err != nil {
		return nil, fail(op, "", err)
	}
	list := make([]sandbox.Webhook, len(all))
	for i, h := range all {
		list[i] = h.Webhook
	}
	return list, nil
}

// Webhook returns one webhook, or NotFound.
func (e *Engine) Webhook(ctx context.Context, id string) (sandbox.Webhook, error) {
	h, err := e.hookOf(ctx, id)
	if err != nil {
		return sandbox.Webhook{}, fail("get webhook", "", err)
	}
	return h.Webhook, nil
}

// RemoveWebhook ends the deliveries to an address, the one under way too.
func (e *Engine) RemoveWebhook(ctx context.Context, id string) error {
	const op = "remove webhook"
	h, err := e.hookOf(ctx, id)
	if err != nil {
		return fail(op, "", err)
	}
	return fail(op, "", e.removeHook(ctx, h))
}

func (e *Engine) removeHook(ctx context.Context, h *hook) error {
	if _, err := e.records.Commit(ctx, record.Txn{Then: []record.Op{{Key: h.key(), Delete: true}}}); err != nil {
		return err
	}
	e.hooks.end(h.key())
	return nil
}

// key is where a webhook is kept: beneath its account.
func (h *hook) key() string { return hookKey(h.Account, h.ID) }

func hookKey(account, id string) string { return hookPrefix + account + "/" + id }

// allHooks returns the webhooks of every account.
func (e *Engine) allHooks(ctx context.Context) ([]*hook, error) {
	return e.hooksBeneath(ctx, hookPrefix)
}

func (e *Engine) hooksOf(ctx context.Context, account string) ([]*hook, error) {
	return e.hooksBeneath(ctx, hookKey(account, ""))
}

func (e *Engine) hooksBeneath(ctx context.Context, prefix string) (all []*hook, err error) {
	err = e.eachEntry(ctx, prefix, func(entry record.Entry) error {
		h, err := decodeHook(entry)
		if err == nil {
			all = append(all, h)
		}
		return err
	})
	return all, err
}

// hookOf returns a webhook of the caller's account.
func (e *Engine) hookOf(ctx context.Context, id string) (*hook, error) {
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(id, hookIDPrefix) || len(id) > 64 {
		return nil, noHook()
	}
	return e.loadHook(ctx, hookKey(c.Account, id))
}

func (e *Engine) loadHook(ctx context.Context, key string) (*hook, error) {
	entry, err := e.records.Get(ctx, key)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, noHook()
	}
	if err != nil {
		return nil, err
	}
	return decodeHook(entry)
}

func noHook() error {
	return &sandbox.Error{Kind: sandbox.NotFound, Err: errors.New("no such webhook"), Hint: "GET /v1/webhooks lists them"}
}

func decodeHook(entry record.Entry) (*hook, error) {
	h := &hook{revision: entry.Revision}
	if err := json.Unmarshal(entry.Value, h); err != nil {
		return nil, sandbox.Errorf("decode record "+entry.Key, sandbox.Internal, "%w", err)
	}
	return h, nil
}

// saveHook writes a webhook unless it has changed since it was loaded: Conflict.
func (e *Engine) saveHook(ctx context.Context, h *hook) error {
	value, err := json.Marshal(h)
	if err != nil {
		return sandbox.Errorf("encode webhook", sandbox.Internal, "%w", err)
	}
	key := h.key()
	revision, err := e.records.Commit(ctx, record.Txn{If: []record.Cond{{Key: key, Revision: h.revision}}, Then: []record.Op{{Key: key, Value: value}}})
	if err == nil {
		h.revision = revision
	}
	return err
}
