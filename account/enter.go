package account

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Enter lets in whoever shows a key: "berth_" and 40 hex digits. The context that
// it returns names the caller, and ends when the key is removed or expires or its
// account ends; leave is to be called at the end of the request.
//
// Unauthorized: no such key, or one that has expired.
func (b *Book) Enter(ctx context.Context, key string) (_ context.Context, leave func(), err error) {
	digits, err := sandbox.ParseKey(key)
	if err != nil {
		return nil, nil, err
	}
	return b.EnterDigits(ctx, digits)
}

// EnterDigits is Enter for a door that has taken another prefix off the 40 digits.
func (b *Book) EnterDigits(ctx context.Context, digits string) (_ context.Context, leave func(), err error) {
	for {
		cuts := b.visits.cuts()
		k, err := b.admit(ctx, digits)
		if err != nil {
			return nil, nil, err
		}
		c := sandbox.Caller{Account: k.Account, Key: k.ID, Scopes: k.Scopes}
		if ctx, leave, ok := b.visits.begin(ctx, c, cuts); ok {
			b.used.touch(k.Account, k.ID, b.stamp())
			ctx, leave := until(ctx, leave, k.Expires, b.now())
			return sandbox.WithCaller(ctx, c), leave, nil
		}
		// Something was removed between: perhaps this key.
	}
}

// EnterAs lets the operator in as one of an account.
func (b *Book) EnterAs(ctx context.Context, account string) (_ context.Context, leave func(), err error) {
	for {
		cuts := b.visits.cuts()
		s, err := b.load(ctx, account)
		if err == nil {
			err = b.open(s)
		}
		if err != nil {
			return nil, nil, err
		}
		c := sandbox.Operator()
		c.Account, c.Operator = account, false
		if ctx, leave, ok := b.visits.begin(ctx, c, cuts); ok {
			return sandbox.WithCaller(ctx, c), leave, nil
		}
	}
}

func unauthorized(text, hint string) error {
	return &sandbox.Error{Kind: sandbox.Unauthorized, Err: errors.New(text), Hint: hint}
}

// admit returns the key of a secret, if it opens anything now.
func (b *Book) admit(ctx context.Context, digits string) (*sandbox.Key, error) {
	k, err := b.loadKey(ctx, hashOf(digits))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, unauthorized("the key is not known", "send Authorization: Bearer <key>; it may have been removed")
	}
	if err != nil {
		return nil, err
	}
	if !k.Expires.IsZero() && !b.now().Before(k.Expires) {
		return nil, errExpired
	}
	s, err := b.load(ctx, k.Account)
	if err == nil {
		err = b.open(s)
	}
	switch sandbox.KindOf(err) {
	case sandbox.NotFound, sandbox.Forbidden:
		return nil, unauthorized("the key's account has ended", "make another account")
	}
	return k, err
}

var (
	errExpired = unauthorized("the key has expired", "have another made: berth key create")
	errCut     = unauthorized("the key was removed, or its account has ended", "use another key")
)

// until ends a visit when its key expires.
func until(ctx context.Context, leave func(), expires, now time.Time) (context.Context, func()) {
	if expires.IsZero() {
		return ctx, leave
	}
	ctx, cancel := context.WithTimeoutCause(ctx, expires.Sub(now), errExpired)
	return ctx, func() { cancel(); leave() }
}

// visits are the requests under way.
type visits struct {
	mu    sync.Mutex
	count int64 // of cuts
	all   map[*visit]struct{}
	fewer signal
}

type visit struct {
	caller sandbox.Caller
	cut    context.CancelCauseFunc
}

// cuts is how often visits have been cut. Whoever looks up a key asks before it
// does so: then begin knows whether the answer may be stale.
func (v *visits) cuts() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.count
}

func (v *visits) begin(ctx context.Context, c sandbox.Caller, cuts int64) (_ context.Context, leave func(), ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.count != cuts {
		return nil, nil, false
	}
	ctx, cut := context.WithCancelCause(ctx)
	one := &visit{c, cut}
	if v.all == nil {
		v.all = map[*visit]struct{}{}
	}
	v.all[one] = struct{}{}
	return ctx, func() {
		v.mu.Lock()
		delete(v.all, one)
		v.mu.Unlock()
		cut(nil)
		v.fewer.fire()
	}, true
}

// cutKey ends the requests of a key.
func (v *visits) cutKey(id string) {
	v.cut(func(c sandbox.Caller) bool { return c.Key == id })
}

func (v *visits) cut(which func(sandbox.Caller) bool) (left int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.count++
	for one := range v.all {
		if which(one.caller) {
			one.cut(errCut)
			left++
		}
	}
	return left
}

// clear ends the requests of an account and waits until they are gone.
func (v *visits) clear(ctx context.Context, account string) error {
	for {
		fewer := v.fewer.wait()
		if v.cut(func(c sandbox.Caller) bool { return c.Account == account && !c.Operator }) == 0 {
			return nil
		}
		select {
		case <-fewer:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
