package config

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Duration is a time such as "60s" or "1h30m", of at least 0. It is no number: which
// unit a number would be of is anybody's guess.
type Duration struct{ time.Duration }

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil || v < 0 {
		return fmt.Errorf("%.40q is not a time such as \"60s\" or \"1h30m\"", b)
	}
	d.Duration = v
	return nil
}

// Size is a number of bytes such as "512MiB" or "20GB".
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  float64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}, {"", 1},
}

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(b []byte) error {
	text := strings.TrimSpace(string(b))
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if n := v * u.bytes; err == nil && n >= 0 && n < math.MaxInt64 {
			*s = Size(n)
			return nil
		}
		break
	}
	return fmt.Errorf("%.40q is not a size such as \"512MiB\" or \"20GB\"", b)
}

// Prefix is a range of addresses such as "10.1.0.0/16", or one address.
type Prefix struct{ netip.Prefix }

// UnmarshalText reads a range.
func (p *Prefix) UnmarshalText(b []byte) error {
	if a, err := netip.ParseAddr(string(b)); err == nil && a.Zone() == "" {
		p.Prefix = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
		return nil
	}
	v, err := netip.ParsePrefix(string(b))
	if err != nil || v != v.Masked() || v.Addr().Is4In6() {
		return fmt.Errorf("%.60q is not a range of addresses such as \"10.1.0.0/16\"", b)
	}
	p.Prefix = v
	return nil
}
