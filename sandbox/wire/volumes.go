package wire

import "github.com/berth-dev/berth/sandbox"

// Volumes is the answer that lists them.
type Volumes struct {
	Volumes []sandbox.Volume `json:"volumes"`
}

// VolumeEntries is the answer that lists what is in one.
type VolumeEntries struct {
	Entries []sandbox.VolumeEntry `json:"entries"`
}
