package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// The keys of domains. Anybody may claim one; it stands for a port once its claim
// is proved, and for one account's port only.
const (
	claimPrefix  = "claim/"  // + account/name: the domain as JSON
	domainPrefix = "domain/" // + name: the proved domain, the same
)

func claimKey(account, name string) string { return claimPrefix + account + "/" + name }

// prover looks whether a domain's owner has done what Proof says.
type prover interface {
	Prove(ctx context.Context, d sandbox.Domain) error
}

// domain is a claim as it is stored.
type domain struct {
	sandbox.Domain
	revision int64
}

// AddDomain claims a domain for a port of a sandbox, or lets one that was claimed
// stand for another port; what was proved remains so.
//
// Exhausted: the account has MaxDomains already.
func (e *Engine) AddDomain(ctx context.Context, r sandbox.DomainRequest) (sandbox.Domain, error) {
	const op = "add domain"
	name := strings.ToLower(strings.TrimSuffix(r.Name, "."))
	err := errors.Join(sandbox.CheckHostName(name), checkPort(r.Port))
	if err == nil && e.domain != "" && (name == e.domain || strings.HasSuffix(name, "."+e.domain)) {
		err = &sandbox.Error{Kind: sandbox.Invalid, Err: fmt.Errorf("%s is the server's own", name), Hint: "ports have names beneath it without being asked: berth url ID PORT"}
	}
	if err != nil {
		return sandbox.Domain{}, fail(op, "", err)
	}
	caller, err := sandbox.CallerOf(ctx)
	if err != nil {
		return sandbox.Domain{}, fail(op, "", err)
	}
	id, err := e.resolve(ctx, r.Sandbox)
	if err != nil {
		return sandbox.Domain{}, fail(op, "", err)
	}
	d, err := e.claimDomain(ctx, caller.Account, name)
	if err != nil {
		return sandbox.Domain{}, fail(op, "", err)
	}
	d.Sandbox, d.Port = id, r.Port
	return d.Domain, fail(op, "", e.saveDomain(ctx, d))
}

// claimDomain returns an account's claim, or a new one that is not written yet.
func (e *Engine) claimDomain(ctx context.Context, account, name string) (*domain, error) {
	d, err := e.loadDomain(ctx, account, name)
	if sandbox.KindOf(err) != sandbox.NotFound {
		return d, err
	}
	all, err := e.domainsOf(ctx, account)
	if err != nil {
		return nil, err
	}
	if len(all) >= sandbox.MaxDomains {
		return nil, &sandbox.Error{Kind: sandbox.Exhausted, Err: fmt.Errorf("there are %d domains already", len(all)), Hint: "remove one first: berth domain rm NAME"}
	}
	token := strings.ToLower(rand.Text())
	return &domain{Domain: sandbox.Domain{Name: name, Account: account, Created: e.now().UTC().Round(0), Proof: sandbox.DomainProof{
		TXTName: "_berth-challenge." + name, TXTValue: "berth-verify=" + token,
		Path: "/.well-known/berth-challenge/" + token, Body: "berth-verify=" + token,
	}}}, nil
}

// saveDomain writes a claim, and what the domain stands for if it is proved.
func (e *Engine) saveDomain(ctx context.Context, d *domain) error {
	value, err := json.Marshal(d.Domain)
	if err != nil {
		return sandbox.Errorf("encode domain", sandbox.Internal, "%w", err)
	}
	key := claimKey(d.Account, d.Name)
	t := record.Txn{If: []record.Cond{{Key: key, Revision: d.revision}}, Then: []record.Op{{Key: key, Value: value}}}
	if !d.Verified.IsZero() {
		t.Then = append(t.Then, record.Op{Key: domainPrefix + d.Name, Value: value})
	}
	d.revision, err = e.records.Commit(ctx, t)
	return err
}

// VerifyDomain looks whether the domain's owner has proved to have it; then it
// stands for its port, also if another account had proved it before.
//
// Forbidden: the proof is not there.
func (e *Engine) VerifyDomain(ctx context.Context, name string) (sandbox.Domain, error) {
	const op = "verify domain"
	d, err := e.ownDomain(ctx, name)
	if err != nil {
		return sandbox.Domain{}, fail(op, "", err)
	}
	if e.prover == nil {
		return sandbox.Domain{}, fail(op, "", sandbox.Errorf("", sandbox.Unsupported, "this server proves no domains"))
	}
	if err := e.prover.Prove(ctx, d.Domain); err != nil {
		return sandbox.Domain{}, fail(op, "", err)
	}
	d.Verified = e.now().UTC().Round(0)
	return d.Domain, fail(op, "", e.saveDomain(ctx, d))
}

// Domains lists the domains of the caller's account, by name.
func (e *Engine) Domains(ctx context.Context) ([]sandbox.Domain, error) {
	const op = "list domains"
	caller, err := sandbox.CallerOf(ctx)
	if err != nil {
		return nil, fail(op, "", err)
	}
	all, err := e.domainsOf(ctx, caller.Account)
	return all, fail(op, "", err)
}

// Domain returns one domain of the caller's account.
func (e *Engine) Domain(ctx context.Context, name string) (sandbox.Domain, error) {
	d, err := e.ownDomain(ctx, name)
	if err != nil {
		return sandbox.Domain{}, fail("get domain", "", err)
	}
	return d.Domain, nil
}

// RemoveDomain gives a domain up; the next request finds it no more.
func (e *Engine) RemoveDomain(ctx context.Context, name string) error {
	const op = "remove domain"
	d, err := e.ownDomain(ctx, name)
	if err != nil {
		return fail(op, "", err)
	}
	t := record.Txn{Then: []record.Op{{Key: claimKey(d.Account, d.Name), Delete: true}}}
	now, err := e.records.Get(ctx, domainPrefix+d.Name)
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound:
	case err != nil:
		return fail(op, "", err)
	default:
		proved, err := decodeDomain(now)
		if err != nil {
			return fail(op, "", err)
		}
		if proved.Account == d.Account { // nobody else has proved it since
			t.If = append(t.If, record.Cond{Key: now.Key, Revision: now.Revision})
			t.Then = append(t.Then, record.Op{Key: now.Key, Delete: true})
		}
	}
	_, err = e.records.Commit(ctx, t)
	return fail(op, "", err)
}

// DomainTarget is the port that a proved domain stands for. It asks for no caller:
// who may come there Admit says.
func (e *Engine) DomainTarget(ctx context.Context, name string) (sandbox.ID, int, error) {
	if sandbox.CheckHostName(name) != nil {
		return "", 0, noDomain(name)
	}
	entry, err := e.records.Get(ctx, domainPrefix+name)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return "", 0, noDomain(name)
	}
	if err != nil {
		return "", 0, fail("find domain", "", err)
	}
	d, err := decodeDomain(entry)
	if err != nil {
		return "", 0, fail("find domain", "", err)
	}
	return d.Sandbox, d.Port, nil
}

func noDomain(name string) error {
	return &sandbox.Error{Kind: sandbox.NotFound, Err: fmt.Errorf("no domain %.80q", name), Hint: "berth domain ls lists them"}
}

// ownDomain returns a claim of the caller's account.
func (e *Engine) ownDomain(ctx context.Context, name string) (*domain, error) {
	caller, err := sandbox.CallerOf(ctx)
	if err != nil {
		return nil, err
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if err := sandbox.CheckHostName(name); err != nil {
		return nil, err
	}
	return e.loadDomain(ctx, caller.Account, name)
}

func (e *Engine) loadDomain(ctx context.Context, account, name string) (*domain, error) {
	entry, err := e.records.Get(ctx, claimKey(account, name))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, noDomain(name)
	}
	if err != nil {
		return nil, err
	}
	return decodeDomain(entry)
}

func decodeDomain(entry record.Entry) (*domain, error) {
	d := &domain{revision: entry.Revision}
	if err := json.Unmarshal(entry.Value, &d.Domain); err != nil {
		return nil, sandbox.Errorf("decode "+entry.Key, sandbox.Internal, "%w", err)
	}
	return d, nil
}

func (e *Engine) domainsOf(ctx context.Context, account string) ([]sandbox.Domain, error) {
	entries, err := e.records.List(ctx, claimKey(account, ""), "", 0)
	if err != nil {
		return nil, err
	}
	all := make([]sandbox.Domain, 0, len(entries))
	for _, entry := range entries {
		d, err := decodeDomain(entry)
		if err != nil {
			return nil, err
		}
		all = append(all, d.Domain)
	}
	return all, nil
}
