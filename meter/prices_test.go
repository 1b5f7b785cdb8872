package meter_test

import (
	"testing"
	"time"

	"github.com/berth-dev/berth/meter"
	"github.com/berth-dev/berth/sandbox"
)

func TestMoneyIsExact(t *testing.T) {
	d := newDesk(t)
	ran := d.at
	d.change(box("a", sandbox.Running), ran)
	// Ten million readings of a microsecond more each are ten seconds.
	for i := 1; i <= 100_000; i++ {
		d.wait(10 * time.Millisecond)
		d.book.Read("a", ran, used(time.Duration(i)*100*time.Microsecond, 0, 0), nil)
	}
	r := d.report(sandbox.UsageQuery{})
	// 10 vCPU-seconds; 1,000 s of 2 GiB.
	want := sandbox.Cost{CPU: "0.000200000", Memory: "0.005000000", Disk: "0.000000000", Egress: "0.000000000", Total: "0.005200000"}
	if r.Cost != want {
		t.Errorf("cost %+v", r.Cost)
	}
}

func TestPricesAreChecked(t *testing.T) {
	for _, bad := range []string{"-1", "1e3", "0x10", "1/3", " 1", "1.", ".5", "NaN", "1.0000000000000001", "1234567890"} {
		if err := (meter.Prices{Disk: bad}).Check(); sandbox.KindOf(err) != sandbox.Invalid || sandbox.HintOf(err) == "" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, good := range []string{"", "0", "0.000020", "12.5"} {
		if err := (meter.Prices{CPU: good}).Check(); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}
