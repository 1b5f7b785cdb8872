package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"

	"github.com/berth-dev/berth/sandbox"
)

// keyHeader names a create, so that a client that has heard no answer can ask again.
const keyHeader = "Idempotency-Key"

var keyPattern = regexp.MustCompile(`^[a-z0-9-]{1,255}$`)

// once makes a sandbox, or finds the one that the same create has made before. While
// that is being made it waits.
func (d *Dialect) once(r *http.Request, n *newSandbox, req *sandbox.CreateRequest, create func() (sandbox.Sandbox, error)) (s sandbox.Sandbox, err error) {
	key := r.Header.Get(keyHeader)
	if key == "" {
		return create()
	}
	if !keyPattern.MatchString(key) {
		return s, invalid(keyHeader + " has 1 to 255 characters of a-z 0-9 -")
	}
	ctx := r.Context()
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return s, err
	}
	leave, err := d.turns.Lock(ctx, c.Account+" "+key)
	if err != nil {
		return s, err
	}
	defer leave()
	asked, err := json.Marshal(n)
	if err != nil {
		return s, err
	}
	sum := sha256.Sum256(append(asked, r.URL.Path...))
	req.Metadata[metaKey], req.Metadata[metaAsked] = key, d.derive("asked "+hex.EncodeToString(sum[:]), "")
	made, ok, err := d.madeWith(ctx, key)
	switch {
	case err != nil:
		return s, err
	case !ok:
		return create()
	case made.Metadata[metaAsked] != req.Metadata[metaAsked]:
		return s, &fault{status: http.StatusUnprocessableEntity, slug: "idempotency_request_mismatch",
			text: fmt.Sprintf("the %s was used for another request, which made the sandbox '%s'", keyHeader, made.ID)}
	case made.State == sandbox.Starting:
		return s, &fault{status: http.StatusConflict, slug: "idempotency_in_progress", text: "the sandbox is still being made: try again in a moment"}
	}
	return made, nil
}

// madeWith is the oldest sandbox of the caller that was made with a key: copies of it
// may have its metadata.
func (d *Dialect) madeWith(ctx context.Context, key string) (oldest sandbox.Sandbox, ok bool, err error) {
	q := sandbox.ListQuery{Metadata: map[string]string{metaKey: key, metaMade: "true"}, Limit: 1000}
	for {
		page, err := d.engine.List(ctx, q)
		if err != nil {
			return oldest, false, err
		}
		for _, s := range page.Sandboxes {
			if s.State != sandbox.Failed && (!ok || s.Created.Before(oldest.Created)) {
				oldest, ok = s, true
			}
		}
		if q.After = page.Next; page.Next == "" {
			return oldest, ok, nil
		}
	}
}
