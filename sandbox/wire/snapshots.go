package wire

import "github.com/berth-dev/berth/sandbox"

// Snapshots is the answer to a list of snapshots.
type Snapshots struct {
	Snapshots []sandbox.Snapshot `json:"snapshots"`
}

// Backups is the answer to a list of backups.
type Backups struct {
	Backups []sandbox.Backup `json:"backups"`
}
