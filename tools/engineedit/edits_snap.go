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
}
