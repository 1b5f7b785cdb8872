package client

import (
	"context"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Fork makes sandboxes like one that is there, as it is at this moment. Each child
// that could not be made says why; if none could, so does Fork.
func (c *Client) Fork(ctx context.Context, id string, req sandbox.ForkRequest) (sandbox.Fork, error) {
	var f wire.Fork
	err := c.do(ctx, call{op: "fork", method: http.MethodPost, path: []string{"sandboxes", id, "fork"}, json: req}, &f)
	return f.Fork(), err
}
