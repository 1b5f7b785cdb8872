package main

import (
	"fmt"
	"os"

	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

// defaultWarm is the default of --warm. One that waits costs some 16 MiB.
const defaultWarm = 4

// shellsEach is how many engines may wait for each of --warm.
const shellsEach = 3

// poolOf is how many sandboxes a server keeps ready. They leave an eighth of the
// host's memory alone.
func poolOf(f *serveFlags) engine.PoolConfig {
	if f.warm <= 0 || f.driver == "fake" {
		return engine.PoolConfig{}
	}
	total, _, err := hostMemory()
	c := engine.PoolConfig{Floor: min(2, f.warm), Ceiling: f.warm, Reserve: total / 8}
	if err == nil {
		c.Available = func() (int64, error) {
			_, available, err := hostMemory()
			return available, err
		}
	}
	return c
}

// hostMemory is what the host has and what it can still give, in bytes.
func hostMemory() (total, available int64, err error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, &sandbox.Error{Op: "look at memory", Kind: sandbox.Internal, Err: err}
	}
	total, available = meminfo(string(b), "MemTotal"), meminfo(string(b), "MemAvailable")
	if total == 0 || available == 0 {
		return 0, 0, &sandbox.Error{Op: "look at memory", Kind: sandbox.Internal, Err: fmt.Errorf("/proc/meminfo says %d of %d bytes", available, total)}
	}
	return total, available, nil
}
