// Package called has the names by which a program is called to be the gVisor engine,
// for those who start one without being one: the engine itself is large.
package called

// Name is what the program is called to run the engine.
const Name = "runsc"

// CgroupsVar is the environment variable that names the cgroup.procs files
// which the engine joins before all else, separated by colons.
const CgroupsVar = "BERTH_JOIN_CGROUPS"
