package sandbox

import (
	"fmt"
	"time"
)

// Snapshot is one moment of a sandbox, kept so that others are made like it, or
// it itself is taken back there.
type Snapshot struct {
	ID       ID        `json:"id"`
	Name     string    `json:"name,omitempty"` // the owner's own; one snapshot of the account has it
	Account  string    `json:"account"`
	Sandbox  ID        `json:"sandbox"`          // that it shows, and that may be gone
	Parent   ID        `json:"parent,omitempty"` // the snapshot that the sandbox came from, or that was taken of it before; it may be gone
	Keep     Keep      `json:"keep"`
	Template string    `json:"template"`
	Image    string    `json:"image"` // digest of the root, which must be there
	Class    string    `json:"class"`
	Engine   string    `json:"engine"` // version of what ran it, which must be the same
	Limits   Limits    `json:"limits"`
	Bytes    int64     `json:"bytes"`          // memory and written files, without what is all zeros
	Stored   int64     `json:"stored"`         // compressed; what it shares with others is counted with each
	Taken    time.Time `json:"taken"`          // the moment that it shows
	Auto     bool      `json:"auto,omitempty"` // a checkpoint: it goes with its sandbox, or when the next is there
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero"` // zero: never
}

// Keep is what a snapshot holds.
type Keep string

const (
	KeepMemory Keep = "memory" // all: memory, processes, terminals, files
	KeepDisk   Keep = "disk"   // written files alone, as after a clean end of power
)

// SnapshotRequest asks for a snapshot.
type SnapshotRequest struct {
	Name       string `json:"name,omitempty"`        // see CheckSandboxName; taken by another snapshot is Conflict
	Keep       Keep   `json:"keep,omitempty"`        // "" means memory, or of a sandbox that is put aside, what was kept
	TTLSeconds int64  `json:"ttl_seconds,omitempty"` // removed after so long; 0: never
	Auto       bool   `json:"-"`                     // a checkpoint
}

// MaxTTL bounds how long something may be asked to be kept, in seconds: 100 years.
const MaxTTL = 100 * 366 * 24 * 3600

// Check reports an error of kind Invalid for the first thing that is wrong.
func (r *SnapshotRequest) Check() error {
	if r.Name != "" {
		if err := CheckSandboxName(r.Name); err != nil {
			return err
		}
	}
	if r.Keep != "" && r.Keep != KeepMemory && r.Keep != KeepDisk {
		return &Error{Op: "check keep", Kind: Invalid, Err: fmt.Errorf("%.40q cannot be kept", r.Keep),
			Hint: "keep takes memory, which includes the disk, or disk"}
	}
	return CheckTTL(r.TTLSeconds)
}

// CheckTTL reports an error of kind Invalid unless seconds is 0 to MaxTTL.
func CheckTTL(seconds int64) error {
	if seconds < 0 || seconds > MaxTTL {
		return &Error{Op: "check ttl", Kind: Invalid, Err: fmt.Errorf("ttl_seconds is %d", seconds),
			Hint: fmt.Sprintf("ttl_seconds takes 1 to %d; leave it out and nothing expires", int64(MaxTTL))}
	}
	return nil
}

// SnapshotQuery selects snapshots. They come newest first.
type SnapshotQuery struct {
	Sandbox string // id of the one that they show; "" means any
}

// RollbackRequest asks to take a sandbox back to a snapshot.
type RollbackRequest struct {
	Snapshot string `json:"snapshot"` // id or name
}

// ImportRequest says what an imported snapshot is to be called, and how long kept.
type ImportRequest struct {
	Name       string
	TTLSeconds int64
}

// ExportRequest says how a snapshot is exported.
type ExportRequest struct {
	WithoutRoot bool // the server that imports it must have the root image
}

// Backup is what a folder of a sandbox held at one time.
type Backup struct {
	ID       ID        `json:"id"`
	Account  string    `json:"account"`
	Sandbox  ID        `json:"sandbox"`           // that it is of, and that may be gone
	Name     string    `json:"name,omitempty"`    // of that sandbox
	Path     string    `json:"path"`              // of the folder
	Excludes []string  `json:"exclude,omitempty"` // what was left out
	Bytes    int64     `json:"bytes"`             // of the files, as a tar stream
	Stored   int64     `json:"stored"`            // compressed; what it shares with others is counted with each
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero"` // zero: never
}

// BackupRequest asks for a backup of a folder.
type BackupRequest struct {
	Path       string   `json:"path"`
	Excludes   []string `json:"exclude,omitempty"`     // patterns with * ? [] {} and **; one without a slash holds anywhere, others from the folder on
	TTLSeconds int64    `json:"ttl_seconds,omitempty"` // removed after so long; 0: never
}

// Bounds on the patterns of a backup.
const (
	MaxExcludes = 64
	MaxExclude  = 256 // bytes
)

// Check reports an error of kind Invalid for the first thing that is wrong.
func (r *BackupRequest) Check() error {
	if err := CheckPath(r.Path); err != nil {
		return err
	}
	if err := CheckExcludes(r.Excludes); err != nil {
		return err
	}
	return CheckTTL(r.TTLSeconds)
}

// CheckExcludes reports an error of kind Invalid for too many or too long ones;
// whether each is a pattern is for who reads it.
func CheckExcludes(all []string) error {
	if len(all) > MaxExcludes {
		return Errorf("check exclude", Invalid, "%d patterns, at most %d are taken", len(all), MaxExcludes)
	}
	for _, p := range all {
		if p == "" || len(p) > MaxExclude {
			return Errorf("check exclude", Invalid, "%.40q has %d bytes, 1 to %d are taken", p, len(p), MaxExclude)
		}
	}
	return nil
}

// RestoreBackupRequest asks to put back what a backup holds.
type RestoreBackupRequest struct {
	Backup string `json:"backup"`         // id
	Path   string `json:"path,omitempty"` // of the folder to fill, which may hold something; "" means the one it was of
}
