package wire

import (
	"errors"
	"slices"

	"github.com/berth-dev/berth/sandbox"
)

// Err returns the error that the body describes. A code that is not known
// counts as Internal.
func (e Error) Err() error {
	kind := e.Error.Code
	if !slices.Contains(sandbox.Kinds(), kind) {
		kind = sandbox.Internal
	}
	return &sandbox.Error{Kind: kind, Err: errors.New(e.Error.Message), Hint: e.Error.Hint}
}
