package mcpgateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// callLimit bounds one call. Clients have bounds of their own, mostly narrower.
const callLimit = 30 * time.Minute

// callTool passes calls to the tool of that name on.
func (s *server) callTool(name string) mcp.ToolHandler {
	return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		params := &mcp.CallToolParams{Name: name}
		if len(r.Params.Arguments) > 0 {
			params.Arguments = r.Params.Arguments
		}
		if token := r.Params.GetProgressToken(); token != nil {
			own, forget := s.relay.expect(ctx, r.Session, token)
			defer forget()
			params.SetProgressToken(own)
		}
		return pass(ctx, s, func(ctx context.Context, to *mcp.ClientSession) (*mcp.CallToolResult, error) {
			return to.CallTool(ctx, params)
		})
	}
}

// getPrompt passes requests for the prompt of that name on.
func (s *server) getPrompt(name string) mcp.PromptHandler {
	return func(ctx context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		params := &mcp.GetPromptParams{Name: name, Arguments: r.Params.Arguments}
		return pass(ctx, s, func(ctx context.Context, to *mcp.ClientSession) (*mcp.GetPromptResult, error) {
			return to.GetPrompt(ctx, params)
		})
	}
}

// readResource passes reads on.
func (s *server) readResource(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	params := &mcp.ReadResourceParams{URI: r.Params.URI}
	return pass(ctx, s, func(ctx context.Context, to *mcp.ClientSession) (*mcp.ReadResourceResult, error) {
		return to.ReadResource(ctx, params)
	})
}

// pass makes a call of the server's present child.
func pass[R any](ctx context.Context, s *server, call func(context.Context, *mcp.ClientSession) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	to, err := s.current(ctx)
	if err != nil {
		var none R
		return none, err
	}
	res, err := call(ctx, to)
	if cut(err) && ctx.Err() == nil {
		s.drop(to)
		return res, fmt.Errorf("server %s ended in the middle of it, and is started again: %w", s.plan.name, err)
	}
	return res, err
}

// cut reports whether a call failed because the child is gone.
func cut(err error) bool {
	return errors.Is(err, mcp.ErrConnectionClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded)
}

// drop lets calls wait for the next session, if the one that has ended is still the
// present one.
func (s *server) drop(ended *mcp.ClientSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == ended {
		s.session = nil // nobody waits for that: what they wait for is the next one
	}
}

// relay passes the progress of calls to those who asked for it, under their own tokens.
type relay struct {
	mu   sync.Mutex
	last int64
	to   map[string]waiter
}

type waiter struct {
	ctx     context.Context // of the call: it says on which stream its messages go
	session *mcp.ServerSession
	token   any
}

// expect is the token under which the child tells of a call's progress, until forget is
// called.
func (r *relay) expect(ctx context.Context, session *mcp.ServerSession, token any) (own string, forget func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	own = strconv.FormatInt(r.last, 10)
	if r.to == nil {
		r.to = map[string]waiter{}
	}
	r.to[own] = waiter{ctx, session, token}
	return own, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.to, own)
	}
}

// pass passes one message on; nobody waits for one that cannot be.
func (r *relay) pass(p *mcp.ProgressNotificationParams) {
	own, _ := p.ProgressToken.(string)
	r.mu.Lock()
	w, ok := r.to[own]
	r.mu.Unlock()
	if !ok {
		return
	}
	passed := *p
	passed.Meta, passed.ProgressToken = nil, w.token
	w.session.NotifyProgress(w.ctx, &passed)
}
