package mcpgateway

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxOffer  = 2000             // entries of each kind that one server has shown
	listLimit = 30 * time.Second // for a server to tell what it has
)

// offer is what one server has.
type offer struct {
	from      *server
	tools     []*mcp.Tool
	prompts   []*mcp.Prompt
	resources []*mcp.Resource
	templates []*mcp.ResourceTemplate
}

// list asks a server what it has.
func (s *server) list(ctx context.Context, session *mcp.ClientSession) (*offer, error) {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	o := &offer{from: s}
	has := session.InitializeResult().Capabilities
	if has == nil {
		return o, nil
	}
	var err error
	if has.Tools != nil {
		if o.tools, err = gather(session.Tools(ctx, nil)); err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
	}
	if has.Prompts != nil {
		if o.prompts, err = gather(session.Prompts(ctx, nil)); err != nil {
			return nil, fmt.Errorf("prompts: %w", err)
		}
	}
	if has.Resources != nil {
		if o.resources, err = gather(session.Resources(ctx, nil)); err != nil {
			return nil, fmt.Errorf("resources: %w", err)
		}
		// Many servers that have resources know nothing of templates, and say so.
		o.templates, err = gather(session.ResourceTemplates(ctx, nil))
		if err != nil {
			o.templates = nil
		}
	}
	return o, ctx.Err()
}

// gather takes entries, but not without end. Of a server that says it has some, and then
// does not know the question, there are none.
func gather[T any](entries iter.Seq2[*T, error]) ([]*T, error) {
	var all []*T
	for e, err := range entries {
		var told *jsonrpc.Error
		if errors.As(err, &told) && told.Code == jsonrpc.CodeMethodNotFound {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if len(all) == maxOffer {
			return nil, fmt.Errorf("there are more than %d", maxOffer)
		}
		if e != nil {
			all = append(all, e)
		}
	}
	return all, nil
}
