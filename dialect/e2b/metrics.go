package e2b

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// metrics gives what a sandbox uses now, if that is asked for. The past is not kept
// in this form.
func (d *Dialect) metrics(w http.ResponseWriter, r *http.Request) error {
	s, err := d.box(r.Context(), r)
	if err != nil {
		return err
	}
	now, err := asksForNow(r.URL.Query(), time.Now())
	if err != nil {
		return err
	}
	out := []metric{}
	if now && s.State == sandbox.Running {
		m, err := d.measure(r.Context(), s)
		if err != nil {
			return err
		}
		out = append(out, m)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// nowSlack is by how much the clocks of clients, and the time between two of their
// requests, may differ from what is now.
const nowSlack = 30 * time.Second

// asksForNow reports whether now lies between the times that a query names.
func asksForNow(q url.Values, now time.Time) (bool, error) {
	is := true
	for _, name := range []string{"start", "end"} {
		if !q.Has(name) {
			continue
		}
		n, err := strconv.ParseInt(q.Get(name), 10, 64)
		if err != nil {
			return false, invalid(name + " is a time in seconds since 1970")
		}
		at := time.Unix(n, 0)
		is = is && (name == "start" && !at.After(now.Add(nowSlack)) || name == "end" && !at.Before(now.Add(-nowSlack)))
	}
	return is, nil
}

// maxMetrics bounds the sandboxes of one request for metrics.
const maxMetrics = 100

func (d *Dialect) metricsOfMany(w http.ResponseWriter, r *http.Request) error {
	ids := strings.Split(r.URL.Query().Get("sandbox_ids"), ",")
	if len(ids) > maxMetrics {
		return invalid(fmt.Sprintf("at most %d sandboxes are told of at once", maxMetrics))
	}
	all := map[string]metric{}
	for _, id := range ids {
		s, err := d.engine.Get(r.Context(), id)
		if kind := sandbox.KindOf(err); kind == sandbox.NotFound || kind == sandbox.Invalid || err == nil && s.State != sandbox.Running {
			continue
		}
		if err != nil {
			return err
		}
		if all[id], err = d.measure(r.Context(), s); err != nil {
			return err
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"sandboxes": all})
	return nil
}

// measureTime is over which the use of processors is taken.
const measureTime = 100 * time.Millisecond

// measure takes what a running sandbox uses.
func (d *Dialect) measure(ctx context.Context, s sandbox.Sandbox) (m metric, err error) {
	before, err := d.engine.Usage(ctx, string(s.ID))
	if err != nil {
		return m, err
	}
	begin := time.Now()
	select {
	case <-time.After(measureTime):
	case <-ctx.Done():
		return m, ctx.Err()
	}
	after, err := d.engine.Usage(ctx, string(s.ID))
	if err != nil {
		return m, err
	}
	now := time.Now()
	cores := float64(s.Limits.CPUMilli) / 1000
	used := float64(after.CPUMillis-before.CPUMillis) / float64(now.Sub(begin).Milliseconds())
	return metric{Timestamp: now.UTC(), TimestampUnix: now.Unix(), CPUCount: listed(s).CPUCount, CPUUsedPct: max(0, min(100, 100*used/cores)),
		MemUsed: after.MemoryBytes, MemTotal: s.Limits.MemoryBytes, DiskUsed: after.DiskBytes, DiskTotal: s.Limits.DiskBytes}, nil
}

// guestMetrics is the same, as the guest port gives it.
func (d *Dialect) guestMetrics(w http.ResponseWriter, r *http.Request) error {
	m, err := d.measure(r.Context(), targetOf(r.Context()).Sandbox)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"ts": m.TimestampUnix, "cpu_count": m.CPUCount, "cpu_used_pct": m.CPUUsedPct,
		"mem_total": m.MemTotal, "mem_used": m.MemUsed, "mem_cache": m.MemCache,
		"mem_total_mib": m.MemTotal >> 20, "mem_used_mib": m.MemUsed >> 20,
		"disk_used": m.DiskUsed, "disk_total": m.DiskTotal,
	})
	return nil
}

func (d *Dialect) guestEnvs(w http.ResponseWriter, r *http.Request) error {
	t := targetOf(r.Context())
	writeJSON(w, http.StatusOK, t.env(t.Env))
	return nil
}
