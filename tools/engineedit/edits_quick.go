package main

// quickEdits take time out of a start, a checkpoint and a restore: what does not depend on
// what is restored is done before, and what only describes the work is left out.
var quickEdits = []edit{
	{
		Why:   "a tmpfs that was kept is as it was, whatever size a new one would have, so a machine may wake with another size of memory",
		File:  "runsc/specutils/restore.go",
		At:    "\t\toldMnt.Source, mnt.Source = \"\", \"\"\n",
		After: "\t\tif oldMnt.Type == \"tmpfs\" && mnt.Type == oldMnt.Type {\n\t\t\toldMnt.Options, mnt.Options = nil, nil\n\t\t}\n",
	},
	{
		Why:     "the filters of system calls may be there before a start",
		File:    "runsc/boot/loader.go",
		At:      "if err := l.installSeccompFilters(); err != nil {",
		Replace: "if err := l.filterSyscalls(); err != nil {",
	},
	{
		Why:     "or a restore",
		File:    "runsc/boot/restore.go",
		At:      "if err := l.installSeccompFilters(); err != nil {",
		Replace: "if err := l.filterSyscalls(); err != nil {",
	},
	{
		Why:     "so may the memory, whose file they would not let be mapped for execution",
		File:    "runsc/boot/controller.go",
		At:      "cm.restorer.mainMF, err = createMemoryFile(cm.l.root.conf.AppHugePages, cm.l.hostTHP)",
		Replace: "cm.restorer.mainMF, err = cm.l.restoreMemory()",
	},
	{
		Why:     "and the platform",
		File:    "runsc/boot/restore.go",
		At:      "createPlatform(l.root.conf, l.root.applicationCores, r.deviceFile, l.sandboxID, r.timer, &l.pinRing)",
		Replace: "l.restorePlatform(r)",
	},
	{
		Why:   "what a restore leaves is collected when it is done",
		File:  "runsc/boot/controller.go",
		At:    "\ttimer.Reached(\"cm.Restore RPC\")\n",
		After: "\tdefer calmFor(o)()\n",
	},
	{
		Why:   "so is what a checkpoint leaves",
		File:  "pkg/sentry/kernel/kernel.go",
		At:    "\tsaveStart := time.Now()\n",
		After: "\tdefer calmIfSmall()()\n",
	},
	{
		Why:     "nobody reads how long each of ten thousand objects took to encode",
		File:    "pkg/state/stats.go",
		At:      "type statEntry struct {",
		Replace: "const unmeasured = true\n\ntype statEntry struct {",
	},
	{
		Why:   "so no object's time is taken",
		File:  "pkg/state/stats.go",
		At:    "func (s *Stats) start(id typeID) {\n",
		After: "\tif unmeasured {\n\t\treturn\n\t}\n",
	},
	{
		Why:   "nor its end",
		File:  "pkg/state/stats.go",
		At:    "func (s *Stats) done() {\n",
		After: "\tif unmeasured {\n\t\treturn\n\t}\n",
	},
	{
		Why:   "nor the sum",
		File:  "pkg/state/stats.go",
		At:    "func (s *Stats) fini(resolve func(id typeID) string) {\n",
		After: "\tif unmeasured {\n\t\treturn\n\t}\n",
	},
	{
		Why:   "and no table is made",
		File:  "pkg/state/stats.go",
		At:    "func (s *Stats) String() string {\n",
		After: "\tif unmeasured {\n\t\treturn \"not measured\"\n\t}\n",
	},
	{
		Why:   "the filter of system calls is not compiled anew by each engine",
		File:  "runsc/boot/filter/filter_precompiled.go",
		At:    "\tprecompiledPrograms = programs\n",
		After: "\taddCompiled(programs)\n",
	},
	{
		Why:     "points of system calls are for traces, of which none is ever begun",
		File:    "runsc/boot/loader.go",
		At:      "\tseccheck.Initialize()\n",
		Replace: "\t// An engine starts with nothing to collect.\n\tdefer kernel.Calm()()\n",
	},
	{
		Why:     "who reads or writes beside others waits in the kernel, for which no more processors are told of: that stops all threads, which takes long where many engines want the processors there are",
		File:    "pkg/aio/aio.go",
		At:      "\tgomaxprocs.Add(workers)\n",
		Replace: "\n",
	},
	{
		Why:     "so no fewer at the end",
		File:    "pkg/aio/aio.go",
		At:      "\tgomaxprocs.Add(-q.numWorkers)\n",
		Replace: "\n",
	},
	{
		Why:     "which needs less",
		File:    "pkg/aio/aio.go",
		At:      "\t\"gvisor.dev/gvisor/pkg/gomaxprocs\"\n",
		Replace: "\n",
	},
}
