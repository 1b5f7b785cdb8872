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

// metrics gives what a sandbox has used in the time that is asked for, and what it
// uses now if that is a part of it. A sandbox that does not run is not woken.
func (d *Dialect) metrics(w http.ResponseWriter, r *http.Request) error {
	s, err := d.box(r.Context(), r)
	if err != nil {
		return err
	}
	from, to, err := timesOf(r.URL.Query())
	if err != nil {
		return err
	}
	now := time.Now()
	if !to.IsZero() && !from.Before(to) || from.After(now.Add(nowSlack)) {
		writeJSON(w, http.StatusOK, []metric{})
		return nil
	}
	past, err := d.engine.History(r.Context(), string(s.ID), sandbox.HistoryQuery{From: from, To: to})
	if err != nil {
		return err
	}
	out := make([]metric, 0, len(past)+1)
	for _, one := range past {
		out = append(out, metricOf(s, one.Time, float64(one.CPUMilli), one.MemoryBytes, one.DiskBytes))
	}
	if s.State == sandbox.Running && (to.IsZero() || !to.Before(now.Add(-nowSlack))) {
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

// timesOf reads the times that a query names, in seconds since 1970. Zero: none.
func timesOf(q url.Values) (from, to time.Time, err error) {
	for name, t := range map[string]*time.Time{"start": &from, "end": &to} {
		if !q.Has(name) {
			continue
		}
		n, err := strconv.ParseInt(q.Get(name), 10, 64)
		if err != nil || n < 0 || n > 1<<40 {
			return from, to, invalid(name + " is a time in seconds since 1970")
		}
		*t = time.Unix(n, 0)
	}
	if !to.IsZero() {
		to = to.Add(time.Second) // all of that second
	}
	return from, to, nil
}

// metricOf is a sample in E2B's form; cpu is in thousandths of a core.
func metricOf(s sandbox.Sandbox, at time.Time, cpu float64, memory, disk int64) metric {
	return metric{Timestamp: at.UTC(), TimestampUnix: at.Unix(), CPUCount: listed(s).CPUCount, CPUUsedPct: max(0, min(100, 100*cpu/float64(s.Limits.CPUMilli))),
		MemUsed: memory, MemTotal: s.Limits.MemoryBytes, DiskUsed: disk, DiskTotal: s.Limits.DiskBytes}
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
	used := 1000 * float64(after.CPUMillis-before.CPUMillis) / float64(now.Sub(begin).Milliseconds())
	return metricOf(s, now, used, after.MemoryBytes, after.DiskBytes), nil
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
