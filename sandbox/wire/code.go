package wire

import "github.com/berth-dev/berth/sandbox"

// CodeContexts lists the contexts of a sandbox.
type CodeContexts struct {
	Contexts []sandbox.CodeContext `json:"contexts"`
}

// CodeRun is the body of a request to run code.
type CodeRun struct {
	sandbox.CodeRun
	TimeoutMS int64 `json:"timeout_ms,omitempty"` // milliseconds from its turn on; 0 means none
}

// CodeOutput is the answer to a run that waits for the end.
type CodeOutput struct {
	Run     string               `json:"run"`
	Context string               `json:"context"` // its id
	Stdout  string               `json:"stdout"`
	Stderr  string               `json:"stderr"`
	Results []sandbox.CodeResult `json:"results"`
	Error   *sandbox.CodeError   `json:"error,omitempty"`
	Missed  int64                `json:"missed,omitempty"` // events that are no longer kept
	End     *sandbox.CodeEnd     `json:"end"`
}

// Languages is the answer to which languages code may be in.
type Languages struct {
	Languages []string `json:"languages"`
}
