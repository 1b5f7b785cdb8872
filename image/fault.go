package image

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/berth-dev/berth/sandbox"
)

// fault puts op before err and gives it a kind: a full disk is Exhausted.
func fault(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &sandbox.Error{Op: op, Kind: sandbox.KindOf(err), Err: err}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		e.Kind, e.Hint = sandbox.Exhausted, "free space on the disk that holds the data directory; a build needs about three times the image's size"
	}
	return e
}

// invalid is a request, or an image, that can never work.
func invalid(hint, format string, args ...any) error {
	return &sandbox.Error{Kind: sandbox.Invalid, Err: fmt.Errorf(format, args...), Hint: hint}
}
