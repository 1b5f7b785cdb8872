package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/pass"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// spentPrefix + time-serial: a pass that served once, until the time when it would
// have expired.
const spentPrefix = "spent/"

// errStranger is what all see who may not come, whether there is such a sandbox
// or not.
var errStranger = &sandbox.Error{Op: "open port", Kind: sandbox.NotFound, Err: errors.New("no such page, or not for you"),
	Hint: "ask the owner of the sandbox for a link: berth url ID PORT"}

// Admit says how a request from outside, which shows these passes, reaches a port
// of a sandbox. It wakes nothing.
//
// To who may not come the answer is the same NotFound, after the same work,
// whether the sandbox is there or not: a signature is checked without asking for
// it, and what is not public has no key, as what is not there.
func (e *Engine) Admit(ctx context.Context, id sandbox.ID, port int, shown []sandbox.Pass) (sandbox.Admission, error) {
	if checkPort(port) != nil {
		return sandbox.Admission{}, errStranger
	}
	a := sandbox.Admission{Sandbox: id, Port: port, By: -1}
	var valid []pass.Claims
	var by []int
	for i, p := range shown {
		if c, ok := e.passes.Check(p.Text, id, uint16(port)); ok && fits(c.Kind, p) {
			valid, by = append(valid, c), append(by, i)
		}
	}
	public, err := e.public(ctx, id, port)
	if err != nil || len(valid) == 0 {
		a.HostHeader = public.HostHeader
		return a, or(err, public.isPublic(e.now()), errStranger)
	}
	s, err := e.load(ctx, id)
	if err != nil {
		return a, fail("open port", id, err)
	}
	is := s.Shares[port]
	a.HostHeader = is.HostHeader
	for i, c := range valid {
		if c.Generation != is.Generation {
			continue // revoked
		}
		if c.Kind == pass.Once {
			if err := e.spend(ctx, c); sandbox.KindOf(err) == sandbox.Conflict {
				continue
			} else if err != nil {
				return a, fail("open port", id, err)
			}
		}
		a.By, a.Expires = by[i], c.Expires
		if shown[by[i]].Exchange {
			c.Kind = pass.Cookie
			a.Cookie, err = e.passes.Sign(c)
		}
		return a, fail("open port", id, err)
	}
	return a, or(nil, is.isPublic(e.now()), errStranger)
}

// or is err, or refusal unless it is fine.
func or(err error, fine bool, refusal error) error {
	if err != nil || fine {
		return err
	}
	return refusal
}

// fits reports whether a pass is shown as its kind may be.
func fits(k pass.Kind, p sandbox.Pass) bool {
	switch k {
	case pass.Token:
		return !p.Cookie
	case pass.Once:
		return p.Exchange
	case pass.Cookie:
		return p.Cookie
	}
	return false
}

// public returns what a port's mark says; none is a share that is not public.
func (e *Engine) public(ctx context.Context, id sandbox.ID, port int) (share, error) {
	var s share
	entry, err := e.records.Get(ctx, publicKey(id, port))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(entry.Value, &s)
	}
	return s, err
}

// spend notes that a pass has served. One that had served already is Conflict.
func (e *Engine) spend(ctx context.Context, c pass.Claims) error {
	key := fmt.Sprintf("%s%012d-%s", spentPrefix, c.Expires.Unix(), c.Serial())
	t := record.Txn{If: []record.Cond{{Key: key}}, Then: []record.Op{{Key: key, Value: []byte{}}}}
	old, err := e.records.List(ctx, spentPrefix, "", record.MaxOps/2)
	if err != nil {
		return err
	}
	now := fmt.Sprintf("%s%012d", spentPrefix, e.now().Unix())
	for _, o := range old {
		if o.Key < now { // it has expired by itself
			t.Then = append(t.Then, record.Op{Key: o.Key, Delete: true})
		}
	}
	_, err = e.records.Commit(ctx, t)
	return err
}
