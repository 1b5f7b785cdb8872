package bolt

import (
	"bytes"
	"context"

	bbolt "go.etcd.io/bbolt"

	"github.com/berth-dev/berth/record"
)

// page reads up to limit entries with prefix that sort after the key "after".
func page(ctx context.Context, c *bbolt.Cursor, prefix, after string, limit int) ([]record.Entry, error) {
	var found []record.Entry
	for k, v := seekAfter(c, prefix, after); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, v = c.Next() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e, err := decode(k, v)
		if err != nil {
			return nil, err
		}
		if found = append(found, e); len(found) == limit {
			break
		}
	}
	return found, nil
}

// seekAfter finds the first key that is at or behind prefix and behind after.
func seekAfter(c *bbolt.Cursor, prefix, after string) (k, v []byte) {
	if after < prefix {
		return c.Seek([]byte(prefix))
	}
	if after == "" {
		return c.First()
	}
	k, v = c.Seek([]byte(after))
	if string(k) == after {
		return c.Next()
	}
	return k, v
}
