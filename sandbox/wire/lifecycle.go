package wire

import "github.com/berth-dev/berth/sandbox"

// KeepAlive is the body that keeps a sandbox from being idle.
type KeepAlive struct {
	Seconds int64 `json:"seconds"` // 0: it is not idle now
}

// Webhooks is the answer that lists them.
type Webhooks struct {
	Webhooks []sandbox.Webhook `json:"webhooks"`
}
