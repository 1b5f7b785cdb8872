package meter

import (
	"fmt"
	"math/big"
	"regexp"

	"github.com/berth-dev/berth/sandbox"
)

// Prices are decimal numbers of dollars, such as "0.000020". An empty one means
// the default.
type Prices struct {
	CPU    string // of an active vCPU for a second; default 0.000020
	Memory string // of a GiB provisioned for a second; default 0.0000025
	Disk   string // of 10^9 bytes kept for a second; default 0
	Egress string // of 10^9 bytes sent; default 0
}

// DefaultPrices are those of a server that is told no others.
func DefaultPrices() Prices {
	return Prices{CPU: "0.000020", Memory: "0.0000025", Disk: "0", Egress: "0"}
}

// rates are the prices of the units that are counted, exact.
type rates struct {
	cpu    *big.Rat // a nanosecond
	memory *big.Rat // a KiB-second
	disk   *big.Rat // a second of 1,000 bytes
	egress *big.Rat // a byte
}

var pricePattern = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,15})?$`)

// Check reports an error of kind Invalid for the first price that is not one.
func (p Prices) Check() error {
	_, err := p.rates()
	return err
}

func (p Prices) rates() (r rates, err error) {
	d := DefaultPrices()
	for _, one := range []struct {
		name, given, fallback string
		units                 int64
		to                    **big.Rat
	}{
		{"cpu_second", p.CPU, d.CPU, 1e9, &r.cpu},
		{"memory_gib_second", p.Memory, d.Memory, 1 << 20, &r.memory},
		{"disk_gb_second", p.Disk, d.Disk, 1e6, &r.disk},
		{"egress_gb", p.Egress, d.Egress, 1e9, &r.egress},
	} {
		text := one.given
		if text == "" {
			text = one.fallback
		}
		price, ok := new(big.Rat).SetString(text)
		if !ok || !pricePattern.MatchString(text) {
			return r, &sandbox.Error{Op: "check prices", Kind: sandbox.Invalid, Err: fmt.Errorf("%s: %.40q is not a price", one.name, text),
				Hint: `a price is a decimal number of dollars in quotes, such as "0.000020"`}
		}
		*one.to = price.Quo(price, new(big.Rat).SetInt64(one.units))
	}
	return r, nil
}

// places is how many decimal places an amount of money is given with.
const places = 9

// cost prices sums, and returns the exact total beside.
func (r rates) cost(s sums) (sandbox.Cost, *big.Rat) {
	total := new(big.Rat)
	price := func(units int64, rate *big.Rat) string {
		one := new(big.Rat).SetInt64(units)
		one.Mul(one, rate)
		total.Add(total, one)
		return one.FloatString(places)
	}
	// Nothing of a unit that is not full is left out: the sums have thousandths.
	held := func(a area, rate *big.Rat) string {
		one := new(big.Rat).SetFrac64(a.Milli, 1000)
		one.Add(one, new(big.Rat).SetInt64(a.Whole))
		one.Mul(one, rate)
		total.Add(total, one)
		return one.FloatString(places)
	}
	c := sandbox.Cost{CPU: price(s.CPU, r.cpu), Memory: held(s.Memory, r.memory), Disk: held(s.Disk, r.disk)}
	var out int64
	if s.Egress != nil {
		out = *s.Egress
	}
	c.Egress = price(out, r.egress)
	c.Total = total.FloatString(places)
	return c, total
}
