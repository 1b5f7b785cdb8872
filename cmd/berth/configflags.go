package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/sandbox"
)

// doorSettings are what a file says of the server's doors and of what leaves the
// sandboxes, by the flag that says the same.
func doorSettings(c *config.File) map[string][]string {
	some := func(values ...string) []string {
		return slices.DeleteFunc(values, func(v string) bool { return v == "" })
	}
	yes := func(b bool) []string {
		if b {
			return []string{"true"}
		}
		return nil
	}
	ranges := func(all []config.Prefix) (texts []string) {
		for _, p := range all {
			texts = append(texts, p.String())
		}
		return texts
	}
	number := func(n int64, unit string) []string {
		if n == 0 {
			return nil
		}
		return []string{strconv.FormatInt(n, 10) + unit}
	}
	var handlers []string
	for _, name := range slices.Sorted(maps.Keys(c.Egress.Handlers)) {
		handlers = append(handlers, name+"="+c.Egress.Handlers[name])
	}
	return map[string][]string{
		"https-listen": some(c.HTTPS.Listen), "tls-cert": some(c.HTTPS.Certificate), "tls-key": some(c.HTTPS.Key),
		"preview-url": some(c.HTTPS.PreviewURL),
		"acme":        yes(c.ACME.Enabled), "acme-email": some(c.ACME.Email), "acme-directory": some(c.ACME.Directory), "acme-roots": some(c.ACME.Roots),
		"egress-allow": ranges(c.Egress.Allow), "egress-deny": ranges(c.Egress.Deny), "resolver": c.Egress.Resolvers,
		"egress-connections": number(int64(c.Egress.Connections), ""), "egress-ca": c.Egress.Authorities,
		"handler": handlers, "handler-urls": yes(c.Egress.HandlerURLs),
		"audit-size": number(int64(c.Audit.Size), "B"), "audit-days": number(int64(c.Audit.Days), ""),
	}
}

// settle takes from a file what no flag says. A list of flags replaces the file's.
func settle(flags *pflag.FlagSet, settings map[string][]string) error {
	for name, values := range settings {
		flag := flags.Lookup(name)
		if flag == nil {
			return sandbox.Errorf("read configuration", sandbox.Internal, "there is no flag --%s", name)
		}
		if flag.Changed || len(values) == 0 {
			continue
		}
		err := error(nil)
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			err = list.Replace(values)
		} else {
			err = flag.Value.Set(cmp.Or(values...))
		}
		if err != nil {
			return &sandbox.Error{Op: "read configuration", Kind: sandbox.Invalid, Err: fmt.Errorf("--%s: %w", name, err)}
		}
	}
	return nil
}
