package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// How changes are delivered: in their order, each until it is taken or given up.
// The waits between attempts double from the first to the longest: about two
// hours all in all.
const (
	hookTime     = 10 * time.Second // for one attempt
	hookAttempts = 20
	firstWait    = time.Second
	longestWait  = 10 * time.Minute
	maxReply     = 64 << 10 // bytes of an answer that are read, so that a connection serves again
	maxHookError = 300      // bytes
)

// hooks holds the deliveries under way: one goroutine an address. They read the
// journal, so that a slow address holds up nothing but itself.
type hooks struct {
	client *http.Client
	ranges *hookRanges

	mu  sync.Mutex
	all map[string]context.CancelFunc // by the webhook's key
}

func newHooks(c *http.Client) *hooks {
	ranges := &hookRanges{}
	if c == nil {
		dial := &net.Dialer{Timeout: hookTime, Control: ranges.check}
		c = &http.Client{Transport: &http.Transport{DialContext: dial.DialContext, TLSHandshakeTimeout: hookTime,
			MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxReply}}
	}
	own := *c
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &hooks{client: &own, ranges: ranges, all: map[string]context.CancelFunc{}}
}

func (h *hooks) end(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cancel := h.all[key]; cancel != nil {
		cancel()
	}
}

// openHooks goes on with what earlier deliveries left.
func (e *Engine) openHooks(ctx context.Context) error {
	all, err := e.allHooks(ctx)
	for _, h := range all {
		e.deliverTo(h.key())
	}
	return err
}

// deliverTo begins the deliveries of a webhook. They end with it or the engine.
func (e *Engine) deliverTo(key string) {
	done, err := e.task()
	if err != nil {
		return // the next server begins them
	}
	ctx, cancel := context.WithCancel(e.ctx)
	e.hooks.mu.Lock()
	e.hooks.all[key] = cancel
	e.hooks.mu.Unlock()
	go func() {
		defer done()
		defer func() {
			e.hooks.mu.Lock()
			delete(e.hooks.all, key)
			e.hooks.mu.Unlock()
			cancel()
		}()
		e.deliverAll(ctx, key)
	}()
}

// deliverAll sends what comes until the webhook is removed or ctx ends.
func (e *Engine) deliverAll(ctx context.Context, key string) {
	for wait := firstWait; ctx.Err() == nil; wait = min(2*wait, longestWait) {
		err := e.deliverSome(ctx, key)
		if kind := sandbox.KindOf(err); kind == sandbox.NotFound || kind == sandbox.Conflict {
			return // it was removed
		}
		if err == nil || ctx.Err() != nil {
			wait = firstWait
			continue
		}
		e.log.Error("deliver to a webhook", "webhook", key, "error", err, "again_in", wait)
		rest(ctx, wait)
	}
}

// deliverSome sends the next page of changes, or waits for one. Errors are the
// store's.
func (e *Engine) deliverSome(ctx context.Context, key string) error {
	h, err := e.loadHook(ctx, key)
	if err != nil {
		return err
	}
	_, grown := e.journal.stable()
	page, err := e.changes(ctx, sandbox.Caller{Account: h.Account}, sandbox.ChangeQuery{After: h.Cursor, Types: h.Events})
	if err != nil {
		return err
	}
	if page.Missed {
		h.Dropped++ // at least one
	}
	for _, c := range page.Events {
		if err := e.deliverOne(ctx, h, c); err != nil {
			return err
		}
	}
	from, err := parsePlace(h.Cursor)
	if err != nil {
		return err
	}
	next, err := parsePlace(page.Next)
	if err != nil {
		return err
	}
	if next-from > e.journal.keep/4 { // nothing for it in a long time: it must not fall behind what is kept
		h.Cursor = page.Next
		return e.saveHook(ctx, h)
	}
	if len(page.Events) > 0 {
		return nil
	}
	select {
	case <-grown:
	case <-ctx.Done():
	}
	return nil
}

// deliverOne sends one change until it is taken or given up.
func (e *Engine) deliverOne(ctx context.Context, h *hook, c sandbox.Change) error {
	body, err := json.Marshal(c)
	if err != nil {
		return sandbox.Errorf("encode event", sandbox.Internal, "%w", err)
	}
	for {
		err := e.attempt(ctx, h, c, body)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			h.Cursor, h.Failures, h.LastError = c.Cursor, 0, ""
			return e.saveHook(ctx, h)
		}
		h.Failures++
		h.LastError = fmt.Sprintf("%.*s", maxHookError, err.Error())
		if h.Failures >= hookAttempts {
			h.Cursor, h.Failures = c.Cursor, 0
			h.Dropped++
			return e.saveHook(ctx, h)
		}
		if err := e.saveHook(ctx, h); err != nil {
			return err
		}
		rest(ctx, min(longestWait, firstWait<<min(h.Failures-1, 20)))
	}
}

// attempt sends a change once.
func (e *Engine) attempt(ctx context.Context, h *hook, c sandbox.Change, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, hookTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	now := e.now()
	for name, value := range map[string]string{
		"Content-Type":          "application/json",
		"User-Agent":            "berth",
		sandbox.HeaderEvent:     string(c.Type),
		sandbox.HeaderDelivery:  h.ID + "-" + c.Cursor,
		sandbox.HeaderTimestamp: strconv.FormatInt(now.Unix(), 10),
		sandbox.HeaderSignature: sandbox.WebhookSignature(h.Secret, now, body),
	} {
		req.Header.Set(name, value)
	}
	resp, err := e.hooks.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxReply)); err != nil && ctx.Err() != nil {
		return errors.New("the answer does not end")
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the answer is %s", resp.Status)
	}
	return nil
}

// rest waits, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
