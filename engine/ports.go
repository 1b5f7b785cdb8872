package engine

import (
	"context"
	"maps"
	"slices"

	"github.com/berth-dev/berth/sandbox"
)

// Ports lists the ports of a sandbox on which something listens, and those that
// were shared, by number. It wakes the sandbox.
func (e *Engine) Ports(ctx context.Context, id string) ([]sandbox.Port, error) {
	const op = "list ports"
	s, l, end, err := e.using(ctx, id, shortCall)
	if err != nil {
		return nil, fail(op, known(id), err)
	}
	defer end()
	open, err := l.guest.Ports(ctx, true)
	if err != nil {
		return nil, explain(ctx, op, s, l, err)
	}
	all := map[int]sandbox.Port{}
	for _, p := range open {
		all[p.Port] = p
	}
	for n, is := range s.Shares {
		p := all[n]
		p.Port, p.HostHeader = n, is.HostHeader
		if is.isPublic(e.now()) {
			p.Public, p.PublicUntil = true, is.Until
		}
		if p.Listening || p.Public || p.HostHeader != "" {
			all[n] = p
		}
	}
	list := make([]sandbox.Port, 0, len(all))
	for _, n := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[n])
	}
	return list, nil
}
