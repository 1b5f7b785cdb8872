package main

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/audit"
	"github.com/berth-dev/berth/netgw"
	"github.com/berth-dev/berth/sandbox"
)

// egressFlags are the operator's own rules for what leaves the sandboxes.
type egressFlags struct {
	allow, deny, resolvers []string
	flows                  int
	auditKeep              string
	auditDays              int
}

func (f *egressFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.allow, "egress-allow", nil, "network that sandboxes may reach although it is private or the host's own, such as 10.1.0.0/16")
	flags.StringSliceVar(&f.deny, "egress-deny", nil, "network that no sandbox reaches, whatever its policy says")
	flags.StringSliceVar(&f.resolvers, "resolver", nil, "address of a DNS server to ask for the sandboxes, and for proofs of domains (default: those of /etc/resolv.conf)")
	flags.IntVar(&f.flows, "egress-connections", 1024, "connections that one sandbox may have open to the outside")
	flags.StringVar(&f.auditKeep, "audit-size", "512MiB", "how much of the audit is kept, at most")
	flags.IntVar(&f.auditDays, "audit-days", 90, "how long it is kept, at most")
}

// config is what the flags say, checked.
func (f *egressFlags) config() (netgw.Config, error) {
	c := netgw.Config{Flows: f.flows}
	if f.flows < 1 || f.flows > 1<<16 {
		return c, usage("take 1 to 65536", "--egress-connections is %d", f.flows)
	}
	var err error
	if c.Total, err = openTotal(); err != nil {
		return c, err
	}
	c.Flows = min(f.flows, c.Total)
	for _, l := range []struct {
		from []string
		to   *[]netip.Prefix
	}{{f.allow, &c.Allow}, {f.deny, &c.Deny}} {
		for _, s := range l.from {
			p, err := sandbox.ParseCIDR(s)
			if err != nil {
				return c, err
			}
			*l.to = append(*l.to, p)
		}
	}
	for _, s := range f.resolvers {
		a, err := netip.ParseAddrPort(s)
		if err != nil {
			ip, aerr := netip.ParseAddr(s)
			if aerr != nil {
				return c, usage("give an address, with or without a port", "%.80q is no address of a resolver", s)
			}
			a = netip.AddrPortFrom(ip, 53)
		}
		c.Resolvers = append(c.Resolvers, a)
	}
	return c, nil
}

// lookup asks the resolvers of a configuration, each in its turn, or the system's if it
// names none.
func lookup(c netgw.Config) *net.Resolver {
	if len(c.Resolvers) == 0 {
		return net.DefaultResolver
	}
	var asked atomic.Uint64
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		next := c.Resolvers[asked.Add(1)%uint64(len(c.Resolvers))]
		return new(net.Dialer).DialContext(ctx, network, next.String())
	}}
}

// openTotal is how many connections all sandboxes may have open: each takes a
// descriptor, and half of those that the server may have are for everything else.
func openTotal() (int, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, &sandbox.Error{Op: "find the limit of open files", Kind: sandbox.Internal, Err: err}
	}
	return int(max(64, min(l.Cur/2, 64<<10))), nil
}

// openAudit opens the audit beneath a data directory.
func (f *egressFlags) openAudit(dir string) (*audit.Log, error) {
	keep, err := parseSize(f.auditKeep)
	if err != nil {
		return nil, err
	}
	if f.auditDays < 1 || f.auditDays > 3650 {
		return nil, usage("take 1 to 3650", "--audit-days is %d", f.auditDays)
	}
	return audit.Open(audit.Config{Dir: dir, Keep: keep, KeepTime: time.Duration(f.auditDays) * 24 * time.Hour})
}
