package sandbox

import (
	"fmt"
	"strings"
	"time"
)

// Command is what to run in a sandbox.
type Command struct {
	Argv    []string          `json:"argv,omitempty"`  // program and arguments; or
	Shell   string            `json:"shell,omitempty"` // a line for "bash -lc"; exactly one of the two is set
	Name    string            `json:"name,omitempty"`  // the caller's own name for the process, unique among the live
	Env     map[string]string `json:"env,omitempty"`   // added to the sandbox's own
	Cwd     string            `json:"cwd,omitempty"`   // absolute; "" means the template's
	User    string            `json:"user,omitempty"`  // name or uid inside; "" means the template's
	Stdin   bool              `json:"stdin,omitempty"` // input will be sent; otherwise the process reads an end of file
	Timeout time.Duration     `json:"-"`               // after it the whole process tree is killed; 0 means none

	// Merge sends standard error into the stream of standard output.
	Merge bool `json:"merge,omitempty"`

	// Lossless makes the process wait for the stream that started it, as a pipe
	// would. Without it the guest keeps the newest output only (a bounded log)
	// and tells a slow reader what it missed.
	Lossless bool `json:"lossless,omitempty"`

	// Detach lets the process live on when the stream that started it ends.
	// Without it the guest then kills the process tree.
	Detach bool `json:"detach,omitempty"`
}

// Bounds on a Command; beyond them it is Invalid.
const (
	MaxArgs      = 16384
	MaxArgBytes  = 1 << 20 // of argv or shell, all together
	MaxEnvBytes  = 1 << 20 // of names and values, all together
	MaxPathBytes = 4096
)

// Check reports an error of kind Invalid for the first thing that is wrong.
func (c *Command) Check() error {
	invalid := func(hint, format string, args ...any) error {
		e := Errorf("check command", Invalid, format, args...)
		e.Hint = hint
		return e
	}
	if (len(c.Argv) == 0) == (c.Shell == "") {
		return invalid("give argv (a program and its arguments) or shell (one line for bash)", "need exactly one of argv and shell")
	}
	if len(c.Argv) > 0 && c.Argv[0] == "" {
		return invalid("argv[0] is the program", "argv[0] is empty")
	}
	if n := len(c.Argv); n > MaxArgs {
		return invalid("write the arguments to a file and pass its path", "argv has %d entries, at most %d are taken", n, MaxArgs)
	}
	size := len(c.Shell)
	for _, a := range c.Argv {
		size += len(a) + 1
	}
	if size > MaxArgBytes {
		return invalid("write the data to a file, or send it as input", "the command has %d bytes, at most %d are taken", size, MaxArgBytes)
	}
	if err := CheckEnv(c.Env); err != nil {
		return err
	}
	for _, a := range append([]string{c.Shell, c.User, c.Name}, c.Argv...) {
		if strings.ContainsAny(a, "\x00") {
			return invalid("", "the command holds a NUL byte")
		}
	}
	if c.Cwd != "" {
		if err := CheckPath(c.Cwd); err != nil {
			return err
		}
	}
	if c.Timeout < 0 {
		return invalid("leave the timeout out for none", "timeout %v is negative", c.Timeout)
	}
	return nil
}

// CheckEnv reports an error of kind Invalid unless every name and value can be
// given to a process and all together have at most MaxEnvBytes.
func CheckEnv(env map[string]string) error {
	size := 0
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsAny(v, "\x00") {
			return &Error{Op: "check environment", Kind: Invalid, Err: fmt.Errorf("variable %.80q is malformed", k),
				Hint: "a name has no '=' and neither has a NUL"}
		}
		size += len(k) + len(v) + 2
	}
	if size > MaxEnvBytes {
		return &Error{Op: "check environment", Kind: Invalid,
			Err: fmt.Errorf("it has %d bytes, at most %d are taken", size, MaxEnvBytes), Hint: "write the data to a file"}
	}
	return nil
}

// CheckPath reports an error of kind Invalid unless p is an absolute path of at
// most MaxPathBytes without a NUL.
func CheckPath(p string) error {
	switch {
	case p == "" || p[0] != '/':
		return &Error{Op: "check path", Kind: Invalid, Err: fmt.Errorf("path %.200q is not absolute", p),
			Hint: "give the whole path, such as /workspace/file"}
	case len(p) > MaxPathBytes:
		return Errorf("check path", Invalid, "the path has %d bytes, at most %d are taken", len(p), MaxPathBytes)
	case strings.ContainsAny(p, "\x00"):
		return Errorf("check path", Invalid, "the path holds a NUL byte")
	}
	return nil
}

// Stream tells the outputs of a process apart.
type Stream string

const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Event is one thing that a process did, in order. Exactly one of Started,
// Data, Missed and Exit is set.
type Event struct {
	Started *Process `json:"started,omitempty"` // always the first event

	Stream Stream `json:"stream,omitempty"` // of Data and Missed
	Offset int64  `json:"offset,omitempty"` // bytes of this stream before Data or before the gap
	Data   []byte `json:"data,omitempty"`   // passed through unchanged, whatever bytes they are
	Missed int64  `json:"missed,omitempty"` // bytes that are no longer kept, from Offset on

	Exit *Exit `json:"exit,omitempty"` // always the last event
}

// Offsets says from which byte of each output to go on: what the reader has.
type Offsets struct {
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
}

// WriteOptions says how a file is written. A write is atomic, the path holding
// the old bytes or all of the new ones, unless InPlace, Append or At is set, of
// which at most one may be.
type WriteOptions struct {
	User    string // owner of new files and folders; "" means the template's
	Mode    uint32 // permission bits; 0 keeps an existing file's, or means 0644
	Parents bool   // make missing folders above it

	InPlace bool   // empty the file and write the bytes into it: for whoever has it open or watches it, it stays the same one
	Append  bool   // add the bytes behind the end of the file
	At      *int64 // or write them into it from this byte on, 0 or more, keeping what lies around
}
