package main

// layerEdits tie layer.go to the module: what was written may be frozen, and shared
// with the layers of other sandboxes without a copy, on any file system.
var layerEdits = []edit{
	{
		Why:   "what a layer knows of its frozen part",
		File:  "pkg/sentry/pgalloc/pgalloc.go",
		At:    "\tisSaving            bool\n",
		After: "\n\t// This belongs to layer.go.\n\tlayer layerState\n",
	},
	{
		Why:   "where that lies is known from the start",
		File:  "pkg/sentry/pgalloc/pgalloc.go",
		At:    "\tf.initFields()\n",
		After: "\tif opts.DiskBackedFile {\n\t\tif err := f.openLayer(); err != nil {\n\t\t\treturn nil, err\n\t\t}\n\t}\n",
	},
	{
		Why:     "it lies in files of its own",
		File:    "pkg/sentry/pgalloc/pgalloc.go",
		At:      "\treturn f.FD(), nil\n",
		Replace: "\treturn f.fdAt(fr), nil\n",
	},
	{
		Why:     "no range crosses its end",
		File:    "pkg/sentry/pgalloc/pgalloc.go",
		At:      "\t\tStart: oldNrChunks * chunkSize,\n",
		Replace: "\t\tStart: oldNrChunks*chunkSize + f.guard(oldNrChunks*chunkSize),\n",
	},
	{
		Why:   "once it is left nothing is punched out of it",
		File:  "pkg/sentry/pgalloc/pgalloc.go",
		At:    "func (f *MemoryFile) decommitFile(fr memmap.FileRange) error {\n",
		After: "\tif f.layer.left.Load() {\n\t\treturn nil\n\t}\n",
	},
	{
		Why:     "that is when all are killed, as after a save",
		File:    "pkg/sentry/kernel/kernel.go",
		At:      "\tk.tasks.Kill(ws)\n",
		Replace: "\tpgalloc.LeaveLayer()\n\tk.tasks.Kill(ws)\n",
	},
	{
		Why:   "a checkpoint does not know of it",
		File:  "pkg/sentry/pgalloc/save_restore.go",
		At:    "\tf.hideCold(pb)\n",
		After: "\tf.withoutFrozen(pb)\n",
	},
	{
		Why:     "what it is loaded with fits",
		File:    "pkg/sentry/pgalloc/save_restore.go",
		At:      "\t// Obtain chunk mappings, then madvise them concurrently with loading data.\n",
		Replace: "\tif err := f.checkLayer(chunks); err != nil {\n\t\treturn err\n\t}\n\t// Obtain chunk mappings, then madvise them concurrently with loading data.\n",
	},
	{
		Why:   "and is mapped",
		File:  "pkg/sentry/pgalloc/save_restore.go",
		At:    "\t\t\tchunk.mapping = m\n\t\t\tm += chunkSize\n\t\t}\n",
		After: "\t\tif err := f.loadLayer(chunks); err != nil {\n\t\t\treturn err\n\t\t}\n",
	},
	{
		Why:     "frozen pages are mapped to be read",
		File:    "pkg/sentry/fsimpl/tmpfs/regular_file.go",
		At:      "\t\t\tPerms:  hostarch.AnyAccess,\n",
		Replace: "\t\t\tPerms:  rf.inode.fs.mf.PermsOf(seg.FileRangeOf(segMR)),\n",
	},
	{
		Why:   "and not to be written",
		File:  "pkg/sentry/fsimpl/tmpfs/regular_file.go",
		At:    "\t\tsegMR := seg.Range().Intersect(translateRange)\n",
		After: "\t\tif at.Write && rf.inode.fs.mf.LayerFrozen(seg.FileRangeOf(segMR)) {\n\t\t\treturn ts, frozenWrite()\n\t\t}\n",
	},
	{
		Why:  "who may write to a mapping has pages of its own there",
		File: "pkg/sentry/fsimpl/tmpfs/regular_file.go",
		At:   "\trf.mapsMu.Lock()\n\tdefer rf.mapsMu.Unlock()\n\trf.dataMu.RLock()\n\tdefer rf.dataMu.RUnlock()\n",
		Replace: "\trf.mapsMu.Lock()\n\tdefer rf.mapsMu.Unlock()\n\tif writable {\n" +
			"\t\tif err := rf.thawLocked(memmap.MappableRange{offset, offset + uint64(ar.Length())}, pgalloc.MemoryCgroupIDFromContext(ctx)); err != nil {\n" +
			"\t\t\treturn err\n\t\t}\n\t}\n\trf.dataMu.RLock()\n\tdefer rf.dataMu.RUnlock()\n",
	},
	{
		Why:   "and is known when all is frozen",
		File:  "pkg/sentry/fsimpl/tmpfs/regular_file.go",
		At:    "\t\trf.writableMappingPages += uint64(ar.Length() / hostarch.PageSize)\n",
		After: "\t\trf.noteWritten()\n",
	},
	{
		Why:   "until it may not any more",
		File:  "pkg/sentry/fsimpl/tmpfs/regular_file.go",
		At:    "\t\trf.writableMappingPages -= uint64(ar.Length() / hostarch.PageSize)\n",
		After: "\t\trf.noteWritten()\n",
	},
	{
		Why:   "after a restore too",
		File:  "pkg/sentry/fsimpl/tmpfs/tmpfs_state_autogen.go",
		At:    "\tstateSourceObject.Load(9, &rf.size)\n",
		After: "\tstateSourceObject.AfterLoad(func() { rf.noteWritten() })\n",
	},
	{
		Why:     "a file that is cut short loses the rest of its last page",
		File:    "pkg/sentry/fsimpl/tmpfs/regular_file.go",
		At:      "\t// Need to hold inode.mu and dataMu while modifying size.\n",
		Replace: "\tif newSize < oldSize {\n\t\tif err := rf.thawEnd(newSize); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\t// Need to hold inode.mu and dataMu while modifying size.\n",
	},
	{
		Why:     "a write is to pages of the file's own",
		File:    "pkg/sentry/fsimpl/tmpfs/regular_file.go",
		At:      "\t// Perform the write.\n",
		Replace: "\tif err := f.thaw(uint64(offset), uint64(offset+src.NumBytes()), pgalloc.MemoryCgroupIDFromContext(ctx)); err != nil {\n\t\treturn 0, offset, err\n\t}\n\t// Perform the write.\n",
	},
	{
		Why:     "what was frozen only now is thawed before anything runs",
		File:    "pkg/sentry/kernel/kernel.go",
		At:      "\tif err := k.warmCold(); err != nil {\n",
		Replace: "\tif err := pgalloc.ThawWritten(); err != nil {\n\t\treturn fmt.Errorf(\"thaw files: %w\", err)\n\t}\n\tif err := k.warmCold(); err != nil {\n",
	},
}
