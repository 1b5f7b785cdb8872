package main

// snapEdits let what is kept be whole.
var snapEdits = []edit{
	{
		Why:     "an attribute's value need not be text: that of a file capability seldom is",
		File:    "pkg/sentry/fsimpl/tmpfs/tar.go",
		At:      "\t\t\tif !utf8.ValidString(k) || !utf8.ValidString(v) {\n",
		Replace: "\t\t\tif !utf8.ValidString(k) {\n",
	},
	{
		Why:   "a root is what its name says, whatever folder it lies in: another server has another",
		File:  "runsc/specutils/restore.go",
		At:    "\t\tif shouldValidateAnnotation(key) {\n\t\t\tn[key] = val\n\t\t}\n",
		After: "\t\tif key == \"dev.gvisor.spec.rootfs.source\" {\n\t\t\tn[key] = val[strings.LastIndexByte(val, '/')+1:]\n\t\t}\n",
	},
	{
		Why:   "the last of the files for private memory may be the way by which more of it comes",
		File:  "runsc/boot/controller.go",
		At:    "\tHaveDeviceFile bool\n",
		After: "\tColdFeed       bool // the last of ColdFiles is a socket of who fills the first file of pages\n",
	},
	{
		Why:  "what is not there yet, or not known to be right, is mapped in small parts",
		File: "pkg/sentry/mm/address_space.go",
		At:   "\t} else if mf, ok := pseg.ValuePtr().file.(*pgalloc.MemoryFile); ok && mf.IsAsyncLoading() {\n",
		Replace: "\t} else if c, ok := pseg.ValuePtr().file.(*pgalloc.Cold); ok && c.Unit() != 0 {\n\t\tsetMapUnit(c.Unit())\n" +
			"\t} else if mf, ok := pseg.ValuePtr().file.(*pgalloc.MemoryFile); ok && mf.IsAsyncLoading() {\n",
	},
	{
		Why:     "and is not read before",
		File:    "pkg/sentry/mm/pma.go",
		At:      "if needInternalMappings && pma.internalMappings.IsEmpty() {",
		Replace: "if needInternalMappings && (pma.internalMappings.IsEmpty() || pseg.awaits(ar)) {",
	},
	{
		Why:     "nor copied",
		File:    "pkg/sentry/mm/pma.go",
		At:      "if err := pseg.getInternalMappingsLocked(); err != nil {\n\t\t\t\t\t\treturn pstart",
		Replace: "if err := pseg.getMappingsOf(copyAR); err != nil {\n\t\t\t\t\t\treturn pstart",
	},
	{
		Why:     "nor copied for a new process",
		File:    "pkg/sentry/mm/lifecycle.go",
		At:      "if err := srcpseg.getInternalMappingsLocked(); err != nil {",
		Replace: "if err := srcpseg.getMappingsOf(srcpseg.Range()); err != nil {",
	},
	{
		Why:     "nor read by a system call",
		File:    "pkg/sentry/mm/io.go",
		At:      "\t\tif err := pseg.getInternalMappingsLocked(); err != nil {\n",
		Replace: "\t\tif err := pseg.getMappingsOf(ar); err != nil {\n",
	},
	{
		Why:     "of more than one range",
		File:    "pkg/sentry/mm/io.go",
		At:      "\t\tif err := pseg.getInternalMappingsLocked(); err == nil {\n",
		Replace: "\t\tif err := pseg.getMappingsOf(pmaAR); err == nil {\n",
	},
}
