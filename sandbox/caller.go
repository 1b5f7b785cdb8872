package sandbox

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// MainAccount is the account that every server has: the operator's own.
const MainAccount = "main"

// Scope is what a key may do. Each includes the ones before it.
type Scope string

const (
	ScopeRead  Scope = "read"  // see what there is, files and outputs too; change nothing
	ScopeExec  Scope = "exec"  // work in the sandboxes that are there: commands, files, sleep and wake
	ScopeAdmin Scope = "admin" // make, change and remove sandboxes, keys and all else of the account
)

// Scopes lists every scope, the least first.
func Scopes() []Scope { return []Scope{ScopeRead, ScopeExec, ScopeAdmin} }

// Caller is on whose behalf something is done. The zero Caller is nobody.
type Caller struct {
	Account  string  // whose things it sees, and whose the things are that it makes
	Key      string  // id of the key that it showed, for the audit; "" if it showed none
	Scopes   []Scope // what it may do there
	Operator bool    // sees the things of every account, and may do everything
}

// Operator is the caller that owns the server. A door that has checked a
// permission of another kind than a key, a signed URL for one, names it for what
// that permission covers, and nothing else.
func Operator() Caller {
	return Caller{Account: MainAccount, Key: "operator", Scopes: []Scope{ScopeAdmin}, Operator: true}
}

// May reports whether the caller's scopes include s.
func (c Caller) May(s Scope) bool {
	need := slices.Index(Scopes(), s)
	return c.Account != "" && need >= 0 && slices.ContainsFunc(c.Scopes, func(has Scope) bool {
		return slices.Index(Scopes(), has) >= need
	})
}

// Sees reports whether a thing of an account is there for the caller.
func (c Caller) Sees(account string) bool {
	return c.Account != "" && (c.Operator || c.Account == account)
}

type callerKey struct{}

// WithCaller returns a context for what is done on behalf of c.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns on whose behalf something is done. A context that names
// nobody is Unauthorized: what forgets to say it sees nothing.
func CallerOf(ctx context.Context) (Caller, error) {
	c, _ := ctx.Value(callerKey{}).(Caller)
	if c.Account == "" {
		return Caller{}, &Error{Op: "find caller", Kind: Unauthorized, Err: errors.New("nobody is named on whose behalf this is done"),
			Hint: "call through the server's API, with a key"}
	}
	return c, nil
}

var accountPattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// CheckAccount reports an error of kind Invalid unless s can be the id of an
// account: 1 to 32 characters of [a-z0-9-], the first a letter.
func CheckAccount(s string) error {
	if !accountPattern.MatchString(s) {
		return &Error{Op: "check account", Kind: Invalid, Err: fmt.Errorf("%.80q is not an account", s),
			Hint: "an account has 1 to 32 characters of a-z 0-9 - and starts with a letter"}
	}
	return nil
}
