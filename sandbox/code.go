package sandbox

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// CodeContext is an interpreter that remembers what it ran: a Jupyter kernel in a
// sandbox, and the runs that wait for it.
type CodeContext struct {
	ID       string    `json:"id"`   // "k" and a number; unique in its sandbox, never used again
	Name     string    `json:"name"` // unique among a sandbox's contexts
	Language string    `json:"language"`
	Kernel   string    `json:"kernel"` // name of its kernelspec
	Cwd      string    `json:"cwd"`    // that its kernel is started in
	User     string    `json:"user"`
	State    CodeState `json:"state"`
	Reason   string    `json:"reason,omitempty"` // why its last kernel ended, if it did not by itself or by a restart
	PID      int       `json:"pid,omitempty"`    // of its kernel; 0 while it has none
	Running  string    `json:"running,omitempty"`
	Queued   int       `json:"queued"`   // runs that wait for their turn
	Runs     int64     `json:"runs"`     // that have ended
	Restarts int64     `json:"restarts"` // kernels that were lost or restarted
	Created  time.Time `json:"created"`
	Used     time.Time `json:"used"` // when a run last began or ended
}

// CodeState is what a context's kernel does.
type CodeState string

const (
	CodeStarting CodeState = "starting"
	CodeIdle     CodeState = "idle"
	CodeBusy     CodeState = "busy"
	CodeDead     CodeState = "dead" // it has ended; the next run starts it anew
)

// CodeTemplate is the template that has kernels for code. It is built on request.
const CodeTemplate = "code-interpreter"

// BucketTemplate is the template that has the program s3fs, which mounts buckets. It is built
// on request.
const BucketTemplate = "bucket-mounts"

// MCPTemplate is the template that has the gateway of MCP servers. It is built on request.
const MCPTemplate = "mcp-gateway"

// DefaultLanguage is that of code that does not say another.
const DefaultLanguage = "python"

// codeLanguages gives languages the names that they have here.
var codeLanguages = map[string]string{
	"py": "python", "python3": "python", "ipython": "python", "js": "javascript", "node": "javascript", "ts": "typescript",
	"deno": "typescript", "sh": "bash", "shell": "bash",
}

// Language is the name that a language has here: lower case, and one of several
// names for the same.
func Language(name string) string {
	name = strings.ToLower(name)
	if n, ok := codeLanguages[name]; ok {
		return n
	}
	return name
}

// Bounds on code, beyond which it is Invalid.
const (
	MaxCode        = 3 << 20            // bytes of one run
	MaxCodeTimeout = 7 * 24 * time.Hour // of one run
)

// CodeOptions are of a new context.
type CodeOptions struct {
	Name     string            `json:"name,omitempty"`     // "" means its id
	Language string            `json:"language,omitempty"` // "" means python
	Cwd      string            `json:"cwd,omitempty"`      // absolute; "" means the template's
	Env      map[string]string `json:"env,omitempty"`      // added to the sandbox's own
	User     string            `json:"user,omitempty"`     // name or uid inside; "" means the template's
}

var (
	codeName     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	codeID       = regexp.MustCompile(`^k[0-9]{1,18}$`)
	codeRunID    = regexp.MustCompile(`^r[0-9]{1,18}$`)
	codeLanguage = regexp.MustCompile(`^[a-z][a-z0-9+#._-]{0,31}$`)
)

// IsCodeRunID reports whether s has the form of a run's id.
func IsCodeRunID(s string) bool { return codeRunID.MatchString(s) }

// IsCodeContextID reports whether s has the form of a context's id, not a name's.
func IsCodeContextID(s string) bool { return codeID.MatchString(s) }

// CheckCodeContext reports an error of kind Invalid unless s can be the id or the
// name of a context.
func CheckCodeContext(s string) error {
	if !codeName.MatchString(s) {
		return &Error{Op: "check context", Kind: Invalid, Err: fmt.Errorf("%.80q is not a context's id or name", s),
			Hint: "a name has 1 to 64 characters of A-Z a-z 0-9 . _ - and starts with a letter or a digit"}
	}
	return nil
}

func checkLanguage(s string) error {
	if !codeLanguage.MatchString(Language(s)) {
		return &Error{Op: "check language", Kind: Invalid, Err: fmt.Errorf("%.80q is not a language", s),
			Hint: "such as python, javascript, typescript, bash or r"}
	}
	return nil
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (o *CodeOptions) Check() error {
	if o.Name != "" {
		if err := CheckCodeContext(o.Name); err != nil {
			return err
		}
		if IsCodeContextID(o.Name) {
			return &Error{Op: "check context", Kind: Invalid, Err: fmt.Errorf("the name %q has the form of an id", o.Name), Hint: "take another name"}
		}
	}
	if o.Language != "" {
		if err := checkLanguage(o.Language); err != nil {
			return err
		}
	}
	c := Command{Shell: "-", Cwd: o.Cwd, Env: o.Env, User: o.User}
	return c.Check()
}

// CodeRun is code to run in a context.
type CodeRun struct {
	Code    string            `json:"code"`
	Context string            `json:"context,omitempty"` // id or name; "" means the language's own, made at its first use
	Env     map[string]string `json:"env,omitempty"`     // of this run alone
	Timeout time.Duration     `json:"-"`                 // from its turn on; then it is interrupted, and killed if that does not end it. 0 means none

	// Language picks the context if Context is "". Beside Context it must be that
	// context's language.
	Language string `json:"language,omitempty"`

	// Detach lets the run go on when the stream that started it ends. Without it
	// the guest then interrupts it.
	Detach bool `json:"detach,omitempty"`
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (r *CodeRun) Check() error {
	const op = "check code"
	switch {
	case len(r.Code) > MaxCode:
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("it has %d bytes, at most %d are taken", len(r.Code), MaxCode),
			Hint: "write data to a file, and read it in the code"}
	case r.Timeout < 0 || r.Timeout > MaxCodeTimeout:
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("timeout %v is out of range", r.Timeout), Hint: "leave it out for none"}
	}
	if r.Context != "" {
		if err := CheckCodeContext(r.Context); err != nil {
			return err
		}
	}
	if r.Language != "" {
		if err := checkLanguage(r.Language); err != nil {
			return err
		}
	}
	return CheckEnv(r.Env)
}

// CodeEvent is one thing that a run did, in order. Which fields are set its type
// says.
type CodeEvent struct {
	Type CodeEventType `json:"type"`
	Seq  int64         `json:"seq"` // counts from 1 in each run; the start has 0. AttachCode goes on after one
	Time time.Time     `json:"time"`

	Run     string `json:"run,omitempty"`     // CodeStarted: its id
	Context string `json:"context,omitempty"` // CodeStarted: the id of its context

	Text   string      `json:"text,omitempty"`   // CodeStdout, CodeStderr
	Result *CodeResult `json:"result,omitempty"` // CodeShown
	Error  *CodeError  `json:"error,omitempty"`  // CodeRaised
	Missed int64       `json:"missed,omitempty"` // CodeMissed: events that are no longer kept
	End    *CodeEnd    `json:"end,omitempty"`    // CodeEnded
}

// CodeEventType says what an event is.
type CodeEventType string

const (
	CodeStarted CodeEventType = "started" // the first of each stream; the run may wait for its turn after that
	CodeStdout  CodeEventType = "stdout"
	CodeStderr  CodeEventType = "stderr"
	CodeShown   CodeEventType = "result"
	CodeRaised  CodeEventType = "error"
	CodeClear   CodeEventType = "clear" // what was shown so far is to be taken off the screen
	CodeMissed  CodeEventType = "missed"
	CodeEnded   CodeEventType = "end" // always the last
)

// CodeResult is something that a run showed, in one form or several. All forms
// together have at most MaxCodeResult bytes.
type CodeResult struct {
	Main       bool            `json:"main"` // the value of the code's last expression
	Text       string          `json:"text,omitempty"`
	HTML       string          `json:"html,omitempty"`
	Markdown   string          `json:"markdown,omitempty"`
	SVG        string          `json:"svg,omitempty"`
	PNG        string          `json:"png,omitempty"`  // base64, as PDF and JPEG
	JPEG       string          `json:"jpeg,omitempty"` //
	PDF        string          `json:"pdf,omitempty"`  //
	LaTeX      string          `json:"latex,omitempty"`
	JavaScript string          `json:"javascript,omitempty"`
	JSON       json.RawMessage `json:"json,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`  // of a data frame: {"column": [values]}
	Chart      json.RawMessage `json:"chart,omitempty"` // of a figure: see docs/code.md

	Extra     map[string]json.RawMessage `json:"extra,omitempty"`      // by media type, whatever else there is
	DisplayID string                     `json:"display_id,omitempty"` // of what may be shown anew
	Update    bool                       `json:"update,omitempty"`     // it takes the place of what had its display id
	Omitted   map[string]int64           `json:"omitted,omitempty"`    // media types that were too large, with their bytes
}

// MaxCodeResult bounds the forms of one result, in bytes, all together.
const MaxCodeResult = 16 << 20

// CodeError is what code raised and did not catch.
type CodeError struct {
	Name      string   `json:"name"`
	Value     string   `json:"value"`
	Traceback []string `json:"traceback"` // lines, which may have colours of a terminal
}

// CodeEnd is how a run ended.
type CodeEnd struct {
	Status CodeStatus `json:"status"`
	Count  int64      `json:"count,omitempty"`  // of the runs that the kernel has counted; 0 means it counted none
	Reason string     `json:"reason,omitempty"` // for people, of any status but ok and error
}

// CodeStatus says how a run ended.
type CodeStatus string

const (
	CodeOK          CodeStatus = "ok"
	CodeFailed      CodeStatus = "error"       // it raised an error
	CodeInterrupted CodeStatus = "interrupted" // by whoever asked for it, or because its stream ended
	CodeTimedOut    CodeStatus = "timed_out"
	CodeCancelled   CodeStatus = "cancelled" // before its turn
	CodeDied        CodeStatus = "died"      // its kernel ended
)

// CodeEvents is the stream of a run. Recv returns io.EOF after the end, and is for
// one goroutine at a time; Close may be called at any time, twice too.
type CodeEvents interface {
	Recv() (CodeEvent, error)
	Close() error
}
