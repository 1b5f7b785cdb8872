package main

// shelfEdits take out of an engine's start what has been done, or need not be done: a
// program that it runs costs what the engine links, a system call of all its threads
// that each is stopped.
var shelfEdits = []edit{
	{
		Why:     "who unmounts /proc for an engine that gives up the right to needs no program of its own",
		File:    "runsc/cmd/sentry/sentrycmd/boot.go",
		At:      "cmd, w := sandboxsetup.ExecProcUmounter()\n",
		Replace: "cmd, w := sandboxsetup.ProcUmounter(b.willReexec())\n",
	},
	{
		Why:   "what is dropped already, while the engine had few threads, need not be dropped again of all, one after the other",
		File:  "runsc/cmd/sandboxsetup/caps_unsafe.go",
		At:    "\t\t\tif r.bounding&(uint64(1)<<uint(c)) != 0 {\n\t\t\t\tcontinue\n\t\t\t}\n",
		After: "\t\t\tif has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil && has == 0 {\n\t\t\t\tcontinue\n\t\t\t}\n",
	},
}
