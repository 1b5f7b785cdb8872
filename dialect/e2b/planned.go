package e2b

import "sync"

// maxPlanned is how many builds are remembered that were announced.
const maxPlanned = 1024

// planned is what was said of builds before they begin, by their ids: the tags that
// their templates are to have. It is short-lived, as builds are: a server that starts
// anew knows of none.
type planned struct {
	mu  sync.Mutex
	all map[string][]string
	old []string // in the order of coming
}

func (p *planned) add(build string, tags []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string][]string{}
	}
	if len(p.old) >= maxPlanned {
		delete(p.all, p.old[0])
		p.old = p.old[1:]
	}
	p.all[build], p.old = tags, append(p.old, build)
}

func (p *planned) tags(build string) (tags []string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	tags, ok = p.all[build]
	return tags, ok
}
