package account

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// The keys of accounts.
const (
	accountPrefix = "account/"        // + account: its record as JSON
	endingPrefix  = "account-ending/" // + account: one that is temporary or being removed
)

// removed is the state of an account's record that keeps its id from being used
// again: what is left in journals and audits must not become another's.
const removed sandbox.AccountState = "removed"

// stored is an account as it is kept.
type stored struct {
	sandbox.Account
	Claim string `json:"claim,omitempty"` // hash of the secret that claims it

	revision int64
}

func (s *stored) key() string { return accountPrefix + s.ID }

// cond holds while the account is as it was loaded.
func (s *stored) cond() record.Cond { return record.Cond{Key: s.key(), Revision: s.revision} }

func (s *stored) op() (record.Op, error) {
	value, err := json.Marshal(s)
	if err != nil {
		return record.Op{}, sandbox.Errorf("encode account", sandbox.Internal, "%w", err)
	}
	return record.Op{Key: s.key(), Value: value}, nil
}

func (b *Book) load(ctx context.Context, id string) (*stored, error) {
	if err := sandbox.CheckAccount(id); err != nil {
		return nil, err
	}
	entry, err := b.records.Get(ctx, accountPrefix+id)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, noAccount()
	}
	if err != nil {
		return nil, err
	}
	s, err := decodeAccount(entry)
	if err == nil && s.State == removed {
		return nil, noAccount()
	}
	return s, err
}

func decodeAccount(entry record.Entry) (*stored, error) {
	s := &stored{revision: entry.Revision}
	if err := json.Unmarshal(entry.Value, s); err != nil {
		return nil, sandbox.Errorf("decode record "+entry.Key, sandbox.Internal, "%w", err)
	}
	return s, nil
}

func noAccount() error {
	return &sandbox.Error{Kind: sandbox.NotFound, Err: errors.New("no such account"), Hint: "berth account ls lists them"}
}

// create writes a new account, with ops.
func (b *Book) create(ctx context.Context, s *stored, ops ...record.Op) error {
	op, err := s.op()
	if err != nil {
		return err
	}
	_, err = b.records.Commit(ctx, record.Txn{If: []record.Cond{s.cond()}, Then: append(ops, op)})
	if sandbox.KindOf(err) == sandbox.Conflict {
		return &sandbox.Error{Kind: sandbox.Conflict, Err: fmt.Errorf("the account %s is there, or was", s.ID),
			Hint: "choose another id: ids are never used again"}
	}
	return err
}

// save writes a changed account, with ops, unless it is another by now: Conflict.
func (b *Book) save(ctx context.Context, s *stored, ops ...record.Op) error {
	op, err := s.op()
	if err != nil {
		return err
	}
	revision, err := b.records.Commit(ctx, record.Txn{If: []record.Cond{s.cond()}, Then: append(ops, op)})
	if err == nil {
		s.revision = revision
	}
	return err
}

// operator is Forbidden for everybody else.
func operator(ctx context.Context) error {
	c, err := sandbox.CallerOf(ctx)
	if err == nil && !c.Operator {
		err = &sandbox.Error{Kind: sandbox.Forbidden, Err: errors.New("this is for the server's operator"), Hint: "ask whoever runs this server"}
	}
	return err
}

// CreateAccount makes an account, for the operator.
func (b *Book) CreateAccount(ctx context.Context, req sandbox.AccountRequest) (sandbox.Account, error) {
	a, err := b.createAccount(ctx, req)
	return a, fail("create account", err)
}

func (b *Book) createAccount(ctx context.Context, req sandbox.AccountRequest) (sandbox.Account, error) {
	if err := operator(ctx); err != nil {
		return sandbox.Account{}, err
	}
	if err := req.Check(); err != nil {
		return sandbox.Account{}, err
	}
	s := &stored{Account: sandbox.Account{ID: req.ID, Label: req.Label, State: sandbox.AccountActive,
		Quota: req.Quota.Apply(b.terms.Load().Quota), Created: b.stamp()}}
	return s.Account, b.create(ctx, s)
}

// Account returns an account: the caller's own if id is "", any for the operator.
func (b *Book) Account(ctx context.Context, id string) (sandbox.Account, error) {
	s, err := b.account(ctx, id)
	if err != nil {
		return sandbox.Account{}, fail("get account", err)
	}
	return s.Account, nil
}

func (b *Book) account(ctx context.Context, id string) (*stored, error) {
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return nil, err
	}
	if id == "" {
		id = c.Account
	}
	if !c.Sees(id) {
		return nil, noAccount()
	}
	return b.load(ctx, id)
}

// Accounts lists all accounts, for the operator.
func (b *Book) Accounts(ctx context.Context) ([]sandbox.Account, error) {
	const op = "list accounts"
	if err := operator(ctx); err != nil {
		return nil, fail(op, err)
	}
	all := []sandbox.Account{}
	err := b.each(ctx, accountPrefix, func(entry record.Entry) error {
		s, err := decodeAccount(entry)
		if err == nil && s.State != removed {
			all = append(all, s.Account)
		}
		return err
	})
	return all, fail(op, err)
}

// SetQuota changes what an account may use, for the operator. What it uses
// already stays.
func (b *Book) SetQuota(ctx context.Context, id string, u sandbox.QuotaUpdate) (sandbox.Account, error) {
	const op = "change quota"
	if err := operator(ctx); err != nil {
		return sandbox.Account{}, fail(op, err)
	}
	for {
		s, err := b.load(ctx, id)
		if err == nil {
			s.Quota = u.Apply(s.Quota)
			err = s.Quota.Check()
		}
		if err == nil {
			err = b.save(ctx, s)
		}
		if sandbox.KindOf(err) == sandbox.Conflict && ctx.Err() == nil {
			continue // it has changed since it was loaded
		}
		if err != nil {
			return sandbox.Account{}, fail(op, err)
		}
		return s.Account, nil
	}
}

// Quota returns what an account may use. One that is being removed, or has had
// its time, may use nothing: Forbidden.
func (b *Book) Quota(ctx context.Context, id string) (sandbox.Quota, error) {
	s, err := b.load(ctx, id)
	if err != nil {
		return sandbox.Quota{}, err
	}
	return s.Quota, b.open(s)
}

// open is Forbidden for an account that has ended.
func (b *Book) open(s *stored) error {
	if s.State == sandbox.AccountActive || s.State == sandbox.AccountTemporary && b.now().Before(s.Expires) {
		return nil
	}
	return &sandbox.Error{Kind: sandbox.Forbidden, Err: errors.New("the account has ended"), Hint: "a temporary account lasts when it is claimed in time"}
}

// each calls f for every entry whose key has a prefix, until it fails.
func (b *Book) each(ctx context.Context, prefix string, f func(record.Entry) error) error {
	return record.Each(ctx, b.records, prefix, "", f)
}

func fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &sandbox.Error{Op: op, Err: err}
}
