package wire

import "github.com/berth-dev/berth/sandbox"

// Exec is the body of an exec request.
type Exec struct {
	sandbox.Command
	TimeoutMS int64  `json:"timeout_ms,omitempty"` // milliseconds; 0 means none
	StdinData []byte `json:"stdin_data,omitempty"` // written to the process first; its input then ends unless stdin is true
}

// Output is the answer to an exec or an attach that waits for the end.
type Output struct {
	Process         *sandbox.Process `json:"process"`
	Exit            *sandbox.Exit    `json:"exit"`
	Encoding        string           `json:"encoding"` // of stdout and stderr: "utf-8", or "base64" when one of them is not text
	Stdout          string           `json:"stdout"`
	Stderr          string           `json:"stderr"`
	StdoutTruncated bool             `json:"stdout_truncated,omitempty"` // bytes are missing
	StderrTruncated bool             `json:"stderr_truncated,omitempty"`
}

// The values of Output.Encoding.
const (
	EncodingText   = "utf-8"
	EncodingBase64 = "base64"
)

// Signal is the body of a signal request.
type Signal struct {
	Signal string `json:"signal"` // "SIGTERM" or "15"
}

// MakeDir is the body of a mkdir request.
type MakeDir struct {
	Path    string `json:"path,omitempty"`
	PathB64 []byte `json:"path_b64,omitempty"` // in place of Path, if that is not UTF-8
	Mode    uint32 `json:"mode,omitempty"`     // permission bits; 0 means 0755
	User    string `json:"user,omitempty"`     // owner; "" means the template's
	Parents bool   `json:"parents,omitempty"`
}

// Move is the body of a move request.
type Move struct {
	From    string `json:"from,omitempty"`
	FromB64 []byte `json:"from_b64,omitempty"`
	To      string `json:"to,omitempty"`
	ToB64   []byte `json:"to_b64,omitempty"`
	Replace bool   `json:"replace,omitempty"`
}

// Files is one page of a directory.
type Files struct {
	Entries []sandbox.FileInfo `json:"entries"`
	More    bool               `json:"more"` // go on with after set to the last entry's path
}

// Processes lists the processes of a sandbox.
type Processes struct {
	Processes []sandbox.Process `json:"processes"`
}

// Templates lists templates.
type Templates struct {
	Templates []sandbox.Template `json:"templates"`
}

// Error is the body of every answer that is an error.
type Error struct {
	Error ErrorDetail `json:"error"`
}

// ErrorDetail says what went wrong.
type ErrorDetail struct {
	Code      sandbox.Kind `json:"code"`
	Message   string       `json:"message"`
	Hint      string       `json:"hint,omitempty"`
	RequestID string       `json:"request_id,omitempty"`
}
