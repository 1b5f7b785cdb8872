package main

import (
	"math"
	"os"
	"strconv"
	"strings"
)

// parseEnv reads NAME=VALUE and NAME, which takes the value from this program's
// own environment.
func parseEnv(entries []string) (map[string]string, error) {
	const hint = "give NAME=VALUE, or NAME alone to pass on a variable of your own"
	env := make(map[string]string, len(entries))
	for _, e := range entries {
		name, value, given := strings.Cut(e, "=")
		if name == "" {
			return nil, usage(hint, "%q is no environment variable", e)
		}
		if !given {
			own, ok := os.LookupEnv(name)
			if !ok {
				return nil, usage(hint, "%s is not set here", name)
			}
			value = own
		}
		env[name] = value
	}
	return env, nil
}

// parsePairs reads KEY=VALUE entries.
func parsePairs(what string, entries []string) (map[string]string, error) {
	pairs := make(map[string]string, len(entries))
	for _, e := range entries {
		key, value, ok := strings.Cut(e, "=")
		if !ok || key == "" {
			return nil, usage("give KEY=VALUE", "%q is no %s", e, what)
		}
		pairs[key] = value
	}
	return pairs, nil
}

// units of sizes: both spellings of the binary ones, as memory is counted.
var units = []struct {
	suffix string
	bytes  float64
}{
	{"tib", 1 << 40}, {"gib", 1 << 30}, {"mib", 1 << 20}, {"kib", 1 << 10},
	{"t", 1 << 40}, {"g", 1 << 30}, {"m", 1 << 20}, {"k", 1 << 10},
	{"b", 1}, {"", 1},
}

// parseSize reads "2GiB", "512m" or a number of bytes. "" is 0.
func parseSize(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	low := strings.ToLower(strings.TrimSpace(s))
	for _, u := range units {
		number, ok := strings.CutSuffix(low, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if size := v * u.bytes; err == nil && size >= 1 && size < math.MaxInt64 {
			return int64(size), nil
		}
		break
	}
	return 0, usage("give it as 512MiB or 2GiB", "%q is no size", s)
}

// parseCPU reads cores as "0.5" or "2", or thousandths of one as "500m". "" is 0.
func parseCPU(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	number, scale := s, 1000.0
	if milli, ok := strings.CutSuffix(s, "m"); ok {
		number, scale = milli, 1
	}
	v, err := strconv.ParseFloat(number, 64)
	if v *= scale; err != nil || !(v >= 1) || v > 1e9 {
		return 0, usage("give cores, as 0.5 or 2", "%q is no amount of CPU", s)
	}
	return int64(math.Round(v)), nil
}

// size writes bytes for people: "512 MiB", "1.5 GiB".
func size(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if v /= 1024; v < 1023.95 {
			break
		}
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + " " + unit
}
