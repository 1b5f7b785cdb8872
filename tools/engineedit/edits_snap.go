package main

// snapEdits let what is kept be whole.
var snapEdits = []edit{
	{
		Why:     "an attribute's value need not be text: that of a file capability seldom is",
		File:    "pkg/sentry/fsimpl/tmpfs/tar.go",
		At:      "\t\t\tif !utf8.ValidString(k) || !utf8.ValidString(v) {\n",
		Replace: "\t\t\tif !utf8.ValidString(k) {\n",
	},
}
