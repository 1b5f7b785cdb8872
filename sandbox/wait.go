package sandbox

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// LineWait is a line to wait for in a process's output. Text is found as soon
// as its last byte is written; Regexp is tried on whole lines, and on an
// unfinished last one when the process ends. Of a line of more than 64 KiB each
// part of that size counts as one.
type LineWait struct {
	Text    string        // a part of the line; or
	Regexp  string        // RE2; exactly one of the two is set, of at most MaxPattern bytes
	Stream  Stream        // "" means either
	From    Offsets       // where to begin; what is no longer kept is passed over
	Timeout time.Duration // then the error is of kind Timeout; 0 means none
}

// MaxPattern bounds the bytes of a text or expression to wait for.
const MaxPattern = 4096

// Check reports an error of kind Invalid for the first thing that is wrong.
func (w *LineWait) Check() error {
	const op = "check line"
	switch {
	case (w.Text == "") == (w.Regexp == ""):
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("need exactly one of text and regexp"), Hint: "give a part of the line, or an expression"}
	case len(w.Text) > MaxPattern || len(w.Regexp) > MaxPattern:
		return Errorf(op, Invalid, "the pattern has more than %d bytes", MaxPattern)
	case strings.ContainsAny(w.Text, "\n"):
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("the text has several lines"), Hint: "wait for the last of them"}
	case w.Stream != "" && w.Stream != Stdout && w.Stream != Stderr:
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("%.40q is not a stream", w.Stream), Hint: "a stream is stdout or stderr"}
	case w.From.Stdout < 0 || w.From.Stderr < 0:
		return Errorf(op, Invalid, "the offsets %d and %d must not be negative", w.From.Stdout, w.From.Stderr)
	case w.Timeout < 0:
		return Errorf(op, Invalid, "timeout %v is negative", w.Timeout)
	}
	if _, err := regexp.Compile(w.Regexp); err != nil {
		return &Error{Op: op, Kind: Invalid, Err: err, Hint: "expressions are those of RE2"}
	}
	return nil
}

// Line is one line that a process wrote.
type Line struct {
	Stream Stream `json:"stream"`
	Offset int64  `json:"offset"` // of its first byte in the stream
	Text   string `json:"text"`   // as far as it was written, without its end; any bytes
}

// PortWait is a port inside a sandbox to wait for.
type PortWait struct {
	Port    int           // 1 to 65535
	Path    string        // asked for with HTTP, such as "/health"; "" means that a connection is enough
	Status  int           // that the answer must have, 100 to 599; 0 means 200 to 399
	Timeout time.Duration // then the error is of kind Timeout; 0 means none
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (w *PortWait) Check() error {
	const op = "check port"
	switch {
	case w.Port < 1 || w.Port > 65535:
		return Errorf(op, Invalid, "%d is not a port", w.Port)
	case w.Path != "" && (w.Path[0] != '/' || len(w.Path) > MaxPathBytes || strings.ContainsFunc(w.Path, func(r rune) bool { return r <= ' ' || r == 0x7f })):
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("%.80q is not a path", w.Path), Hint: "a path looks like /health"}
	case w.Status != 0 && (w.Path == "" || w.Status < 100 || w.Status > 599):
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("status %d", w.Status), Hint: "a status is from 100 to 599, and needs a path"}
	case w.Timeout < 0:
		return Errorf(op, Invalid, "timeout %v is negative", w.Timeout)
	}
	return nil
}

// PortAnswer is what answered at a port.
type PortAnswer struct {
	Address string `json:"address"`          // inside, such as "127.0.0.1:8080"
	Status  int    `json:"status,omitempty"` // of HTTP
}
