package main

// begunEdits note that the programs of a sandbox begin to run. From then on they change
// the layer, and what was saved with it as it was is void: whoever comes when the engine
// has died, with nobody to tell, reads the note.
var begunEdits = []edit{
	{
		Why:   "who restores a sandbox may want a note of when it begins",
		File:  "runsc/boot/controller.go",
		At:    "\tHaveDeviceFile bool\n",
		After: "\tBegun          bool // the last of the files is the note, which is empty before\n",
	},
	{
		Why:   "it is kept",
		File:  "runsc/boot/controller.go",
		At:    "\t\tbackground: o.Background,\n",
		After: "\t\tbegun:      o.takeBegun(),\n",
	},
	{
		Why:     "until then",
		File:    "runsc/boot/restore.go",
		At:      "\t// mainMF is the main MemoryFile of the sandbox.\n",
		Replace: "\t// begun is told that the sandbox begins to run. It may be nil.\n\tbegun *os.File\n\n\t// mainMF is the main MemoryFile of the sandbox.\n",
	},
	{
		Why:   "and written before anything runs, or nothing does",
		File:  "runsc/boot/restore.go",
		At:    "\tr.timer.Reached(\"Starting sandbox\")\n",
		After: "\tif err := noteBegun(r.begun); err != nil {\n\t\treturn err\n\t}\n",
	},
	{
		Why:   "a sandbox with a new guest on an old disk has the same note, in the folder that describes it",
		File:  "runsc/sandbox/sandbox.go",
		At:    "\t// Send a message to the sandbox control server to start the root container.\n",
		After: "\tif err := noteBegun(conf); err != nil {\n\t\treturn err\n\t}\n",
	},
}
