package api

import (
	"context"
	"net/http"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Upkeep is the verb that cleans up after all.
type Upkeep interface {
	Collect(ctx context.Context, dry bool) (sandbox.Garbage, error)
}

func (a *API) collectGarbage(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	dry := q.boolean("dry_run")
	if err := q.check(); err != nil {
		return err
	}
	g, err := a.engine.Collect(r.Context(), dry)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, g)
}

// Metering is the verb that sums up what sandboxes have used.
type Metering interface {
	Consumption(ctx context.Context, q sandbox.UsageQuery) (sandbox.UsageReport, error)
	History(ctx context.Context, id string, q sandbox.HistoryQuery) ([]sandbox.Sample, error)
}

// history answers with what a sandbox used lately.
func (a *API) history(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	hq := sandbox.HistoryQuery{
		From: q.time("from"),
		To:   q.time("to"),
		Step: time.Duration(q.positive("step", int64(sandbox.HistoryAge/time.Second))) * time.Second,
	}
	if err := q.check(); err != nil {
		return err
	}
	samples, err := a.engine.History(r.Context(), r.PathValue("id"), hq)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"samples": samples})
}

func (a *API) consumption(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	uq := sandbox.UsageQuery{
		Sandbox: q.text("sandbox"),
		Account: q.text("account"),
		Since:   q.time("since"),
		Until:   q.time("until"),
		By:      sandbox.UsageBy(q.text("by")),
		Limit:   int(q.positive("limit", sandbox.MaxPage)),
	}
	if err := q.check(); err != nil {
		return err
	}
	report, err := a.engine.Consumption(r.Context(), uq)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, report)
}
