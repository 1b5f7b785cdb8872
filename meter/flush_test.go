package meter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/berth-dev/berth/meter"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// full is a store on a disk that is full while it says so.
type full struct {
	record.Store
	is bool
}

var errFull = errors.New("no space left on device")

func (f *full) Commit(ctx context.Context, t record.Txn) (int64, error) {
	if f.is {
		return 0, errFull
	}
	return f.Store.Commit(ctx, t)
}

// TestAFlushThatFailsIsMadeGood: once there is room again, the next flush writes what
// the one before could not: sums, hours and samples, though nothing new has come.
func TestAFlushThatFailsIsMadeGood(t *testing.T) {
	d := newDesk(t)
	disk := &full{Store: d.store}
	book, err := meter.Open(t.Context(), meter.Config{Records: disk, Clock: func() time.Time { return d.at }})
	if err != nil {
		t.Fatal(err)
	}
	d.book = book
	ran := d.at
	d.change(box("a", sandbox.Running), ran)
	d.book.Read("a", ran, used(0, 100*mib, 0), nil)
	d.wait(10 * time.Minute)
	d.book.Read("a", ran, used(3*time.Second, 100*mib, 0), nil)
	d.wait(time.Hour)
	d.book.Read("a", ran, used(7*time.Second, 100*mib, 0), nil)
	samples := len(d.book.History("a", sandbox.HistoryQuery{}))
	if samples == 0 {
		t.Fatal("there are no samples")
	}

	disk.is = true
	for range 2 {
		if err := d.book.Flush(t.Context()); !errors.Is(err, errFull) {
			t.Fatalf("flush to a full disk: %v", err)
		}
	}
	disk.is = false
	d.flush() // what is due, not all: the samples are still due

	d.reopen()
	if got := len(d.book.History("a", sandbox.HistoryQuery{})); got != samples {
		t.Errorf("%d samples are left of %d", got, samples)
	}
	if got := d.report(sandbox.UsageQuery{Sandbox: "a"}).Total.CPUMillis; got != 7000 {
		t.Errorf("%d ms of 7000 are left", got)
	}
}
