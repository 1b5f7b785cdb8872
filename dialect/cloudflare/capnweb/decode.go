package capnweb

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"
)

// promise stands in a decoded value for what is known later.
type promise struct{ entry *entry }

// decoder turns expressions into values. What they name of the session's tables is
// looked up at once, in the order of messages.
type decoder struct {
	session *Session
	stubs   []*Stub // that came with the value
}

func unknown(what any) error {
	text, err := json.Marshal(what)
	if err != nil || len(text) > 80 {
		text = []byte("…")
	}
	return fmt.Errorf("%w: unknown special value %s", errProtocol, text)
}

func (d *decoder) value(v any, depth int) (any, error) {
	if depth > d.session.limits.Depth {
		return nil, fmt.Errorf("%w: it is nested too deep", errProtocol)
	}
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, one := range v {
			x, err := d.value(one, depth+1)
			if err != nil {
				return nil, err
			}
			out[k] = x
		}
		return out, nil
	case []any:
		if len(v) == 1 {
			if list, ok := v[0].([]any); ok {
				return d.list(list, depth+1)
			}
		}
		return d.special(v, depth)
	}
	return v, nil
}

// list decodes an array's elements.
func (d *decoder) list(v []any, depth int) ([]any, error) {
	out := make([]any, len(v))
	for i, one := range v {
		x, err := d.value(one, depth+1)
		if err != nil {
			return nil, err
		}
		out[i] = x
	}
	return out, nil
}

// special decodes an array that begins with a type's name.
func (d *decoder) special(v []any, depth int) (any, error) {
	kind := ""
	if len(v) > 0 {
		kind, _ = v[0].(string)
	}
	switch kind {
	case "undefined":
		return Undefined{}, nil
	case "inf":
		return math.Inf(1), nil
	case "-inf":
		return math.Inf(-1), nil
	case "nan":
		return math.NaN(), nil
	case "date", "bigint", "bytes":
		return d.scalar(kind, v)
	case "error":
		return d.failure(v, depth)
	case "import", "pipeline":
		return d.pipeline(v, depth)
	case "export", "promise", "writable", "readable":
		return d.capability(kind, v)
	}
	return nil, unknown(v)
}

// scalar decodes what has one text or number.
func (d *decoder) scalar(kind string, v []any) (any, error) {
	if len(v) != 2 {
		return nil, unknown(v)
	}
	switch x := v[1].(type) {
	case float64:
		if kind == "date" && !math.IsNaN(x) && math.Abs(x) <= 8.64e15 {
			return Date{time.UnixMilli(int64(x)).UTC()}, nil
		}
	case nil:
		if kind == "date" {
			return Date{}, nil
		}
	case string:
		switch kind {
		case "bigint":
			if n, ok := new(big.Int).SetString(x, 10); ok && len(x) <= maxDigits {
				return n, nil
			}
		case "bytes":
			if b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(x, "=")); err == nil {
				return b, nil
			}
		}
	}
	return nil, unknown(v)
}

// maxDigits bounds a big number.
const maxDigits = 4096

// failure decodes an error.
func (d *decoder) failure(v []any, depth int) (any, error) {
	if len(v) < 3 || len(v) > 5 {
		return nil, unknown(v)
	}
	name, ok := v[1].(string)
	text, ok2 := v[2].(string)
	if !ok || !ok2 {
		return nil, unknown(v)
	}
	e := &Error{Name: name, Message: text}
	if len(v) == 5 {
		properties, ok := v[4].(map[string]any)
		if !ok {
			return nil, unknown(v)
		}
		x, err := d.value(properties, depth+1)
		if err != nil {
			return nil, err
		}
		e.Properties = x.(map[string]any)
	}
	return e, nil
}

// pipeline decodes what is made of an earlier result: a part of it, or a call of a
// method of it.
func (d *decoder) pipeline(v []any, depth int) (any, error) {
	if len(v) < 2 || len(v) > 4 {
		return nil, unknown(v)
	}
	id, ok := number(v[1])
	if !ok {
		return nil, unknown(v)
	}
	target := d.session.exported(id)
	if target == nil {
		return nil, fmt.Errorf("%w: no such entry on exports table: %d", errProtocol, id)
	}
	var path []string
	if len(v) > 2 {
		parts, ok := v[2].([]any)
		if !ok || len(parts) > d.session.limits.Depth {
			return nil, unknown(v)
		}
		for _, one := range parts {
			part, ok := key(one)
			if !ok {
				return nil, unknown(v)
			}
			path = append(path, part)
		}
	}
	if len(v) < 4 {
		return promise{d.session.get(target, path)}, nil
	}
	args, ok := v[3].([]any)
	if !ok {
		return nil, unknown(v)
	}
	inner := &decoder{session: d.session}
	list, err := inner.list(args, depth+1)
	if err != nil {
		return nil, err
	}
	e, err := d.session.call(target, path, list, inner.stubs)
	return promise{e}, err
}

// capability decodes what the peer lends or streams.
func (d *decoder) capability(kind string, v []any) (any, error) {
	if len(v) != 2 {
		return nil, unknown(v)
	}
	id, ok := number(v[1])
	if !ok {
		return nil, unknown(v)
	}
	switch kind {
	case "readable":
		return d.session.readable(id)
	case "promise":
		e, err := d.session.lentPromise(id)
		return promise{e}, err
	}
	stub, err := d.session.lent(id)
	if err == nil {
		d.stubs = append(d.stubs, stub)
	}
	return stub, err
}

// number is an id of a table.
func number(v any) (int64, bool) {
	f, ok := v.(float64)
	if !ok || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// key is a part of a path.
func key(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case float64:
		n, ok := number(v)
		return fmt.Sprint(n), ok
	}
	return "", false
}
