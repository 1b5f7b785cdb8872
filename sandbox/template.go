package sandbox

import "time"

// Template is a named root file system that sandboxes start from.
type Template struct {
	Name    string            `json:"name"`
	Digest  string            `json:"digest"` // "sha256:<64 hex>" of the root image's bytes
	Source  string            `json:"source"` // what it was built from: "distribution:bookworm", an OCI reference, an archive
	Size    int64             `json:"size"`   // bytes of the root image
	Env     map[string]string `json:"env,omitempty"`
	Workdir string            `json:"workdir,omitempty"` // absolute; "" means /workspace
	User    string            `json:"user,omitempty"`    // "" means "user"
	Policy  *Policy           `json:"policy,omitempty"`  // of sandboxes that give none; nil: DefaultPolicy
	Created time.Time         `json:"created"`
	Build   string            `json:"build,omitempty"`  // the id of the build that made it, if that went on by itself
	Limits  *Limits           `json:"limits,omitempty"` // of sandboxes that ask for no other; a zero field is the default

	// Entrypoint and Cmd are the program that its image was made for, with its
	// arguments, for doors that run it in each sandbox.
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`

	// Start is the command that was started when it was made, if there is one, and
	// Snapshot what its sandboxes go on from. That belongs to Account.
	Start    string `json:"start,omitempty"`
	Snapshot ID     `json:"snapshot,omitempty"`
	Account  string `json:"account,omitempty"`
}

// The names every Linux sandbox has, whatever its template.
const (
	DefaultTemplate = "base"
	DefaultUser     = "user" // uid 1000, passwordless sudo
	DefaultHome     = "/home/user"
	DefaultWorkdir  = "/workspace"
)

// DefaultPath is the PATH of a process that sets none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
