package engine

import (
	"context"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// Stop keeps a sandbox's files alone: its processes end as when the power goes,
// after what was written has reached the disk. One that is stopped already stays
// so; one that is paused gives up its memory, and nothing of it runs for that.
func (e *Engine) Stop(ctx context.Context, id string) (sandbox.Sandbox, error) {
	return e.setAside(ctx, id, putting{op: "stop", to: sandbox.Stopped, keep: driver.KeepDisk})
}
