package mcpgateway

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// underway is the requests that are under way, by their session. Who ends a session
// ends them: the library would wait for them.
type underway struct {
	mu  sync.Mutex
	all map[string]map[*context.CancelFunc]bool
}

// watch notes requests while they last.
func (u *underway) watch(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		id := r.GetSession().ID()
		u.mu.Lock()
		if u.all == nil {
			u.all = map[string]map[*context.CancelFunc]bool{}
		}
		if u.all[id] == nil {
			u.all[id] = map[*context.CancelFunc]bool{}
		}
		u.all[id][&cancel] = true
		u.mu.Unlock()
		defer func() {
			u.mu.Lock()
			defer u.mu.Unlock()
			if delete(u.all[id], &cancel); len(u.all[id]) == 0 {
				delete(u.all, id)
			}
		}()
		return next(ctx, method, r)
	}
}

// end gives up the requests of a session.
func (u *underway) end(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for cancel := range u.all[id] {
		(*cancel)()
	}
}
