package main

// sizeEdits let sizes follow what there is: of a link's tables, its few neighbours;
// of what lies in memory, the memory that a machine has now.
var sizeEdits = []edit{
	{
		Why:     "a link has one neighbour, and a server has many links: no table has room for hundreds from its beginning",
		File:    "pkg/tcpip/stack/neighbor_cache.go",
		At:      "make(map[tcpip.Address]*neighborEntry, NeighborCacheSize)",
		Replace: "make(map[tcpip.Address]*neighborEntry)",
	},
	{
		Why:     "nor has each link a goroutine for every processor of a large host",
		File:    "pkg/tcpip/transport/tcp/protocol.go",
		At:      "p.dispatcher.init(s.InsecureRNG(), runtime.GOMAXPROCS(0))",
		Replace: "p.dispatcher.init(s.InsecureRNG(), min(runtime.GOMAXPROCS(0), 4))",
	},
	{
		Why:     "a tmpfs whose size is a share of the memory follows the memory when that is changed: machines of one size can serve for all",
		File:    "pkg/sentry/fsimpl/tmpfs/tmpfs.go",
		At:      "maxSizeInBytes, _, err := parseSize(value)",
		Replace: "maxSizeInBytes, isShare, err := parseSize(value)",
	},
	{
		Why:     "by a mark in the number that is its size",
		File:    "pkg/sentry/fsimpl/tmpfs/tmpfs.go",
		At:      "\t\t\tprintedOptsMap[optSize] = fmt.Sprintf(\"size=%vk\", printedSize)\n\n\t\tcase optNrBlocks:\n",
		Replace: "\t\t\tprintedOptsMap[optSize] = fmt.Sprintf(\"size=%vk\", printedSize)\n\t\t\tif isShare {\n\t\t\t\tmaxSizeInPages = markShare(value)\n\t\t\t\tprintedOptsMap[optSize] = \"size=\" + value\n\t\t\t}\n\n\t\tcase optNrBlocks:\n",
	},
	{
		Why:  "which is computed when somebody asks how full it is",
		File: "pkg/sentry/fsimpl/tmpfs/tmpfs.go",
		At: "\tst.Blocks = fs.maxSizeInPages\n\tpagesUsed := fs.pagesUsed.Load()\n" +
			"\tst.BlocksFree = fs.maxSizeInPages - pagesUsed\n\tst.BlocksAvailable = fs.maxSizeInPages - pagesUsed\n",
		Replace: "\tst.Blocks = fs.sizeInPages()\n\tst.BlocksFree = st.Blocks - min(st.Blocks, fs.pagesUsed.Load())\n\tst.BlocksAvailable = st.BlocksFree\n",
	},
	{
		Why:     "when a write wants what there is",
		File:    "pkg/sentry/fsimpl/tmpfs/filesystem.go",
		At:      "\t\tif fs.maxSizeInPages <= pagesUsed {\n\t\t\treturn 0\n\t\t}\n\n\t\tpagesFree := fs.maxSizeInPages - pagesUsed\n",
		Replace: "\t\tsize := fs.sizeInPages()\n\t\tif size <= pagesUsed {\n\t\t\treturn 0\n\t\t}\n\n\t\tpagesFree := size - pagesUsed\n",
	},
	{
		Why:     "and when it wants all or nothing",
		File:    "pkg/sentry/fsimpl/tmpfs/filesystem.go",
		At:      "\t\tif fs.maxSizeInPages <= pagesUsed {\n\t\t\treturn false\n\t\t}\n\n\t\tpagesFree := fs.maxSizeInPages - pagesUsed\n",
		Replace: "\t\tsize := fs.sizeInPages()\n\t\tif size <= pagesUsed {\n\t\t\treturn false\n\t\t}\n\n\t\tpagesFree := size - pagesUsed\n",
	},
}

// stillEdits let a checkpoint be loaded of which nothing is to run: its files alone
// are wanted.
var stillEdits = []edit{
	{
		Why:   "what was saved with its memory is to give up its disk, and none of its programs may run for that",
		File:  "runsc/boot/controller.go",
		At:    "\tHaveDeviceFile bool\n",
		After: "\tStill          bool // nothing of it is to run\n",
	},
	{
		Why:   "passed on",
		File:  "runsc/boot/controller.go",
		At:    "\t\tbackground: o.Background,\n",
		After: "\t\tstill:      o.Still,\n",
	},
	{
		Why:     "to where it is started",
		File:    "runsc/boot/restore.go",
		At:      "\t// mainMF is the main MemoryFile of the sandbox.\n",
		Replace: "\t// If still is true, no task of the sandbox runs.\n\tstill bool\n\n\t// mainMF is the main MemoryFile of the sandbox.\n",
	},
	{
		Why:   "so its tasks are stopped before they have begun",
		File:  "runsc/boot/restore.go",
		At:    "\tr.timer.Reached(\"Starting sandbox\")\n",
		After: "\tif r.still {\n\t\tl.k.Pause()\n\t}\n",
	},
}
