package main

import (
	"fmt"
	"os"

	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

// defaultWarm is the default of --warm. One that waits costs some 16 MiB.
const defaultWarm = 4

// shellsEach is how many engines may wait for each of --warm.
const shellsEach = 3

// checkEngines refuses a number of engines that cannot wait.
func checkEngines(n int) error {
	if n < -1 || n > config.MaxEngines {
		return usage(fmt.Sprintf("give --engines -1 to %d", config.MaxEngines), "%d engines cannot wait", n)
	}
	return nil
}

// poolOf is how many sandboxes a server keeps ready.
func poolOf(f *serveFlags) engine.PoolConfig {
	if f.warm <= 0 || f.driver == "fake" {
		return engine.PoolConfig{}
	}
	c := engine.PoolConfig{Floor: min(2, f.warm), Ceiling: f.warm}
	c.Available, c.Reserve = spareMemory()
	return c
}

// spareMemory tells what the host can still give, and what of that is left alone: an
// eighth of all. Where that cannot be known there is always enough.
func spareMemory() (available func() (int64, error), reserve int64) {
	total, _, err := hostMemory()
	if err != nil {
		return nil, 0
	}
	return func() (int64, error) {
		_, available, err := hostMemory()
		return available, err
	}, total / 8
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
