package meter

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// Report sums up what q selects, as of now. q.Sandbox is an id or "", q.Account
// "" means all.
//
// NotFound: nothing is known of the sandbox, or it is of another account.
func (b *Book) Report(ctx context.Context, q sandbox.UsageQuery) (sandbox.UsageReport, error) {
	const op = "sum up usage"
	if err := q.Check(); err != nil {
		return sandbox.UsageReport{}, &sandbox.Error{Op: op, Err: err}
	}
	if q.By == "" {
		q.By = sandbox.BySandbox
	}
	if q.Limit == 0 {
		q.Limit = sandbox.DefaultPage
	}
	now := b.now().UTC()
	if q.Until.IsZero() || q.Until.After(now) {
		q.Until = now
	} else {
		q.Until = q.Until.UTC().Truncate(time.Hour)
	}
	if !q.Since.IsZero() {
		q.Since = q.Since.UTC().Truncate(time.Hour)
	}
	t := &tally{q: q, rows: map[string]*row{}}
	if err := b.tally(ctx, t, now); err != nil {
		return sandbox.UsageReport{}, &sandbox.Error{Op: op, Err: err}
	}
	return t.report(b.rates), nil
}

// tally gathers the rows of a report.
type tally struct {
	q     sandbox.UsageQuery
	rows  map[string]*row
	total sums
}

type row struct {
	sandbox.UsageRow
	sums  sums
	price *big.Rat
}

// add counts what a sandbox used, in an hour if that is known.
func (t *tally) add(g *gauge, h int64, s sums) {
	var r row
	key := string(g.ID)
	switch t.q.By {
	case sandbox.ByHour:
		key = fmt.Sprintf("%016x", h)
		r.Hour = time.UnixMilli(h * hour).UTC()
	case sandbox.ByAccount:
		key = g.Account
		r.Account = g.Account
	default:
		r.Sandbox, r.Name, r.Account, r.State = g.ID, g.Name, g.Account, g.State
		if g.Volume {
			r.Volume, r.Sandbox = g.ID, ""
			if g.Ended.IsZero() {
				r.State = ""
			}
		}
	}
	if t.rows[key] == nil {
		t.rows[key] = &r
	}
	t.rows[key].sums.join(s)
	t.total.join(s)
}

// tally adds all that the query selects. Without bounds and rows of hours the
// gauges alone have it.
func (b *Book) tally(ctx context.Context, t *tally, now time.Time) error {
	all, err := b.gauges(ctx, t.q, now)
	if err != nil {
		return err
	}
	if t.q.Sandbox != "" && len(all) == 0 {
		return &sandbox.Error{Kind: sandbox.NotFound, ID: sandbox.ID(t.q.Sandbox), Err: fmt.Errorf("nothing was measured of such a sandbox"),
			Hint: "berth usage lists those that are known"}
	}
	if t.q.Since.IsZero() && t.q.Until.Equal(now) && t.q.By != sandbox.ByHour {
		for _, g := range all {
			s := g.Before
			s.join(g.Part.sums)
			t.add(g, 0, s)
		}
		return nil
	}
	from, to := int64(0), t.q.Until.UnixMilli()
	if !t.q.Since.IsZero() {
		from = t.q.Since.UnixMilli() / hour
	}
	// The hour that a gauge still holds may be on record too: the gauge counts.
	for _, g := range all {
		for _, h := range append(g.Closed, g.Part) {
			if h.Hour >= from && h.Hour*hour < to && !h.empty() {
				t.add(g, h.Hour, h.sums)
			}
		}
	}
	return b.tallyHours(ctx, t, all, from, to)
}

// tallyHours adds the hours on record from one up to a time in milliseconds.
func (b *Book) tallyHours(ctx context.Context, t *tally, all map[sandbox.ID]*gauge, from, to int64) error {
	accounts := map[string]bool{}
	for _, g := range all {
		accounts[g.Account] = true
	}
	for account := range accounts {
		prefix := hourPrefix + account + "/"
		err := record.Each(ctx, b.records, prefix, hourFrom(account, from), func(e record.Entry) error {
			_, h, id, ok := parseHourKey(e.Key)
			g := all[id]
			if !ok || g == nil || h*hour >= to || holds(g, h) {
				return nil
			}
			var one hourly
			if err := json.Unmarshal(e.Value, &one); err != nil {
				return sandbox.Errorf("decode "+e.Key, sandbox.Internal, "%w", err)
			}
			t.add(g, h, one.sums)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// holds reports whether a gauge has an hour itself.
func holds(g *gauge, h int64) bool {
	return g.Part.Hour == h || slices.ContainsFunc(g.Closed, func(c hourly) bool { return c.Hour == h })
}

// gauges returns those that a query selects, brought up to now: those in memory,
// and those that are on record alone.
func (b *Book) gauges(ctx context.Context, q sandbox.UsageQuery, now time.Time) (map[sandbox.ID]*gauge, error) {
	picks := func(g *gauge) bool {
		return (q.Account == "" || g.Account == q.Account) && (q.Sandbox == "" || string(g.ID) == q.Sandbox)
	}
	all := map[sandbox.ID]*gauge{}
	gone := func(g *gauge) {
		if picks(g) {
			all[g.ID] = g
		}
	}
	// Memory comes first: one that goes on record meanwhile is found in both then.
	live := b.copies(picks, now)
	var err error
	if q.Sandbox == "" {
		err = b.each(ctx, gonePrefix, gone)
	} else if len(live) == 0 {
		err = b.goneOne(ctx, q.Sandbox, gone)
	}
	for _, g := range live {
		all[g.ID] = g
	}
	return all, err
}

func (b *Book) goneOne(ctx context.Context, id string, f func(*gauge)) error {
	entry, err := b.records.Get(ctx, gonePrefix+id)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	g := new(gauge)
	if err := json.Unmarshal(entry.Value, g); err != nil {
		return sandbox.Errorf("decode "+entry.Key, sandbox.Internal, "%w", err)
	}
	f(g)
	return nil
}

func (b *Book) copies(picks func(*gauge) bool, now time.Time) (all []*gauge) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.boxes {
		if !picks(&one.gauge) {
			continue
		}
		g := one.clone()
		g.advance(now.UnixMilli(), 0, g.Used, g.Disk, nil)
		all = append(all, g)
	}
	return all
}

// report prices the rows and puts them in order: the dearest first, the newest
// hour first.
func (t *tally) report(r rates) sandbox.UsageReport {
	rep := sandbox.UsageReport{Since: t.q.Since, Until: t.q.Until, Total: t.total.consumption(), Rows: []sandbox.UsageRow{}}
	rep.Cost, _ = r.cost(t.total)
	rows := make([]*row, 0, len(t.rows))
	for _, one := range t.rows {
		one.Consumption = one.sums.consumption()
		one.Cost, one.price = r.cost(one.sums)
		rows = append(rows, one)
	}
	slices.SortFunc(rows, func(x, y *row) int {
		return cmp.Or(y.Hour.Compare(x.Hour), y.price.Cmp(x.price), cmp.Compare(x.Account, y.Account), cmp.Compare(x.Sandbox, y.Sandbox), cmp.Compare(x.Volume, y.Volume))
	})
	if len(rows) > t.q.Limit {
		rep.More = len(rows) - t.q.Limit
		rows = rows[:t.q.Limit]
	}
	for _, one := range rows {
		rep.Rows = append(rep.Rows, one.UsageRow)
	}
	return rep
}

// Totals are the sums of all sandboxes of this server, removed ones too. They do
// not shrink while this process lives.
func (b *Book) Totals() sandbox.Consumption {
	now := b.now()
	live := b.copies(func(g *gauge) bool { return true }, now)
	b.mu.Lock()
	total := b.gone
	b.mu.Unlock()
	for _, g := range live {
		total.join(g.Before)
		total.join(g.Part.sums)
	}
	return total.consumption()
}
