package guestclient

import (
	"context"
	"time"

	"github.com/berth-dev/berth/guestapi"
	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// Hold keeps commands alive whose streams break within a time, at most ten
// minutes: for a machine that is about to be copied. Zero ends that; commands
// whose streams broke meanwhile are then ended.
func (c *Client) Hold(ctx context.Context, d time.Duration) error {
	_, err := call(c.to(ctx), "hold the guest's streams", c.self.Hold, &guestv1.HoldRequest{Ms: d.Milliseconds()})
	return err
}

// Loosen lets what runs now outlive its streams, however those end.
func (c *Client) Loosen(ctx context.Context) error {
	_, err := call(c.to(ctx), "loosen the guest's streams", c.self.Hold, &guestv1.HoldRequest{Loosen: true})
	return err
}

// Identify makes a copied guest that of another sandbox. What ran goes on; every
// connection but the one of this call is closed, and new ones need the new secret;
// programs may have so many FUSE file systems mounted from then on.
func (c *Client) Identify(ctx context.Context, sandboxID string, secret guestapi.Secret, hostname string, fuseMounts int64) error {
	_, err := call(c.to(ctx), "identify the guest", c.self.Identify,
		&guestv1.IdentifyRequest{SandboxId: sandboxID, Secret: secret[:], Hostname: hostname, FuseMounts: fuseMounts})
	return err
}
