package wire

import "github.com/berth-dev/berth/sandbox"

// Ports lists ports of a sandbox.
type Ports struct {
	Ports []sandbox.Port `json:"ports"`
}

// Domains lists domains.
type Domains struct {
	Domains []sandbox.Domain `json:"domains"`
}
