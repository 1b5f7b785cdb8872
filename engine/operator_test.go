package engine_test

import (
	"context"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// operator is a context of the server's owner, for as long as the test lasts.
func operator(t testing.TB) context.Context {
	return sandbox.WithCaller(t.Context(), sandbox.Operator())
}

// member is a context of somebody of an account, with an admin's key.
func member(t testing.TB, account string) context.Context {
	return sandbox.WithCaller(t.Context(), sandbox.Caller{Account: account, Key: "test", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
}
