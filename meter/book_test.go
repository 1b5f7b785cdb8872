package meter_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/meter"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/record/bolt"
	"github.com/berth-dev/berth/sandbox"
)

// desk is a book on a real store, with a clock that the test moves.
type desk struct {
	t     *testing.T
	store record.Store
	book  *meter.Book
	at    time.Time
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	store, err := bolt.Open(filepath.Join(t.TempDir(), "records.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	d := &desk{t: t, store: store, at: time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)}
	d.reopen()
	return d
}

// reopen is a server that was killed and started again.
func (d *desk) reopen() {
	d.t.Helper()
	book, err := meter.Open(d.t.Context(), meter.Config{Records: d.store, Clock: func() time.Time { return d.at }})
	if err != nil {
		d.t.Fatal(err)
	}
	d.book = book
}

func (d *desk) wait(span time.Duration) { d.at = d.at.Add(span) }

func (d *desk) change(s sandbox.Sandbox, ran time.Time) {
	d.t.Helper()
	ops, done, err := d.book.Change(s, ran, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.store.Commit(d.t.Context(), record.Txn{Then: ops}); err != nil {
		d.t.Fatal(err)
	}
	done()
}

func (d *desk) flush() {
	d.t.Helper()
	if err := d.book.Flush(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) report(q sandbox.UsageQuery) sandbox.UsageReport {
	d.t.Helper()
	r, err := d.book.Report(d.t.Context(), q)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

const mib, gib = 1 << 20, 1 << 30

func box(id string, state sandbox.State) sandbox.Sandbox {
	return sandbox.Sandbox{ID: sandbox.ID(id), Account: "main", State: state, Limits: sandbox.Limits{MemoryBytes: 2 * gib}}
}

func used(cpu time.Duration, memory, disk int64) driver.Usage {
	return driver.Usage{CPU: cpu, MemoryBytes: memory, DiskBytes: disk}
}

// expect compares what matters.
func (d *desk) expect(got sandbox.Consumption, cpu time.Duration, provisioned, used, disk int64) {
	d.t.Helper()
	want := sandbox.Consumption{CPUMillis: cpu.Milliseconds(), MemoryKiBSeconds: provisioned, MemoryUsedKiBSeconds: used, DiskKBSeconds: disk}
	if got != want {
		d.t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestALifeIsSummedUp(t *testing.T) {
	d := newDesk(t)
	ran := d.at
	d.change(box("a", sandbox.Running), ran)
	d.book.Read("a", ran, used(0, 100*mib, 1_000_000), nil)
	d.wait(100 * time.Second)
	d.book.Read("a", ran, used(7*time.Second, 300*mib, 3_000_000), nil) // 200 MiB, 2 MB on the mean
	d.expect(d.report(sandbox.UsageQuery{}).Total, 7*time.Second, 100*2*mib, 100*200*1024, 100*2000)

	d.change(box("a", sandbox.Paused), ran)
	d.book.Kept("a", 50_000_000)
	d.wait(10 * time.Second) // disk alone
	d.expect(d.report(sandbox.UsageQuery{Sandbox: "a"}).Total, 7*time.Second, 100*2*mib, 100*200*1024, 100*2000+10*50_000)

	again := d.at
	d.change(box("a", sandbox.Running), again)
	d.book.Read("a", ran, used(9*time.Second, gib, 0), nil) // of the machine that was: not counted
	d.book.Read("a", again, used(500*time.Millisecond, 100*mib, 50_000_000), nil)
	d.expect(d.report(sandbox.UsageQuery{}).Total, 7500*time.Millisecond, 100*2*mib, 100*200*1024, 100*2000+10*50_000)

	gone := box("a", sandbox.Deleted)
	d.change(gone, again)
	d.flush()
	d.wait(time.Hour)
	d.reopen()
	r := d.report(sandbox.UsageQuery{Sandbox: "a"})
	d.expect(r.Total, 7500*time.Millisecond, 100*2*mib, 100*200*1024, 100*2000+10*50_000)
	if len(r.Rows) != 1 || r.Rows[0].State != sandbox.Deleted {
		t.Errorf("rows: %+v", r.Rows)
	}
	d.expect(d.book.Totals(), 7500*time.Millisecond, 100*2*mib, 100*200*1024, 100*2000+10*50_000)
}

// TestKilled has the server killed while sandboxes run, and started again later.
func TestKilled(t *testing.T) {
	for _, c := range []struct {
		name   string
		then   sandbox.State // as it is found
		seen   time.Duration // that it ran, as far as can be known
		cpu    time.Duration
		paused time.Duration
	}{
		{"it ran on", sandbox.Running, 5 * time.Hour, 90 * time.Minute, 0},
		{"it died", sandbox.Failed, 20 * time.Second, 3 * time.Second, 0},
		{"it was removed", sandbox.Deleted, 20 * time.Second, 3 * time.Second, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			ran := d.at
			d.change(box("a", sandbox.Running), ran)
			d.wait(10 * time.Second)
			d.book.Read("a", ran, used(3*time.Second, 0, 0), nil)
			d.flush()
			d.wait(10 * time.Second)
			d.flush() // the last sign of life
			d.wait(5*time.Hour - 20*time.Second)
			d.reopen()
			if c.then != sandbox.Deleted {
				d.change(box("a", c.then), ran)
			}
			d.book.Retain(func(sandbox.ID) bool { return c.then != sandbox.Deleted })
			d.book.Read("a", ran, used(90*time.Minute, 0, 0), nil)
			d.flush()
			d.wait(time.Minute)
			r := d.report(sandbox.UsageQuery{})
			want := int64(c.seen.Seconds())
			if c.then == sandbox.Running {
				want += 60
			}
			d.expect(r.Total, c.cpu, want*2*mib, 0, 0)
			hours := d.report(sandbox.UsageQuery{By: sandbox.ByHour})
			d.expect(hours.Total, c.cpu, want*2*mib, 0, 0)
			if c.then == sandbox.Running && len(hours.Rows) != 6 {
				t.Errorf("%d rows of hours", len(hours.Rows))
			}
		})
	}
}

// TestHours spreads a year over hours, without losing anything of it.
func TestHours(t *testing.T) {
	d := newDesk(t)
	ran := d.at.Add(30 * time.Minute)
	d.at = ran
	d.change(box("a", sandbox.Running), ran)
	var total time.Duration
	for i := range 50 {
		d.wait(37 * time.Minute)
		total += time.Duration(i)*time.Minute + time.Duration(i)
		d.book.Read("a", ran, used(total, mib, 1000), nil)
		if i%7 == 3 {
			d.flush()
		}
		if i%11 == 5 {
			d.reopen()
			d.change(box("a", sandbox.Running), ran)
		}
	}
	d.book.Read("a", ran, used(total, mib, 1000), nil) // a restart has forgotten what was not written
	span := int64(50 * 37 * 60)
	d.expect(d.report(sandbox.UsageQuery{}).Total, total, span*2*mib, span*1024, span)
	hours := d.report(sandbox.UsageQuery{By: sandbox.ByHour, Limit: 1000})
	d.expect(hours.Total, total, span*2*mib, span*1024, span)
	d.expect(hours.Rows[3].Consumption, time.Duration(hours.Rows[3].CPUMillis)*time.Millisecond, 3600*2*mib, 3600*1024, 3600)

	// A part of it: from noon for two hours.
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	part := d.report(sandbox.UsageQuery{Since: noon.Add(59 * time.Minute), Until: noon.Add(2 * time.Hour)})
	if part.Total.MemoryKiBSeconds != 2*3600*2*mib || len(part.Rows) != 1 {
		t.Errorf("two hours: %+v", part)
	}
}

func TestAccounts(t *testing.T) {
	d := newDesk(t)
	for i := range 6 {
		s := box(fmt.Sprint("box", i), sandbox.Running)
		s.Account = fmt.Sprint("team", i%2)
		d.change(s, d.at)
	}
	ran := d.at
	d.wait(10 * time.Second)
	for i := range 6 {
		d.book.Read(sandbox.ID(fmt.Sprint("box", i)), ran, used(time.Duration(i)*time.Second, 0, 0), nil)
	}
	for _, q := range []sandbox.UsageQuery{{Account: "team1"}, {Account: "team1", By: sandbox.ByHour}, {Account: "team1", Since: ran}} {
		if r := d.report(q); r.Total.CPUMillis != 9000 {
			t.Errorf("%+v: %+v", q, r)
		}
	}
	r := d.report(sandbox.UsageQuery{By: sandbox.ByAccount})
	if len(r.Rows) != 2 || r.Rows[0].Account != "team1" || r.Rows[0].CPUMillis != 9000 || r.Total.CPUMillis != 15000 {
		t.Errorf("by account: %+v", r)
	}
	if r := d.report(sandbox.UsageQuery{Limit: 2}); len(r.Rows) != 2 || r.More != 4 || r.Rows[0].Sandbox != "box5" || r.Total.CPUMillis != 15000 {
		t.Errorf("the dearest two: %+v", r)
	}
	if _, err := d.book.Report(t.Context(), sandbox.UsageQuery{Account: "team0", Sandbox: "box1"}); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another account's sandbox: %v", err)
	}
}

func TestEgressIsAbsentUntilItIsMeasured(t *testing.T) {
	d := newDesk(t)
	ran := d.at
	d.change(box("a", sandbox.Running), ran)
	d.wait(time.Second)
	d.book.Read("a", ran, used(0, 0, 0), nil)
	if r := d.report(sandbox.UsageQuery{}); r.Total.EgressBytes != nil {
		t.Errorf("egress: %d", *r.Total.EgressBytes)
	}
	for _, n := range []int64{500, 1500, 200} { // the link is another one at the end
		d.wait(time.Second)
		d.book.Read("a", ran, used(0, 0, 0), &n)
	}
	if r := d.report(sandbox.UsageQuery{}); r.Total.EgressBytes == nil || *r.Total.EgressBytes != 1700 {
		t.Errorf("egress: %+v", r.Total)
	}
}

// TestTheCostOfManyIdleOnes counts what is asked of the machine and the store.
func TestTheCostOfManyIdleOnes(t *testing.T) {
	d := newDesk(t)
	counted := &countingStore{Store: d.store}
	book, err := meter.Open(t.Context(), meter.Config{Records: counted, Clock: func() time.Time { return d.at }})
	if err != nil {
		t.Fatal(err)
	}
	d.book, d.store = book, counted
	const boxes = 500
	ran := d.at
	for i := range boxes {
		d.change(box(fmt.Sprint("box", i), sandbox.Running), ran)
	}
	reads := 0
	minute := func() {
		for range 12 {
			d.wait(5 * time.Second)
			due, _ := book.Due()
			reads += len(due)
			for _, id := range due {
				book.Read(id, ran, used(0, 0, 0), nil)
			}
			d.flush()
		}
	}
	minute()
	reads, counted.commits = 0, 0
	minute()
	if reads > 2*boxes+12 {
		t.Errorf("%d reads a minute", reads)
	}
	if most := 12 + boxes/(record.MaxOps-1) + 1; counted.commits > most {
		t.Errorf("%d transactions a minute, more than %d", counted.commits, most)
	}
}

type countingStore struct {
	record.Store
	commits int
}

func (c *countingStore) Commit(ctx context.Context, t record.Txn) (int64, error) {
	c.commits++
	return c.Store.Commit(ctx, t)
}

// TestAStoreThatFails loses nothing: the next write has it all.
func TestAStoreThatFails(t *testing.T) {
	d := newDesk(t)
	ran := d.at
	d.change(box("a", sandbox.Running), ran)
	for range 5 {
		d.wait(50 * time.Minute)
		d.book.Read("a", ran, used(d.at.Sub(ran)/10, 0, 0), nil)
		ended, end := context.WithCancel(t.Context())
		end()
		if err := d.book.Flush(ended); err == nil {
			t.Error("flushed with a context that had ended")
		}
	}
	d.flush()
	d.reopen()
	r := d.report(sandbox.UsageQuery{By: sandbox.ByHour})
	d.expect(r.Total, 25*time.Minute, 250*60*2*mib, 0, 0)
	if len(r.Rows) != 5 {
		t.Errorf("%d hours", len(r.Rows))
	}
}
