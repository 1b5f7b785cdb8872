package mcpgateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// TokenVariable is the variable of the environment that has the gateway's token. No
	// server gets it.
	TokenVariable = "GATEWAY_ACCESS_TOKEN"

	// Path is where the gateway is reached.
	Path = "/mcp"

	sessionLimit = 24 * time.Hour // from a client's last request to the end of its session
	maxSessions  = 256
	maxBody      = 16 << 20 // bytes of a request
)

// Gateway is several servers, shown as one.
type Gateway struct {
	plans  []plan
	place  *Place
	server *mcp.Server
	hub    *hub
	calls  underway

	end  context.CancelFunc
	left sync.WaitGroup
}

// New reads a configuration: an object with each server's own beneath its name.
func New(place *Place, config []byte) (*Gateway, error) {
	plans, err := parse(config)
	if err != nil {
		return nil, err
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "mcp-gateway", Version: "1"}, &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{
		Tools: &mcp.ToolCapabilities{ListChanged: true}, Prompts: &mcp.PromptCapabilities{ListChanged: true}, Resources: &mcp.ResourceCapabilities{ListChanged: true}}})
	g := &Gateway{plans: plans, place: place, server: server, hub: newHub(server, place.Log)}
	server.AddReceivingMiddleware(g.calls.watch)
	return g, nil
}

// Start installs and starts the servers, all at once, and returns when each has told
// what it has. One that cannot be started, or is not up after limit, is an error, and
// all end. Close must be called in any case.
func (g *Gateway) Start(ctx context.Context, limit time.Duration) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	g.end = end
	type start struct {
		name string
		err  error
	}
	started := make(chan start, len(g.plans))
	waiting := map[string]bool{}
	for _, p := range g.plans {
		waiting[p.name] = true
		s := newServer(p, g.place, g.hub.tell, life.Done())
		g.left.Go(func() { s.live(life, func(err error) { started <- start{p.name, err} }) })
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for len(waiting) > 0 {
		select {
		case s := <-started:
			if s.err != nil {
				return fmt.Errorf("server %s: %w", s.name, s.err)
			}
			delete(waiting, s.name)
		case <-timer.C:
			return late(waiting, limit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// late names who was too slow.
func late(waiting map[string]bool, limit time.Duration) error {
	var slow []string
	for name := range waiting {
		slow = append(slow, name)
	}
	return fmt.Errorf("not ready after %v: %s; what takes long to install belongs in a template (mcp-gateway pull)", limit, strings.Join(slow, ", "))
}

// Close ends the servers and waits for them.
func (g *Gateway) Close() {
	if g.end != nil {
		g.end()
	}
	g.left.Wait()
}

// Handler serves the gateway to whoever shows the token.
func (g *Gateway) Handler(token string) (http.Handler, error) {
	if token == "" {
		return nil, errors.New("the token is empty: set " + TokenVariable)
	}
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return g.server }, &mcp.StreamableHTTPOptions{
		SessionTimeout:               sessionLimit,
		MaxRequestBodyBytes:          maxBody,
		PropagateRequestCancellation: true, // a call that its client gave up ends in the child too
		DisableLocalhostProtection:   true, // nobody comes in without the token
	})
	want := sha256.Sum256([]byte(token))
	mux := http.NewServeMux()
	mux.HandleFunc(Path, func(w http.ResponseWriter, r *http.Request) {
		kind, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(shown)))
		switch {
		case !strings.EqualFold(kind, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the gateway's token is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
		case r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") == "" && g.crowded():
			http.Error(w, fmt.Sprintf("there are %d sessions: end one first", maxSessions), http.StatusServiceUnavailable)
		default:
			if r.Method == http.MethodDelete {
				g.calls.end(r.Header.Get("Mcp-Session-Id"))
			}
			inner.ServeHTTP(w, r)
		}
	})
	return mux, nil
}

// crowded reports whether there are as many sessions as may be.
func (g *Gateway) crowded() bool {
	n := 0
	for range g.server.Sessions() {
		n++
	}
	return n >= maxSessions
}
