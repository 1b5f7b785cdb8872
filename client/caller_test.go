package client_test

import (
	"context"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// asOperator is a context of the server's owner: the engine that is called
// without a server between asks for one.
func asOperator(t testing.TB) context.Context {
	return sandbox.WithCaller(t.Context(), sandbox.Operator())
}
