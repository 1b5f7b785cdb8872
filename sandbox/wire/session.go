package wire

import "github.com/berth-dev/berth/sandbox"

// Sessions lists the shell sessions of a sandbox.
type Sessions struct {
	Sessions []sandbox.Session `json:"sessions"`
}

// Cancel is the body of a request to cancel a session's commands.
type Cancel struct {
	Process string `json:"process,omitempty"` // id of one command; "" means all
}

// Cancelled is the answer to it.
type Cancelled struct {
	Cancelled int `json:"cancelled"` // commands
}
