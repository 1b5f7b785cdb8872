// Package capnweb speaks the RPC protocol of that name: calls of methods by their
// path on an object, in JSON messages, with streams and functions among the values.
//
// A Session serves one peer. Everything that the peer sends is hostile: messages,
// tables, depth and what waits are bounded, and whoever goes beyond is cut off.
package capnweb

import (
	"context"
	"errors"
	"io"
	"time"
)

// Transport carries the messages of one peer. An error ends the session.
type Transport interface {
	Receive(ctx context.Context) ([]byte, error) // for one goroutine at a time
	Send(ctx context.Context, message []byte) error
}

// Method is a function that the peer may call. Its result and its arguments are
// values; ctx ends with the session.
type Method func(ctx context.Context, args []any) (any, error)

// Object is what the peer may reach by name: Methods and Objects.
type Object map[string]any

// Values are those of JSON (nil, bool, float64, string, []any, map[string]any), what
// marshals to them, and these.
type (
	// Undefined is the value undefined.
	Undefined struct{}

	// Source is a stream that is written when the result that holds it is sent. Write
	// blocks while the peer does not read, and fails when it wants no more.
	Source func(ctx context.Context, w io.Writer) error
)

// Date is a time, to the millisecond.
type Date struct{ time.Time }

// Error is an error that passes with properties.
type Error struct {
	Name       string // "" means "Error"
	Message    string
	Properties map[string]any
}

func (e *Error) Error() string { return e.Message }

// Limits bound what a peer may do; zero means the default.
type Limits struct {
	Table   int   // entries that a peer may have here; 0 means 4096
	Depth   int   // of a value; 0 means 64
	Calls   int   // under way at once; 0 means 256
	Pending int64 // bytes of streams that nobody has read yet, of the whole session; 0 means 32 MiB
}

func (l Limits) orDefaults() Limits {
	if l.Table == 0 {
		l.Table = 4096
	}
	if l.Depth == 0 {
		l.Depth = 64
	}
	if l.Calls == 0 {
		l.Calls = 256
	}
	if l.Pending == 0 {
		l.Pending = 32 << 20
	}
	return l
}

// errProtocol is of a peer that does not keep to the protocol.
var errProtocol = errors.New("bad RPC message")

// ErrEnded is of calls whose session has ended.
var ErrEnded = errors.New("the RPC session has ended")
