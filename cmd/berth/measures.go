package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/meter"
	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/netgw"
)

// lookTime bounds one look at what metrics tell.
const lookTime = 5 * time.Second

// newMetrics gathers what the parts that are open count.
func newMetrics(log *slog.Logger, gateway *netgw.Gateway, sums *meter.Book) *metrics.Registry {
	r := metrics.New(version, log)
	askMeter(r, sums)
	askGateway(r, gateway)
	return r
}

// askEngine adds what the engine knows, which hears of the registry itself.
func askEngine(r *metrics.Registry, e *engine.Engine) {
	r.Ask(metrics.Family{Name: "berth_sandboxes", Help: "Sandboxes, by state and isolation class.", Sort: metrics.Gauge, Labels: []string{"state", "class"}},
		func() (all []metrics.Value, err error) {
			c, err := census(e)
			for k, n := range c.Count {
				all = append(all, metrics.Value{Value: float64(n), Labels: []string{string(k.State), k.Class}})
			}
			return all, err
		})
	r.Ask(metrics.Family{Name: "berth_makes", Help: "Creates, wakings and forks that are under way (running) or wait for their turn (queued).", Sort: metrics.Gauge, Labels: []string{"stage"}},
		func() ([]metrics.Value, error) {
			running, queued := e.Making()
			return []metrics.Value{{Value: float64(running), Labels: []string{"running"}}, {Value: float64(queued), Labels: []string{"queued"}}}, nil
		})
}

func census(e *engine.Engine) (engine.Census, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	return e.Census(ctx)
}

// askMeter adds the totals of all sandboxes, removed ones too.
func askMeter(r *metrics.Registry, b *meter.Book) {
	one := func(name, help string, value func() (float64, bool)) {
		r.Ask(metrics.Family{Name: name, Help: help, Sort: metrics.Counter}, func() ([]metrics.Value, error) {
			v, ok := value()
			if !ok {
				return nil, nil
			}
			return []metrics.Value{{Value: v}}, nil
		})
	}
	one("berth_cpu_seconds_total", "Processor time that sandboxes have used.", func() (float64, bool) { return float64(b.Totals().CPUMillis) / 1e3, true })
	one("berth_memory_gib_seconds_total", "Memory provisioned over time.", func() (float64, bool) { return float64(b.Totals().MemoryKiBSeconds) / (1 << 20), true })
	one("berth_memory_used_gib_seconds_total", "Memory in use over time.", func() (float64, bool) { return float64(b.Totals().MemoryUsedKiBSeconds) / (1 << 20), true })
	one("berth_disk_gb_seconds_total", "Disk occupied over time.", func() (float64, bool) { return float64(b.Totals().DiskKBSeconds) / 1e6, true })
	one("berth_egress_bytes_total", "Bytes that sandboxes have sent to the outside.", func() (float64, bool) {
		n := b.Totals().EgressBytes
		if n == nil {
			return 0, false
		}
		return float64(*n), true
	})
}

// askGateway adds what passes between sandboxes and the outside.
func askGateway(r *metrics.Registry, g *netgw.Gateway) {
	r.Ask(metrics.Family{Name: "berth_gateway_open_connections", Help: "Connections of sandboxes to the outside.", Sort: metrics.Gauge},
		func() ([]metrics.Value, error) { return []metrics.Value{{Value: float64(g.Counts().Open)}}, nil })
	r.Ask(metrics.Family{Name: "berth_gateway_connections_total", Help: "Attempts of sandboxes to connect to the outside, by what became of them.", Sort: metrics.Counter, Labels: []string{"outcome"}},
		func() ([]metrics.Value, error) {
			c := g.Counts()
			return []metrics.Value{
				{Value: float64(c.Allowed), Labels: []string{"allowed"}}, {Value: float64(c.Denied), Labels: []string{"denied"}},
				{Value: float64(c.Failed), Labels: []string{"failed"}}, {Value: float64(c.Full), Labels: []string{"full"}},
				{Value: float64(c.Cut), Labels: []string{"cut"}},
			}, nil
		})
	r.Ask(metrics.Family{Name: "berth_gateway_questions_total", Help: "Names that sandboxes asked for, by answer.", Sort: metrics.Counter, Labels: []string{"answer"}},
		func() ([]metrics.Value, error) {
			c := g.Counts()
			return []metrics.Value{
				{Value: float64(c.Questions - c.Refused), Labels: []string{"given"}}, {Value: float64(c.Refused), Labels: []string{"refused"}}}, nil
		})
	r.Ask(metrics.Family{Name: "berth_gateway_bytes_total", Help: "Bytes between sandboxes and the outside.", Sort: metrics.Counter, Labels: []string{"direction"}},
		func() ([]metrics.Value, error) {
			c := g.Counts()
			return []metrics.Value{{Value: float64(c.Sent), Labels: []string{"out"}}, {Value: float64(c.Received), Labels: []string{"in"}}}, nil
		})
}
