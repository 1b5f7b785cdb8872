package sandbox

import "time"

// Sandbox is what Berth knows of one computer, as its owner sees it.
type Sandbox struct {
	ID         ID                `json:"id"`
	Account    string            `json:"account"`        // whose it is, for ever
	Name       string            `json:"name,omitempty"` // the owner's own; one living sandbox has it
	State      State             `json:"state"`
	Reason     string            `json:"reason,omitempty"` // why it failed, stopped, paused or does not wake
	Template   string            `json:"template"`         // as asked for, "base"
	Image      string            `json:"image"`            // digest of the template's root, "sha256:…"
	Class      string            `json:"class"`            // the driver that runs it: "gvisor", "fake"
	Type       string            `json:"type,omitempty"`   // of instance, if one was asked for
	Limits     Limits            `json:"limits"`
	Env        map[string]string `json:"env,omitempty"`     // given to every process
	User       string            `json:"user,omitempty"`    // of processes that name none, as its template says; "" means "user"
	Workdir    string            `json:"workdir,omitempty"` // where they run; "" means /workspace
	Metadata   map[string]string `json:"metadata,omitempty"`
	Tags       []string          `json:"tags,omitempty"`
	Idle       *Idle             `json:"idle,omitempty"`       // nil: never idle
	Lifetime   *Lifetime         `json:"lifetime,omitempty"`   // nil: no end
	Policy     *Policy           `json:"policy,omitempty"`     // of what it may reach; nil: DefaultPolicy
	Checkpoint *Checkpoint       `json:"checkpoint,omitempty"` // nil: none are taken
	Budget     *Budget           `json:"budget,omitempty"`     // nil: no bound
	Wake       *bool             `json:"wake,omitempty"`       // false: calls do not wake it; nil means true
	Volumes    []VolumeMount     `json:"volumes,omitempty"`
	Ports      []int             `json:"ports,omitempty"`    // on which something listened when that was last looked at, in order
	Parent     ID                `json:"parent,omitempty"`   // the sandbox that it was copied from, which may be gone
	Snapshot   ID                `json:"snapshot,omitempty"` // the last that it came from or that was taken of it, which may be gone
	Created    time.Time         `json:"created"`
	Started    time.Time         `json:"started,omitzero"` // when it last began to run
	Updated    time.Time         `json:"updated"`
}

// Process is one process tree that was started in a sandbox through Berth.
type Process struct {
	ID       string    `json:"id"`             // unique in its sandbox, never used again
	Name     string    `json:"name,omitempty"` // the caller's own, unique among the live
	PID      int       `json:"pid"`            // of its leader, inside
	Argv     []string  `json:"argv"`
	Cwd      string    `json:"cwd"`
	User     string    `json:"user"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended,omitzero"` // zero while it lives
	Exit     *Exit     `json:"exit,omitempty"` // nil while it lives
	Terminal bool      `json:"terminal,omitempty"`

	Session string        `json:"session,omitempty"` // whose command it is; such a one may wait, without a PID
	Usage   *ProcessUsage `json:"usage,omitempty"`   // in lists alone
	Written Offsets       `json:"written"`           // bytes of output so far
}

// Exit says how a process ended.
type Exit struct {
	Code     int    `json:"code"`             // 0 to 255; 128+n when ended by signal n
	Signal   string `json:"signal,omitempty"` // "SIGKILL"
	TimedOut bool   `json:"timed_out,omitempty"`
	Error    string `json:"error,omitempty"` // what went wrong on Berth's side

	// Restarted says, of a session's command, why the session's shell begins
	// anew: "the shell exited". Its folder, variables and functions are kept as
	// they were last known; background jobs live on, but are no longer its own.
	Restarted string `json:"restarted,omitempty"`
}

// FileInfo describes one entry of a sandbox's file system.
type FileInfo struct {
	Name     string    `json:"name"`
	Path     string    `json:"path"` // absolute
	Type     FileType  `json:"type"`
	Size     int64     `json:"size"` // bytes
	Mode     uint32    `json:"mode"` // permission bits with setuid, setgid, sticky: 0 to 07777
	UID      uint32    `json:"uid"`
	GID      uint32    `json:"gid"`
	Owner    string    `json:"owner,omitempty"`
	Group    string    `json:"group,omitempty"`
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitempty"` // of a symbolic link

	// Attributed: a file or a folder has extended attributes. Guests of earlier
	// versions do not tell.
	Attributed bool `json:"attributed,omitempty"`
}

// FileType is the sort of a directory entry.
type FileType string

const (
	TypeFile    FileType = "file"
	TypeDir     FileType = "dir"
	TypeSymlink FileType = "symlink"
	TypeOther   FileType = "other" // device, socket, pipe
)
