package capnweb

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
)

// encoder turns values into expressions. Streams and functions of a value begin to be
// the peer's with it.
type encoder struct {
	session *Session
	sources []func() // start once the expression was sent
}

func (e *encoder) value(v any, depth int) (any, error) {
	if depth > e.session.limits.Depth {
		return nil, errors.New("the value is nested too deep")
	}
	switch v := v.(type) {
	case nil, bool, string:
		return v, nil
	case float64:
		return real(v), nil
	case int:
		return v, nil
	case int64:
		return v, nil
	case Undefined:
		return []any{"undefined"}, nil
	case []byte:
		return []any{"bytes", base64.RawStdEncoding.EncodeToString(v)}, nil
	case Date:
		if v.IsZero() {
			return []any{"date", nil}, nil
		}
		return []any{"date", v.UnixMilli()}, nil
	case *big.Int:
		return []any{"bigint", v.String()}, nil
	case *Error:
		return e.failure(v, depth)
	case Source:
		return e.source(v)
	case Method:
		return []any{"export", e.session.lend(v)}, nil
	case map[string]any:
		return e.object(v, depth)
	case []any:
		out := make([]any, len(v))
		for i, one := range v {
			x, err := e.value(one, depth+1)
			if err != nil {
				return nil, err
			}
			out[i] = x
		}
		return []any{out}, nil
	}
	return e.other(v, depth)
}

func (e *encoder) object(v map[string]any, depth int) (any, error) {
	out := make(map[string]any, len(v))
	for _, k := range slices.Sorted(maps.Keys(v)) {
		x, err := e.value(v[k], depth+1)
		if err != nil {
			return nil, err
		}
		out[k] = x
	}
	return out, nil
}

// other encodes what marshals to JSON.
func (e *encoder) other(v any, depth int) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("cannot serialize value: %w", err)
	}
	var x any
	if err := json.Unmarshal(b, &x); err != nil {
		return nil, fmt.Errorf("cannot serialize value: %w", err)
	}
	return e.value(x, depth)
}

// real is a number as JSON has it, or as the protocol has those it has not.
func real(f float64) any {
	switch {
	case math.IsNaN(f):
		return []any{"nan"}
	case math.IsInf(f, 1):
		return []any{"inf"}
	case math.IsInf(f, -1):
		return []any{"-inf"}
	}
	return f
}

func (e *encoder) failure(v *Error, depth int) (any, error) {
	name := v.Name
	if name == "" {
		name = "Error"
	}
	if len(v.Properties) == 0 {
		return []any{"error", name, v.Message}, nil
	}
	properties, err := e.object(v.Properties, depth+1)
	return []any{"error", name, v.Message, nil, properties}, err
}

// source makes a pipe of the peer's that the stream is written to.
func (e *encoder) source(v Source) (any, error) {
	p, err := e.session.openPipe()
	if err != nil {
		return nil, err
	}
	e.sources = append(e.sources, func() { e.session.feed(p, v) })
	return []any{"readable", p.id}, nil
}

// errorValue is any error as a value.
func errorValue(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Message: err.Error()}
}
