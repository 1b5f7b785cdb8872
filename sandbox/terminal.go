package sandbox

import (
	"fmt"
	"regexp"
	"time"
)

// Terminal is a program with a terminal in a sandbox, and the screen it shows.
type Terminal struct {
	ID      string    `json:"id"`   // "t" and a number; unique in its sandbox, never used again
	Name    string    `json:"name"` // unique among the living
	PID     int       `json:"pid"`
	Argv    []string  `json:"argv"`
	Cwd     string    `json:"cwd"` // that it was started in
	User    string    `json:"user"`
	Cols    int       `json:"cols"`
	Rows    int       `json:"rows"`
	Title   string    `json:"title,omitempty"` // that the program gave its window
	Clients int       `json:"clients"`         // attached now
	Offset  int64     `json:"offset"`          // bytes that it has printed
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"` // zero while it lives
	Exit    *Exit     `json:"exit,omitempty"` // nil while it lives
}

// DefaultTerminal is the name of a terminal that is asked for without one.
const DefaultTerminal = "main"

// Bounds on a terminal's size, in cells.
const (
	MaxTerminalCols = 1000
	MaxTerminalRows = 500
)

// TerminalRequest asks for the living terminal of a name, or for a new one, to
// which all but the name then applies.
type TerminalRequest struct {
	Name  string            `json:"name,omitempty"`  // "" means "main", or with New a name of its own
	New   bool              `json:"new,omitempty"`   // one that lives under the name is a Conflict
	Argv  []string          `json:"argv,omitempty"`  // program and arguments; or
	Shell string            `json:"shell,omitempty"` // a line for "bash -lc"; neither means the user's login shell
	Env   map[string]string `json:"env,omitempty"`   // added to the sandbox's own
	Cwd   string            `json:"cwd,omitempty"`   // absolute; "" means the template's
	User  string            `json:"user,omitempty"`  // name or uid inside; "" means the template's
	Cols  int               `json:"cols,omitempty"`  // 1 to 1000; 0 means 80
	Rows  int               `json:"rows,omitempty"`  // 1 to 500; 0 means 24
}

var (
	terminalName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	terminalID   = regexp.MustCompile(`^t[0-9]{1,18}$`)
)

// IsTerminalID reports whether s has the form of a terminal's id, not a name's.
func IsTerminalID(s string) bool { return terminalID.MatchString(s) }

// CheckTerminalName reports an error of kind Invalid unless s can name a terminal.
func CheckTerminalName(s string) error {
	if !terminalName.MatchString(s) || IsTerminalID(s) {
		return &Error{Op: "check terminal", Kind: Invalid, Err: fmt.Errorf("%.80q is not a terminal's name", s),
			Hint: "a name has 1 to 64 characters of A-Z a-z 0-9 . _ -, starts with a letter or a digit, and is not t with a number"}
	}
	return nil
}

// CheckTerminalSize reports an error of kind Invalid unless a terminal can have
// the size.
func CheckTerminalSize(cols, rows int) error {
	if cols < 1 || cols > MaxTerminalCols || rows < 1 || rows > MaxTerminalRows {
		return &Error{Op: "check terminal", Kind: Invalid, Err: fmt.Errorf("the size is %d columns by %d rows", cols, rows),
			Hint: fmt.Sprintf("a terminal has 1 to %d columns and 1 to %d rows", MaxTerminalCols, MaxTerminalRows)}
	}
	return nil
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (r *TerminalRequest) Check() error {
	if r.Name != "" {
		if err := CheckTerminalName(r.Name); err != nil {
			return err
		}
	}
	if r.Cols != 0 || r.Rows != 0 {
		if err := CheckTerminalSize(r.Cols, r.Rows); err != nil {
			return err
		}
	}
	c := Command{Argv: r.Argv, Shell: r.Shell, Env: r.Env, Cwd: r.Cwd, User: r.User}
	if len(r.Argv) == 0 && r.Shell == "" {
		c.Shell = "-" // the login shell
	}
	return c.Check()
}

// TerminalAttach says how to attach to a terminal.
type TerminalAttach struct {
	Resume     bool  // from Offset, if what came after it is still kept
	Offset     int64 // bytes of output that the reader has
	Cols, Rows int   // size to give the terminal; 0 leaves it
}

// TerminalEvent is one thing that a terminal did, in order. One of the fields is
// set; Data stands with Offset or Seeding.
type TerminalEvent struct {
	Attached *Terminal     // always the first event
	Seed     *TerminalSeed // the Data of the next events, Seeding, draws the whole screen
	Seeding  bool
	Offset   int64 // bytes of output before Data
	Data     []byte
	Resized  *TerminalSize // someone gave it another size
	Exit     *Exit         // always the last event
}

// TerminalSeed announces Bytes bytes that bring a terminal emulator of the given
// size, whatever it shows, to what the terminal shows. Output goes on at Offset.
type TerminalSeed struct {
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"`
	Cols   int   `json:"cols"`
	Rows   int   `json:"rows"`
}

// TerminalSize is a size in cells.
type TerminalSize struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// TerminalEvents is a stream of a terminal's events. Recv returns io.EOF after
// the last one (Exit); any other error means that the stream broke and the
// terminal lives on. Close ends the stream early and may be called at any time.
type TerminalEvents interface {
	Recv() (TerminalEvent, error)
	Close() error
}
