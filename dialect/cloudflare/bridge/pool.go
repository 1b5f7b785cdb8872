package bridge

import (
	"net/http"

	"github.com/berth-dev/berth/sandbox"
)

// The server looks after its pool all the time; these are what clients are told.
const (
	refreshMS = 10_000
	batch     = 1
)

// poolStats counts the sandboxes that wait, for the operator alone, and those of the
// caller's account that were made here.
func (b *Bridge) poolStats(w http.ResponseWriter, r *http.Request) error {
	st, err := b.Engine.Status(r.Context())
	if err != nil {
		return failed("pool error", codePool, err)
	}
	out := poolStats{Warm: st.Warm, Config: poolConfig{WarmTarget: b.Warm, RefreshInterval: refreshMS, ScaleBatchSize: batch}}
	q := sandbox.ListQuery{Metadata: map[string]string{metaMade: "true"}, Limit: sandbox.MaxPage}
	for {
		page, err := b.Engine.List(r.Context(), q)
		if err != nil {
			return failed("pool error", codePool, err)
		}
		out.Assigned += len(page.Sandboxes)
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	out.Total = out.Warm + out.Assigned
	return writeJSON(w, out)
}

// primePool has nothing to begin: a pool that is wanted is kept filled.
func (b *Bridge) primePool(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, ok{true})
}

func (b *Bridge) emptyPool(w http.ResponseWriter, r *http.Request) error {
	if err := b.Engine.EmptyPool(r.Context()); err != nil {
		return failed("pool error", codePool, err)
	}
	return writeJSON(w, ok{true})
}
