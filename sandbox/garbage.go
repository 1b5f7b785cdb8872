package sandbox

// Garbage is what lies on a server's disk and nothing needs any more.
type Garbage struct {
	Items   []Litter `json:"items"`
	Bytes   int64    `json:"bytes"`   // of all items, as far as that is known
	Removed bool     `json:"removed"` // false: they are there yet
}

// Litter is one thing that nothing needs.
type Litter struct {
	Kind  LitterKind `json:"kind"`
	Name  string     `json:"name"`            // an id, a digest or a file's name
	Bytes int64      `json:"bytes,omitempty"` // on the disk; 0: not known
}

// LitterKind is the sort of a thing that nothing needs.
type LitterKind string

const (
	LitterMachine  LitterKind = "machine"  // files, cgroups and processes of a sandbox that has no record
	LitterGuest    LitterKind = "guest"    // a guest program that no machine uses
	LitterTemplate LitterKind = "template" // a root image that has no name, and that no sandbox or snapshot needs
	LitterUnsaved  LitterKind = "unsaved"  // half of a file whose making was cut short
	LitterBlobs    LitterKind = "blobs"    // parts of snapshots and backups that are gone
)

// DiskStatus is the room on the disk that holds the data.
type DiskStatus struct {
	FreeBytes    int64 `json:"free_bytes"`
	TotalBytes   int64 `json:"total_bytes"`
	ReserveBytes int64 `json:"reserve_bytes"` // that must stay free
	Low          bool  `json:"low"`           // less is: nothing begins that needs room
}
