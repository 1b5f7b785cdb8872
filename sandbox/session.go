package sandbox

import (
	"fmt"
	"regexp"
	"time"
)

// Session is a shell that remembers from one command to the next: its folder,
// variables, functions and options. A shell that a command ends is made anew as
// it was last known.
type Session struct {
	Name     string    `json:"name"`
	User     string    `json:"user"`
	Shell    string    `json:"shell"` // path of the program
	Cwd      string    `json:"cwd"`   // after the last command
	Created  time.Time `json:"created"`
	PID      int       `json:"pid,omitempty"`     // of its shell; 0 while it has none
	Running  string    `json:"running,omitempty"` // id of the command that runs
	Queued   int       `json:"queued"`            // commands that wait for their turn
	Commands int64     `json:"commands"`          // that have ended
	Restarts int64     `json:"restarts"`          // shells that a command ended
}

// SessionOptions are of a new session; one that is there stays as it is.
type SessionOptions struct {
	Name string            `json:"name"`           // 1 to 64 characters of A-Z a-z 0-9 . _ -, the first a letter or a digit
	Env  map[string]string `json:"env,omitempty"`  // added to the sandbox's own
	Cwd  string            `json:"cwd,omitempty"`  // absolute; "" means the template's
	User string            `json:"user,omitempty"` // name or uid inside; "" means the template's

	// Plain has its shell read no profile, so that the environment is what the image and
	// Env say; it is begun at once, not with the first command. Guests of earlier servers
	// begin a login shell all the same.
	Plain bool `json:"plain,omitempty"`
}

var sessionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckSessionName reports an error of kind Invalid unless s can name a session.
func CheckSessionName(s string) error {
	if !sessionName.MatchString(s) {
		return &Error{Op: "check session", Kind: Invalid, Err: fmt.Errorf("%.80q is not a session's name", s),
			Hint: "a name has 1 to 64 characters of A-Z a-z 0-9 . _ - and starts with a letter or a digit"}
	}
	return nil
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (o *SessionOptions) Check() error {
	if err := CheckSessionName(o.Name); err != nil {
		return err
	}
	if o.Cwd != "" {
		if err := CheckPath(o.Cwd); err != nil {
			return err
		}
	}
	return CheckEnv(o.Env)
}

// CheckInSession reports an error of kind Invalid unless c can be a command of
// a session: what belongs to the session cannot be set with the command.
func (c *Command) CheckInSession() error {
	if len(c.Env) > 0 || c.Cwd != "" || c.User != "" {
		return &Error{Op: "check command", Kind: Invalid, Err: fmt.Errorf("env, cwd and user are the session's"),
			Hint: "set them when the session is made, or with export and cd in a command"}
	}
	return c.Check()
}
