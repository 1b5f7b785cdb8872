package sandbox

import (
	"context"
	"errors"
	"fmt"
)

// Kind classes an error for whoever must act on it. Its text is the code of
// the native API.
type Kind string

const (
	Invalid      Kind = "invalid"      // the request can never succeed as it stands
	Unauthorized Kind = "unauthorized" // no key, or not a known one
	Forbidden    Kind = "forbidden"    // a known key that may not do this
	NotFound     Kind = "not_found"    // no such thing
	Conflict     Kind = "conflict"     // the thing's present state forbids it
	Exhausted    Kind = "exhausted"    // a limit, a quota or the machine is full
	Unsupported  Kind = "unsupported"  // this driver or machine cannot do it
	Timeout      Kind = "timeout"      // a bound on time was met
	Unavailable  Kind = "unavailable"  // out of reach now; trying again may help
	Internal     Kind = "internal"     // Berth's own fault
)

// ErrRemoved is in the chain of an error, of kind NotFound, that says that the
// sandbox was removed while it was used.
var ErrRemoved = errors.New("the sandbox was removed")

// Kinds lists every kind.
func Kinds() []Kind {
	return []Kind{Invalid, Unauthorized, Forbidden, NotFound, Conflict, Exhausted, Unsupported, Timeout, Unavailable, Internal}
}

// Error is the one error type that crosses floors. Wrapping adds the outer
// operation in front, so a text reads "create sbx…: open image: no such file".
type Error struct {
	Op   string // what was tried, imperative: "create", "read file"
	Kind Kind   // "" means: take the kind of Err
	ID   ID     // the sandbox concerned, if one is
	Err  error  // the cause
	Hint string // what the caller can do about it, one sentence, optional
}

func (e *Error) Error() string {
	s := e.Op
	if e.ID != "" {
		s += " " + string(e.ID)
	}
	if e.Err != nil {
		if s != "" {
			s += ": "
		}
		s += e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error of a kind from a format, as fmt.Errorf does.
func Errorf(op string, kind Kind, format string, args ...any) *Error {
	return &Error{Op: op, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// KindOf finds the outermost kind in err's chain. A context's end is Timeout
// (deadline) or Unavailable (cancelled); anything else unknown is Internal.
// KindOf(nil) is "".
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	for e := err; e != nil; {
		var se *Error
		if !errors.As(e, &se) {
			break
		}
		if se.Kind != "" {
			return se.Kind
		}
		e = se.Err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Unavailable
	}
	return Internal
}

// HintOf finds the outermost hint in err's chain, or "".
func HintOf(err error) string {
	for err != nil {
		var se *Error
		if !errors.As(err, &se) {
			return ""
		}
		if se.Hint != "" {
			return se.Hint
		}
		err = se.Err
	}
	return ""
}
