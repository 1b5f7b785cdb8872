package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// Meter keeps the sums of what sandboxes use. A sandbox's machine is told from
// its earlier ones by when it began to run.
type Meter interface {
	// Change says what is to be written with a record's change. done is to be
	// called once that is on record. counted is what the machine's counter of
	// processor time showed when the sandbox came by it.
	Change(s sandbox.Sandbox, ran time.Time, counted time.Duration) (ops []record.Op, done func(), err error)
	Read(id sandbox.ID, ran time.Time, u driver.Usage, egress *int64)
	Kept(id sandbox.ID, bytes int64)
	Volume(v sandbox.Volume, removed bool) (ops []record.Op, done func(), err error) // the same for a volume
	Due() (running, aside []sandbox.ID)
	DueVolumes() []sandbox.ID
	Began(id sandbox.ID) time.Time   // when the present machine began to run; zero if none does
	CPU(id sandbox.ID) time.Duration // of its whole life, as of the last Read
	Retain(keep func(sandbox.ID) bool)
	Flush(ctx context.Context) error
	FlushAll(ctx context.Context) error // at the end
	History(id sandbox.ID, q sandbox.HistoryQuery) []sandbox.Sample
	Report(ctx context.Context, q sandbox.UsageQuery) (sandbox.UsageReport, error)
}

// Egress tells how many bytes a sandbox's link has sent to the outside since this
// process has it; false: it has none.
type Egress interface {
	EgressBytes(id sandbox.ID) (int64, bool)
}

// meterEvery is the time between two looks at what is due to be measured.
const meterEvery = 5 * time.Second

// noMeter is the meter of an engine that measures nothing.
type noMeter struct{}

func (noMeter) Change(sandbox.Sandbox, time.Time, time.Duration) ([]record.Op, func(), error) {
	return nil, func() {}, nil
}
func (noMeter) Volume(sandbox.Volume, bool) ([]record.Op, func(), error)  { return nil, func() {}, nil }
func (noMeter) DueVolumes() []sandbox.ID                                  { return nil }
func (noMeter) Read(sandbox.ID, time.Time, driver.Usage, *int64)          {}
func (noMeter) Kept(sandbox.ID, int64)                                    {}
func (noMeter) Due() (running, aside []sandbox.ID)                        { return nil, nil }
func (noMeter) Began(sandbox.ID) time.Time                                { return time.Time{} }
func (noMeter) CPU(sandbox.ID) time.Duration                              { return 0 }
func (noMeter) Retain(func(sandbox.ID) bool)                              {}
func (noMeter) Flush(context.Context) error                               { return nil }
func (noMeter) FlushAll(context.Context) error                            { return nil }
func (noMeter) History(sandbox.ID, sandbox.HistoryQuery) []sandbox.Sample { return []sandbox.Sample{} }
func (noMeter) Report(context.Context, sandbox.UsageQuery) (sandbox.UsageReport, error) {
	return sandbox.UsageReport{}, &sandbox.Error{Kind: sandbox.Unsupported, Err: fmt.Errorf("this server measures nothing"),
		Hint: "berth top shows what sandboxes use now"}
}

// Consumption sums up what sandboxes have used, removed ones too. It wakes none.
// What is said of one sandbox is as of now; of many, their processor time may be
// half a minute old.
func (e *Engine) Consumption(ctx context.Context, q sandbox.UsageQuery) (sandbox.UsageReport, error) {
	r, err := e.consumption(ctx, q)
	return r, fail("sum up usage", "", err)
}

func (e *Engine) consumption(ctx context.Context, q sandbox.UsageQuery) (r sandbox.UsageReport, err error) {
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return r, err
	}
	if q.Account != "" {
		if err := sandbox.CheckAccount(q.Account); err != nil {
			return r, err
		}
	}
	if !c.Operator {
		if q.Account != "" && q.Account != c.Account {
			return r, &sandbox.Error{Kind: sandbox.Forbidden, Err: fmt.Errorf("the key is not of account %q", q.Account), Hint: "leave the account out"}
		}
		q.Account = c.Account
	}
	if q.Sandbox != "" {
		if _, err := sandbox.ParseID(q.Sandbox); err != nil { // a name: only the living have one
			id, err := e.resolve(ctx, q.Sandbox)
			if err != nil {
				return r, err
			}
			q.Sandbox = string(id)
		}
		if l := e.held(sandbox.ID(q.Sandbox)); l != nil {
			e.measure(ctx, sandbox.ID(q.Sandbox), l)
		}
	}
	return e.meter.Report(ctx, q)
}

// keepMeter measures what is due, until the engine closes.
func (e *Engine) keepMeter() {
	tick := time.NewTicker(meterEvery)
	defer tick.Stop()
	for {
		e.measureDue(e.ctx)
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			last, cancel := bounded(e.ctx, usageTime)
			defer cancel()
			if err := e.meter.FlushAll(last); err != nil {
				e.log.Error("write what sandboxes have used", "error", err)
			}
			return
		}
	}
}

func (e *Engine) measureDue(ctx context.Context) {
	running, aside := e.meter.Due()
	for _, id := range running {
		if ctx.Err() != nil {
			return
		}
		if l := e.held(id); l != nil {
			e.measure(ctx, id, l)
		}
	}
	for _, id := range aside {
		e.measureKept(ctx, id)
	}
	for _, id := range e.meter.DueVolumes() {
		e.measureVolume(ctx, id)
	}
	e.flushMeter(ctx)
}

// flushMeter writes the sums. What cannot be written now is with the next.
func (e *Engine) flushMeter(ctx context.Context) {
	if err := e.meter.Flush(ctx); err != nil && ctx.Err() == nil {
		e.log.Error("write what sandboxes have used", "error", err, "again_in", meterEvery)
	}
}

// measure reads a machine's counters. One that has just ended has none: what it
// used was read before, or by whoever ended it.
func (e *Engine) measure(ctx context.Context, id sandbox.ID, l *live) {
	ctx, cancel := context.WithTimeout(ctx, usageTime)
	defer cancel()
	ran := e.meter.Began(id)
	u, err := l.machine.Usage(ctx)
	if err != nil || ran.IsZero() {
		return
	}
	var out *int64
	if e.egress != nil {
		if n, ok := e.egress.EgressBytes(id); ok {
			out = &n
		}
	}
	e.meter.Read(id, ran, u, out)
}

// measureKept looks at what a sandbox occupies that is put aside.
func (e *Engine) measureKept(ctx context.Context, id sandbox.ID) {
	s, err := e.load(ctx, id)
	if err != nil || s.Doing != nil {
		return // the next look finds it as it is then
	}
	k, ok := e.drivers[s.Class].(driver.Keeper)
	if !ok {
		e.meter.Kept(id, 0)
		return
	}
	bytes, err := k.Kept(ctx, id)
	if err != nil {
		e.log.Warn("measure what is kept of a sandbox", "sandbox", id, "error", err)
		return
	}
	e.meter.Kept(id, bytes)
}

// measureVolume looks at what a volume occupies.
func (e *Engine) measureVolume(ctx context.Context, id sandbox.ID) {
	if e.volumes == nil {
		return
	}
	bytes, err := e.volumes.Stored(ctx, id)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return // it is being made, or removed
	}
	if err != nil {
		e.log.Warn("measure a volume", "volume", id, "error", err)
		return
	}
	e.meter.Kept(id, bytes)
}

// openMeter tells the meter of every sandbox that is there, and begins to
// measure.
func (e *Engine) openMeter(ctx context.Context) error {
	there := map[sandbox.ID]bool{}
	err := e.each(ctx, func(s *stored) error {
		there[s.ID] = true
		_, done, err := e.meter.Change(s.Sandbox, s.Started, s.Counted)
		if err == nil {
			done() // what it changes is written with the first Flush
		}
		return err
	})
	if err != nil {
		return err
	}
	if e.volumes != nil {
		all, err := e.volumesOf(ctx, "")
		if err != nil {
			return err
		}
		for _, v := range all {
			there[v.ID] = true
			_, done, err := e.meter.Volume(v, false)
			if err != nil {
				return err
			}
			done()
		}
	}
	e.meter.Retain(func(id sandbox.ID) bool { return there[id] })
	if _, off := e.meter.(noMeter); !off {
		e.tasks.Go(e.keepMeter)
	}
	return nil
}
