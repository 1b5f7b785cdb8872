package main

// coldEdits tie the files under lay to the module: private memory that a
// restored sandbox has not written yet stays in the checkpoint's file, shared,
// and a sandbox that runs on after a checkpoint does so while its private memory
// is written.
var coldEdits = []edit{
	{
		Why:   "who lets the sandbox go on waits for the rest by himself",
		File:  "runsc/sandbox/sandbox.go",
		At:    "\tif err := s.call(boot.ContMgrCheckpoint, &opt, nil); err != nil {\n\t\treturn fmt.Errorf(\"checkpointing container %q: %w\", cid, err)\n\t}\n",
		After: "\tif err := s.finishCold(opts.Resume); err != nil {\n\t\treturn fmt.Errorf(\"checkpointing container %q: %w\", cid, err)\n\t}\n",
	},
	{
		Why:   "what a memory file knows of its cold pages",
		File:  "pkg/sentry/pgalloc/pgalloc.go",
		At:    "\tongoingCommitScan   atomic.Bool\n",
		After: "\n\t// These belong to cold.go and cold_save.go.\n\tcold      *Cold\n\tcoldLeft  uint64\n\tcoldFiles *ColdFiles\n\tcoldSave  atomic.Pointer[coldSave]\n\tcoldMu    sync.Mutex // before mu: no reference of coldHolds comes or goes\n\tcoldHolds []*[]memmap.FileRange // protected by mu\n\tfrozen    atomicbitops.Uint64\n\n",
	},
	{
		Why:  "what is put aside is neither looked through nor written twice, and holes need no look",
		File: "pkg/sentry/pgalloc/save_restore.go",
		At:   "\t\t\tfr.Start = unscannedStart\n\t\t}\n\t\tunscannedStart = fr.End\n\t\tallocatedBytes += fr.Length()\n",
		Replace: "\t\t\tfr.Start = unscannedStart\n\t\t}\n\t\tfr, cold := f.clipCold(fr)\n" +
			"\t\tif !cold && !ma.knownCommitted {\n\t\t\tma.commitSeq = 0\n\t\t\tfr, cold = f.clipHole(fr)\n\t\t}\n\t\tunscannedStart = fr.End\n" +
			"\t\tif cold {\n\t\t\tif maseg.End() == unscannedStart {\n\t\t\t\tmaseg = maseg.NextSegment()\n\t\t\t}\n\t\t\tcontinue\n\t\t}\n" +
			"\t\tallocatedBytes += fr.Length()\n",
	},
	{
		Why:   "nor loaded",
		File:  "pkg/sentry/pgalloc/save_restore.go",
		At:    "\tpb := f.exportMetadataProto()\n",
		After: "\tf.hideCold(pb)\n",
	},
	{
		Why:     "as many readers as help",
		File:    "pkg/sentry/state/stateio/pagesfile.go",
		At:      "\treturn NewPagesFileFDReader(fd, pagesFileFDDefaultMaxIOBytes, pagesFileFDDefaultMaxParallel)\n",
		Replace: "\treturn NewPagesFileFDReader(fd, pagesFileFDDefaultMaxIOBytes, max(2, runtime.NumCPU()))\n",
	},
	{
		Why:   "which needs",
		File:  "pkg/sentry/state/stateio/pagesfile.go",
		At:    "import (\n",
		After: "\t\"runtime\"\n\n",
	},
	{
		Why:     "cold memory is saved as what it was before",
		File:    "pkg/sentry/mm/save_restore.go",
		At:      "\tmf, ok := p.file.(*pgalloc.MemoryFile)\n",
		Replace: "\tmf, ok := pgalloc.OwnerOf(p.file)\n",
	},
	{
		Why:     "and has more owners than are counted",
		File:    "pkg/sentry/mm/pma.go",
		At:      "if mm.mf.HasUniqueRef(pseg.fileRange()) {",
		Replace: "if mm.own(pma) && mm.mf.HasUniqueRef(pseg.fileRange()) {",
	},
	{
		Why:     "a write copies little of it",
		File:    "pkg/sentry/mm/pma.go",
		At:      "copyAR = pseg.Range().Intersect(hugeMaskAR)",
		Replace: "copyAR = pseg.Range().Intersect(mm.copyAtOnce(pseg, ar, hugeMaskAR))",
	},
	{
		Why:  "its offsets are not those of one descriptor",
		File: "pkg/sentry/platform/systrap/subprocess.go",
		At:   "func (s *subprocess) MapFile(addr hostarch.Addr, f memmap.File, fr memmap.FileRange, at hostarch.AccessType, precommit bool) error {\n",
		After: "\tif c, ok := f.(*pgalloc.Cold); ok {\n\t\treturn c.EachPiece(fr, func(pf memmap.File, pfr memmap.FileRange) error {\n" +
			"\t\t\terr := s.MapFile(addr, pf, pfr, at, precommit)\n\t\t\taddr += hostarch.Addr(pfr.Length())\n\t\t\treturn err\n\t\t})\n\t}\n",
	},
	{
		Why:   "private memory is put aside before anything else is saved",
		File:  "pkg/sentry/kernel/kernel.go",
		At:    "\t\tk.mf.MarkSavable()\n",
		After: "\t\twarm, err := k.mf.BeginColdSave()\n\t\tdefer k.mf.EndColdSave()\n\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n\t\tif err := k.saveCold(resume, warm); err != nil {\n\t\t\treturn err\n\t\t}\n",
	},
	{
		Why:     "and is whole at the end",
		File:    "pkg/sentry/kernel/kernel.go",
		At:      "\t\tlog.Infof(\"Overall save took [%s].\", time.Since(saveStart))\n\t\treturn nil\n",
		Replace: "\t\tlog.Infof(\"Overall save took [%s].\", time.Since(saveStart))\n\t\treturn k.finishCold(resume)\n",
	},
	{
		Why:   "it is there before anything is used",
		File:  "pkg/sentry/kernel/kernel.go",
		At:    "\ttimeline.Reached(\"Kernel loaded\")\n",
		After: "\tif err := k.loadCold(); err != nil {\n\t\treturn err\n\t}\n",
	},
	{
		Why:     "or copied where it cannot be used",
		File:    "pkg/sentry/kernel/kernel.go",
		At:      "\tif s := k.rootNetworkNamespace.Stack(); s != nil {\n",
		Replace: "\tif err := k.warmCold(); err != nil {\n\t\treturn err\n\t}\n\tif s := k.rootNetworkNamespace.Stack(); s != nil {\n",
	},
	{
		Why:   "where a checkpoint puts private memory",
		File:  "pkg/sentry/state/state.go",
		At:    "\t// Resume indicates if the statefile is used for save-resume.\n",
		After: "\t// Cold are the files for private memory.\n\tCold *pgalloc.ColdFiles\n\n",
	},
	{
		Why:   "which needs",
		File:  "pkg/sentry/state/state.go",
		At:    "\t\"gvisor.dev/gvisor/pkg/sentry/kernel\"\n",
		After: "\t\"gvisor.dev/gvisor/pkg/sentry/pgalloc\"\n",
	},
	{
		Why:  "the tasks may run on before all is written, the caller may not",
		File: "pkg/sentry/state/state.go",
		At:   "func (opts *SaveOpts) Save(ctx context.Context, k *kernel.Kernel, w *watchdog.Watchdog) error {\n",
		Replace: "func (opts *SaveOpts) Save(ctx context.Context, k *kernel.Kernel, w *watchdog.Watchdog) error {\n\tk.MemoryFile().SetColdFiles(opts.Cold)\n" +
			"\terr := opts.save(ctx, k, w)\n\treturn errors.Join(err, k.MemoryFile().SettleCold(err == nil && opts.Resume))\n}\n\n" +
			"func (opts *SaveOpts) save(ctx context.Context, k *kernel.Kernel, w *watchdog.Watchdog) error {\n",
	},
	{
		Why:   "a checkpoint says that there is such memory",
		File:  "pkg/sentry/state/state.go",
		At:    "\taddSaveMetadata(opts.Metadata)\n",
		After: "\tif opts.Cold != nil {\n\t\topts.Metadata[\"cold\"] = \"true\"\n\t}\n",
	},
	{
		Why:     "the files for it come fourth and fifth",
		File:    "pkg/sentry/control/state.go",
		At:      "\t\twantFiles += 2\n",
		Replace: "\t\twantFiles += 2\n\t\tif len(o.FilePayload.Files) == 5 {\n\t\t\twantFiles += 2\n\t\t}\n",
	},
	{
		Why:   "from where they are taken",
		File:  "pkg/sentry/control/state.go",
		At:    "\t\tsaveOpts.PagesFile = stateio.NewPagesFileFDWriterDefault(int32(pagesFileFD))\n",
		After: "\t\tif wantFiles == 5 {\n\t\t\tsaveOpts.Cold, err = pgalloc.NewColdFiles(o.Files[3], o.Files[4])\n\t\t\tif err != nil {\n\t\t\t\treturn err\n\t\t\t}\n\t\t}\n",
	},
	{
		Why:   "which needs",
		File:  "pkg/sentry/control/state.go",
		At:    "\t\"gvisor.dev/gvisor/pkg/sentry/limits\"\n",
		After: "\t\"gvisor.dev/gvisor/pkg/sentry/pgalloc\"\n",
	},
	{
		Why:   "they are made with the others",
		File:  "runsc/sandbox/sandbox.go",
		At:    "\t\tf, err := os.OpenFile(pagesFilePath, pagesWriteFlags, 0644)\n\t\tif err != nil {\n\t\t\treturn nil, fmt.Errorf(\"creating checkpoint pages file %q: %w\", pagesFilePath, err)\n\t\t}\n\t\tfiles = append(files, f)\n",
		After: "\t\tcold, err := createColdFiles(path)\n\t\tif err != nil {\n\t\t\treturn nil, err\n\t\t}\n\t\tfiles = append(files, cold...)\n",
	},
	{
		Why:  "and opened",
		File: "runsc/sandbox/sandbox.go",
		At:   "\t\topt.HavePagesFile = true\n\t} else if !os.IsNotExist(err) {\n",
		Replace: "\t\topt.HavePagesFile = true\n\t\tcold, err := openColdFiles(imagePath)\n\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n" +
			"\t\topt.FilePayload.Files = append(opt.FilePayload.Files, cold...)\n\t\topt.ColdFiles = len(cold)\n\t} else if !os.IsNotExist(err) {\n",
	},
	{
		Why:   "which the other side is told",
		File:  "runsc/boot/controller.go",
		At:    "\tHavePagesFile  bool\n",
		After: "\tColdFiles      int // index and others, behind the pages file\n",
	},
	{
		Why:   "and does",
		File:  "runsc/boot/controller.go",
		At:    "\ttimer.Reached(\"created MemoryFile\")\n",
		After: "\tif o.ColdFiles > 0 {\n\t\tif err := openCold(o, cm.restorer.mainMF); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n",
	},
	{
		Why:   "a checkpoint that has lost its private memory is not restored",
		File:  "runsc/boot/controller.go",
		At:    "\ttimer.Reached(\"created statefile reader\")\n",
		After: "\tif (cm.restorer.metadata[\"cold\"] != \"\") != (o.ColdFiles > 0) {\n\t\treturn fmt.Errorf(\"the files of the private memory are missing, or of another checkpoint\")\n\t}\n",
	},
}
