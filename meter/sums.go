package meter

import (
	"math/bits"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// area is an amount held over time, in units and seconds: whole ones, and
// thousandths that do not make one yet.
type area struct {
	Whole int64 `json:"w,omitempty"`
	Milli int64 `json:"m,omitempty"`
}

func (a *area) add(millis int64) {
	a.Milli += millis
	a.Whole += a.Milli / 1000
	a.Milli %= 1000
}

func (a *area) join(b area) {
	a.Whole += b.Whole
	a.add(b.Milli)
}

// sums is what was used over some time.
type sums struct {
	CPU    int64  `json:"cpu,omitempty"` // nanoseconds
	Memory area   `json:"mem,omitzero"`  // KiB, provisioned
	Used   area   `json:"used,omitzero"` // KiB
	Disk   area   `json:"disk,omitzero"` // thousands of bytes
	Egress *int64 `json:"out,omitempty"` // bytes; nil: not measured
}

func (s *sums) join(o sums) {
	s.CPU += o.CPU
	s.Memory.join(o.Memory)
	s.Used.join(o.Used)
	s.Disk.join(o.Disk)
	if o.Egress != nil {
		s.egress(*o.Egress)
	}
}

// egress adds bytes to a sum that its holder shares with nobody else.
func (s *sums) egress(n int64) {
	if s.Egress != nil {
		n += *s.Egress
	}
	s.Egress = &n
}

func (s sums) empty() bool { return s == sums{} }

func (s sums) consumption() sandbox.Consumption {
	return sandbox.Consumption{
		CPUMillis: s.CPU / int64(time.Millisecond), MemoryKiBSeconds: s.Memory.Whole,
		MemoryUsedKiBSeconds: s.Used.Whole, DiskKBSeconds: s.Disk.Whole, EgressBytes: s.Egress,
	}
}

// hourly is one hour's sums.
type hourly struct {
	Hour int64 `json:"h"` // since 1970
	sums
}

// gauge is what is kept of one sandbox: how it uses what since when, and what it
// has used before. As JSON it is a record.
type gauge struct {
	ID      sandbox.ID    `json:"id"`
	Account string        `json:"account"`
	Name    string        `json:"name,omitempty"`
	State   sandbox.State `json:"state"`
	Volume  bool          `json:"volume,omitempty"` // it is one, and no sandbox: it keeps its disk as what is stopped does
	Ended   time.Time     `json:"ended,omitzero"`   // when it was removed

	Limit int64 `json:"limit,omitempty"` // bytes of memory provisioned
	Base  int64 `json:"base,omitempty"`  // names the machine that CPU was read of
	CPU   int64 `json:"cpu,omitempty"`   // that machine's counter, in nanoseconds
	Used  int64 `json:"used,omitempty"`  // bytes of memory
	Disk  int64 `json:"disk,omitempty"`  // bytes

	At     int64    `json:"at"`               // milliseconds since 1970: the sums hold all up to then
	Part   hourly   `json:"part"`             // of the hour of At
	Before sums     `json:"before"`           // of all hours before that
	Closed []hourly `json:"closed,omitempty"` // of Before, hours that have no record of their own yet
}

const hour = int64(time.Hour / time.Millisecond)

// advance adds to the sums what was used from At up to a time: cpu nanoseconds
// and out bytes spread evenly, memory and disk as they were on the mean.
func (g *gauge) advance(to, cpu, used, disk int64, out *int64) {
	span := max(to-g.At, 0)
	left, rest := cpu, int64(0)
	if out != nil {
		rest = *out
	}
	for at := g.At; at < to; {
		if h := at / hour; h != g.Part.Hour {
			g.turn(h)
		}
		end := min(to, (at/hour+1)*hour)
		share, bytes := part(cpu, end-at, span), int64(0)
		if out != nil {
			bytes = part(*out, end-at, span)
		}
		g.hold(end-at, used, disk)
		g.Part.CPU += share
		if bytes != 0 {
			g.Part.egress(bytes)
		}
		left, rest = left-share, rest-bytes
		at = end
	}
	g.Part.CPU += left
	if out != nil {
		g.Part.egress(rest)
	}
	g.At = max(g.At, to)
}

// hold adds what is held for some milliseconds in the present state.
func (g *gauge) hold(ms, used, disk int64) {
	switch g.State {
	case sandbox.Running:
		g.Part.Memory.add(units(g.Limit, 1024) * ms)
		g.Part.Used.add(units(used, 1024) * ms)
		g.Part.Disk.add(units(disk, 1000) * ms)
	case sandbox.Paused, sandbox.Stopped:
		g.Part.Disk.add(units(disk, 1000) * ms)
	}
}

// maxClosed bounds the hours that wait for records of their own. Beyond, the
// oldest two become one.
const maxClosed = 2000

// turn begins another hour.
func (g *gauge) turn(h int64) {
	if !g.Part.empty() {
		g.Before.join(g.Part.sums)
		g.Closed = append(g.Closed, g.Part)
		if n := len(g.Closed); n > maxClosed {
			g.Closed[1].join(g.Closed[0].sums)
			g.Closed = g.Closed[1:]
		}
	}
	g.Part = hourly{Hour: h}
}

// read takes in what the machine said. out is what left it since the last read.
func (g *gauge) read(now int64, u driver.Usage, first bool, out *int64) {
	cpu := int64(u.CPU) - g.CPU
	if cpu < 0 { // another machine's counter than that of the base: it began anew
		cpu = int64(u.CPU)
	}
	used, disk := (g.Used+u.MemoryBytes)/2, (g.Disk+u.DiskBytes)/2
	if first {
		used, disk = u.MemoryBytes, u.DiskBytes
	}
	g.advance(now, cpu, used, disk, out)
	g.CPU, g.Used, g.Disk = int64(u.CPU), u.MemoryBytes, u.DiskBytes
}

// move takes in a change of the sandbox's record.
func (g *gauge) move(now int64, s *sandbox.Sandbox, ran time.Time, counted time.Duration) {
	goesOn := s.State == sandbox.Running && g.State == s.State && g.Base == ran.UnixNano() && g.Limit == s.Limits.MemoryBytes
	if !goesOn { // otherwise the next read has it all, with the processor time
		g.advance(now, 0, g.Used, g.Disk, nil)
	}
	if base := ran.UnixNano(); s.State == sandbox.Running && base != g.Base {
		g.Base, g.CPU, g.Used = base, int64(counted), 0
	}
	if s.State == sandbox.Failed || s.State == sandbox.Deleted {
		g.Used, g.Disk = 0, 0
	}
	g.Account, g.Name, g.State, g.Limit = s.Account, s.Name, s.State, s.Limits.MemoryBytes
	if s.State == sandbox.Deleted {
		g.Ended = time.UnixMilli(now).UTC()
	}
}

// clone returns a copy that shares nothing that changes.
func (g *gauge) clone() *gauge {
	c := *g
	c.Closed = append([]hourly(nil), g.Closed...)
	return &c
}

// units is how many whole units bytes make, rounded up.
func units(bytes, unit int64) int64 { return (max(bytes, 0) + unit - 1) / unit }

// part is n*some/all, rounded down. some is at most all.
func part(n, some, all int64) int64 {
	if n <= 0 || all <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n), uint64(some))
	q, _ := bits.Div64(hi, lo, uint64(all))
	return int64(q)
}
