package wire

import "github.com/berth-dev/berth/sandbox"

// TerminalProtocol is the WebSocket subprotocol of a terminal. A browser, which
// can set no header, names its key as a second one.
const TerminalProtocol = "berth.v1"

// MaxTerminalControl bounds a text message of either side, in bytes.
const MaxTerminalControl = 64 << 10

// Terminals lists the terminals of a sandbox.
type Terminals struct {
	Terminals []sandbox.Terminal `json:"terminals"`
}

// TerminalControl is a text message from the client. One field is set.
type TerminalControl struct {
	Resize *sandbox.TerminalSize `json:"resize,omitempty"`
	Signal string                `json:"signal,omitempty"`
}

// TerminalNotice is a text message from the server. One field is set.
type TerminalNotice struct {
	Attached *sandbox.Terminal     `json:"attached,omitempty"`
	Seed     *sandbox.TerminalSeed `json:"seed,omitempty"`    // the next Bytes bytes of binary messages draw the screen
	Resized  *sandbox.TerminalSize `json:"resized,omitempty"` //
	Exit     *sandbox.Exit         `json:"exit,omitempty"`    // the last
	Error    *ErrorDetail          `json:"error,omitempty"`   // the last: the stream broke, the terminal may live on
}
