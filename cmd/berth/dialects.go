package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// claimer is a door that knows its own requests.
type claimer interface {
	http.Handler
	Claims(r *http.Request) bool
}

// doors gives each request to the first that claims it, else to rest.
func doors(rest http.Handler, first ...claimer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, door := range first {
			if door.Claims(r) {
				door.ServeHTTP(w, r)
				return
			}
		}
		rest.ServeHTTP(w, r)
	})
}

// enterer lets in whoever shows the 40 hex digits of a key.
type enterer func(ctx context.Context, digits string) (_ context.Context, leave func(), err error)

// enterByDigits lets the operator in by the admin's key, and others by theirs.
func enterByDigits(admin string, others enterer) enterer {
	own := sha256.Sum256([]byte(strings.TrimPrefix(admin, keyPrefix)))
	return func(ctx context.Context, digits string) (context.Context, func(), error) {
		given := sha256.Sum256([]byte(digits))
		switch {
		case admin != "" && subtle.ConstantTimeCompare(own[:], given[:]) == 1:
			return sandbox.WithCaller(ctx, sandbox.Operator()), func() {}, nil
		case others == nil:
			return nil, nil, &sandbox.Error{Op: "check key", Kind: sandbox.Unauthorized, Err: errors.New("the key is not known"),
				Hint: "the admin's key is in admin.key of the server's data directory"}
		}
		return others(ctx, digits)
	}
}

// keyPrefix stands before the digits of a key.
const keyPrefix = "berth_"
