package sandbox

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Bounds on what builds a template.
const (
	MaxBuildSteps  = 1000
	MaxDockerfile  = 1 << 20 // bytes
	MaxBuildArgs   = 256
	MaxBuildNames  = 32 // beside the first
	MaxCopySources = 256
	MaxReady       = 3600 // seconds that a template may take to be ready
)

// DefaultReady is how long, in seconds, a template may take to be ready when the
// request does not say.
const DefaultReady = 60

// BuildStage is one root on the way to a template: what it begins with, and what
// is done to it, in order.
type BuildStage struct {
	Name  string      `json:"name,omitempty"`
	From  string      `json:"from"` // as BuildRequest.From, or StageFrom of an earlier one
	Steps []BuildStep `json:"steps,omitempty"`
}

// StageFrom is the From of a stage that goes on with the n-th one, from 0.
func StageFrom(n int) string { return fmt.Sprintf("stage:%d", n) }

// FromScratch is the From of an empty root.
const FromScratch = "scratch"

// BuildStep is one thing that is done to a root. Exactly one field is set.
type BuildStep struct {
	Run     *RunStep          `json:"run,omitempty"`
	Copy    *CopyStep         `json:"copy,omitempty"`
	Env     map[string]string `json:"env,omitempty"`      // of the steps that follow, and of the template
	Workdir string            `json:"workdir,omitempty"`  // the same; made if it is not there
	User    string            `json:"user,omitempty"`     // the same
	NewUser bool              `json:"new_user,omitempty"` // User is made, with a home and sudo, if there is none of that name
	Text    string            `json:"text,omitempty"`     // what people call it; may stand beside any
}

// RunStep is a command that runs in a sandbox of the root as it is so far.
type RunStep struct {
	Argv []string          `json:"argv"`
	User string            `json:"user,omitempty"` // "" means that of the steps before
	Env  map[string]string `json:"env,omitempty"`  // of this step alone
}

// CopyStep puts files into the root.
type CopyStep struct {
	Sources []string `json:"sources"`           // paths in what is copied from, with * and ? and [a-z]
	To      string   `json:"to"`                // a folder if it ends with a slash or if there are several sources
	From    string   `json:"from,omitempty"`    // StageFrom of an earlier stage, or an uploaded context; "" means the request's
	Owner   string   `json:"owner,omitempty"`   // "name", "uid" or "uid:gid"; "" means root
	Mode    *uint32  `json:"mode,omitempty"`    // of files and folders; nil keeps theirs
	Extract bool     `json:"extract,omitempty"` // sources that are tar streams, packed with gzip or not, become what they hold
	Inline  []Inline `json:"inline,omitempty"`  // files whose bytes stand here, beside Sources
}

// Inline is a file that a step brings along.
type Inline struct {
	Name string `json:"name"` // a single name, no path
	Data string `json:"data"`
}

// AsFolder reports whether To is a folder whatever is there.
func (c *CopyStep) AsFolder() bool {
	return strings.HasSuffix(c.To, "/") || len(c.Sources)+len(c.Inline) > 1
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (s *BuildStep) Check() error {
	n := 0
	for _, set := range []bool{s.Run != nil, s.Copy != nil, s.Env != nil, s.Workdir != "", s.User != ""} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return &Error{Op: "check step", Kind: Invalid, Err: fmt.Errorf("it says %d things", n), Hint: "a step has one of run, copy, env, workdir and user"}
	case s.Run != nil:
		c := Command{Argv: s.Run.Argv, Env: s.Run.Env, User: s.Run.User}
		return c.Check()
	case s.Copy != nil:
		return s.Copy.check()
	case s.Env != nil:
		return CheckEnv(s.Env)
	case s.Workdir != "":
		return CheckPath(s.Workdir)
	}
	c := Command{Shell: "-", User: s.User}
	return c.Check()
}

var contextPattern = regexp.MustCompile(`^(sha256:[0-9a-f]{64}|[a-z0-9][a-z0-9._-]{0,127})$`)

// CheckContext reports an error of kind Invalid unless s can name an uploaded
// context: the digest of its bytes, or 1 to 128 characters of [a-z0-9._-].
func CheckContext(s string) error {
	if !contextPattern.MatchString(s) {
		return &Error{Op: "check context", Kind: Invalid, Err: fmt.Errorf("%.80q is not a context", s),
			Hint: "upload a tar stream first; it is named by the digest of its bytes, sha256:<64 hex digits>, or as you called it"}
	}
	return nil
}

func (c *CopyStep) check() error {
	switch {
	case len(c.Sources)+len(c.Inline) == 0 || len(c.Sources)+len(c.Inline) > MaxCopySources:
		return Errorf("check copy", Invalid, "%d sources, 1 to %d are taken", len(c.Sources)+len(c.Inline), MaxCopySources)
	case len(c.To) > MaxPathBytes || strings.ContainsRune(c.To, 0) || c.To == "":
		return Errorf("check copy", Invalid, "the destination %.80q is no path", c.To)
	case c.Mode != nil && *c.Mode > 0o7777:
		return Errorf("check copy", Invalid, "mode %o is out of range, 0 to 7777 are taken", *c.Mode)
	case c.From != "" && !strings.HasPrefix(c.From, "stage:"):
		return CheckContext(c.From)
	}
	for _, f := range c.Inline {
		if f.Name == "" || f.Name == "." || f.Name == ".." || strings.ContainsAny(f.Name, "/\x00") {
			return Errorf("check copy", Invalid, "%.80q is not a file's name", f.Name)
		}
	}
	for _, s := range c.Sources {
		if len(s) > MaxPathBytes || strings.ContainsRune(s, 0) {
			return Errorf("check copy", Invalid, "the source %.80q is no path", s)
		}
	}
	return nil
}

// Staged reports whether the request does more than take a root as it is.
func (r *BuildRequest) Staged() bool {
	return len(r.Steps) > 0 || r.Dockerfile != "" || r.Start != "" || r.Limits != nil || strings.HasPrefix(r.From, "template:") || r.From == FromScratch ||
		len(r.Entrypoint)+len(r.Cmd) > 0 || r.User+r.Workdir != ""
}

func (r *BuildRequest) checkImages() error {
	if len(r.Images) > MaxBuildArgs {
		return Errorf("check build", Invalid, "%d images, at most %d are taken", len(r.Images), MaxBuildArgs)
	}
	for image, name := range r.Images {
		if err := CheckName(name); err != nil {
			return &Error{Op: fmt.Sprintf("check the template of %.80q", image), Err: err}
		}
	}
	return nil
}

// checkStaged checks what only such a request says.
func (r *BuildRequest) checkStaged() error {
	const op = "check build"
	switch {
	case len(r.Dockerfile) > MaxDockerfile:
		return Errorf(op, Invalid, "the Dockerfile has %d bytes, at most %d are taken", len(r.Dockerfile), MaxDockerfile)
	case r.Dockerfile != "" && (r.From != "" || len(r.Steps) > 0):
		return &Error{Op: op, Kind: Invalid, Err: errors.New("a Dockerfile says what to begin with and what to do"), Hint: "leave from and steps out"}
	case r.Dockerfile == "" && (r.Target != "" || len(r.Args) > 0):
		return &Error{Op: op, Kind: Invalid, Err: errors.New("target and args are of a Dockerfile"), Hint: "give the Dockerfile's text too"}
	case len(r.Steps) > MaxBuildSteps:
		return Errorf(op, Invalid, "%d steps, at most %d are taken", len(r.Steps), MaxBuildSteps)
	case len(r.Args) > MaxBuildArgs:
		return Errorf(op, Invalid, "%d args, at most %d are taken", len(r.Args), MaxBuildArgs)
	case r.Dockerfile != "" && r.User+r.Workdir != "":
		return &Error{Op: op, Kind: Invalid, Err: errors.New("a Dockerfile says who runs its steps, and where"), Hint: "leave user and workdir out"}
	case r.ReadySeconds < 0 || r.ReadySeconds > MaxReady:
		return Errorf(op, Invalid, "ready_seconds is %d, 0 to %d are taken", r.ReadySeconds, MaxReady)
	case r.Ready != "" && r.Start == "" && r.Dockerfile == "":
		return &Error{Op: op, Kind: Invalid, Err: errors.New("ready asks for what start has begun"), Hint: "give start too"}
	}
	if err := r.checkImages(); err != nil {
		return err
	}
	if n := len(strings.Join(append(r.Entrypoint, r.Cmd...), " ")); n > MaxArgBytes {
		return Errorf(op, Invalid, "entrypoint and cmd have %d bytes, at most %d are taken", n, MaxArgBytes)
	}
	if r.Limits != nil {
		limits := r.Limits.WithDefaults(DefaultLimits())
		if err := limits.Check(); err != nil {
			return err
		}
	}
	if r.Workdir != "" {
		if err := CheckPath(r.Workdir); err != nil {
			return err
		}
	}
	if r.Context != "" {
		if err := CheckContext(r.Context); err != nil {
			return err
		}
	}
	for i := range r.Steps {
		if err := r.Steps[i].Check(); err != nil {
			return &Error{Op: fmt.Sprintf("check step %d", i+1), Err: err}
		}
	}
	return nil
}

// Build is a template's build that goes on by itself.
type Build struct {
	ID         string      `json:"id"`
	Account    string      `json:"account"`
	Name       string      `json:"name"` // of the template
	State      BuildState  `json:"state"`
	Error      string      `json:"error,omitempty"` // why it failed
	Hint       string      `json:"hint,omitempty"`
	FailedStep int         `json:"failed_step,omitempty"` // from 1; 0: none of the steps
	FailedText string      `json:"failed_text,omitempty"` // what that step was called; "start": the start command
	Template   *Template   `json:"template,omitempty"`    // once it is ready
	Lines      []BuildLine `json:"lines"`
	Next       int         `json:"next"` // of the lines, to ask for those that come after
	Started    time.Time   `json:"started"`
	Ended      time.Time   `json:"ended,omitzero"`
}

// BuildState is how far a build is.
type BuildState string

const (
	BuildWaiting BuildState = "waiting" // for its turn
	BuildRunning BuildState = "building"
	BuildReady   BuildState = "ready"
	BuildFailed  BuildState = "failed"
)

// BuildLine is one line of a build's log.
type BuildLine struct {
	Time   time.Time `json:"time"`
	Step   string    `json:"step"`
	Text   string    `json:"text"`
	Output bool      `json:"output,omitempty"` // a step's program has printed it
}
