package main

// shelfEdits take programs out of an engine's start: each that it runs costs what the
// engine links.
var shelfEdits = []edit{
	{
		Why:     "who unmounts /proc for an engine that gives up the right to needs no program of its own",
		File:    "runsc/cmd/sentry/sentrycmd/boot.go",
		At:      "cmd, w := sandboxsetup.ExecProcUmounter()\n",
		Replace: "cmd, w := sandboxsetup.ProcUmounter(b.willReexec())\n",
	},
}
