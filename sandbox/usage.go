package sandbox

// Usage is what a sandbox uses of its host.
type Usage struct {
	MemoryBytes int64 `json:"memory_bytes"` // now, charged to it; page cache that it shares left out
	CPUMillis   int64 `json:"cpu_ms"`       // milliseconds of CPU time since it was made
	DiskBytes   int64 `json:"disk_bytes"`   // of what was written on top of the template, as stored
	Processes   int   `json:"processes"`    // alive now, in the trees that were started through Berth
}

// ProcessUsage is what a process's tree uses, or used.
type ProcessUsage struct {
	CPUMillis   int64 `json:"cpu_ms"`       // milliseconds of CPU time, with what has ended and was waited for
	MemoryBytes int64 `json:"memory_bytes"` // resident now; what processes share counts for each
	Processes   int   `json:"processes"`    // alive now
}
