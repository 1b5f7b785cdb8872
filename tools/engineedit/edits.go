package main

// edit changes one place of one file: what At names is kept and followed by
// After, or replaced by Replace.
type edit struct {
	Why     string
	File    string // beneath the module's root
	At      string // occurs exactly once in File
	After   string
	Replace string
}

// edits is all that Berth changes. Each is small enough to be read here, and
// each is held by a test of driver/gvisor on the running engine.
var edits = []edit{
	{
		Why:     "a writable layer on disk needs its backing file also where no gofer runs",
		File:    "runsc/container/container.go",
		At:      "return ioFiles, nil, nil, nil, nil\n",
		Replace: "filestores, err := c.createGoferFilestores(conf.GetOverlay2(), mountHints)\n\t\treturn ioFiles, filestores, nil, nil, err\n",
	},
	{
		Why:   "without a gofer the backing file is made in the host's own mount namespace",
		File:  "runsc/container/container.go",
		At:    `goferRootfs := fmt.Sprintf("/proc/%d/root", c.GoferPid.Load())` + "\n",
		After: "\tif c.GoferPid.Load() == 0 {\n\t\tgoferRootfs = \"/\"\n\t}\n",
	},
	{
		Why:   "/tmp stays on the writable layer: on disk, within its size, in its snapshots",
		File:  "runsc/boot/vfs.go",
		At:    "func (c *containerMounter) mountTmp(ctx context.Context, spec *specs.Spec, conf *config.Config, creds *auth.Credentials, mns *vfs.MountNamespace) error {\n",
		After: "\tif c.goferMountConfs[0].IsFilestorePresent() {\n\t\treturn nil\n\t}\n",
	},
	{
		Why:   "Berth makes the cgroups itself, so the memory size to show comes from the spec",
		File:  "runsc/sandbox/sandbox.go",
		At:    "mem := totalSysMem\n",
		After: "\tif l := args.Spec.Linux; l != nil && l.Resources != nil && l.Resources.Memory != nil && l.Resources.Memory.Limit != nil {\n\t\tmem = min(mem, uint64(*l.Resources.Memory.Limit))\n\t}\n",
	},
	{
		Why:   "RLIMIT_NPROC counts the whole sandbox: root inside cannot get round it by changing its uid",
		File:  "pkg/sentry/kernel/kernel.go",
		At:    "func (k *Kernel) GetUserCounters(uid auth.KUID) *UserCounters {\n",
		After: "\tuid = auth.RootKUID\n",
	},
	{
		Why:     "the layer's file has a name, so that it outlives the engine: a paused or stopped sandbox keeps its disk where it is",
		File:    "runsc/container/container.go",
		At:      `os.CreateTemp(path.Join(goferRootfs, filestoreDir), "runsc-filestore-")`,
		Replace: `os.OpenFile(path.Join(goferRootfs, filestoreDir, "layer"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)`,
	},
	{
		Why:     "and keeps it",
		File:    "runsc/container/container.go",
		At:      "if err := unix.Unlink(filestoreFile.Name()); err != nil {",
		Replace: "if err := error(nil); err != nil {",
	},
	{
		Why:     "a layer that is taken up again is not emptied",
		File:    "pkg/sentry/pgalloc/pgalloc.go",
		At:      "if err := file.Truncate(0); err != nil {",
		Replace: "if opts.DiskBackedFile {\n\t\t// Kept: a new one is empty.\n\t} else if err := file.Truncate(0); err != nil {",
	},
	{
		Why:     "nor when its engine ends",
		File:    "runsc/boot/vfs.go",
		At:      "DecommitOnDestroy: true,",
		Replace: "DecommitOnDestroy: false,",
	},
	{
		Why:   "what a checkpoint says of the layer is where its pages lie, not the pages",
		File:  "pkg/sentry/pgalloc/save_restore.go",
		At:    "asyncWritePages = func(fr memmap.FileRange) {\n",
		After: "\t\t\tif f.opts.DiskBackedFile {\n\t\t\t\treturn\n\t\t\t}\n",
	},
	{
		Why:  "so they are not loaded either",
		File: "pkg/sentry/pgalloc/save_restore.go",
		At:   "\t\t// Wait for all chunks spanned by this segment to be madvised.\n",
		Replace: "\t\tif f.opts.DiskBackedFile {\n\t\t\tf.knownCommittedBytes += amount\n\t\t\tif !f.opts.DisableMemoryAccounting {\n" +
			"\t\t\t\tusage.MemoryAccounting.Inc(amount, maseg.ValuePtr().kind, maseg.ValuePtr().memCgID)\n\t\t\t}\n\t\t\tcontinue\n\t\t}\n",
	},
	{
		Why:  "memory past the limit is refused before the cgroup's end, where the kernel would kill one process after another: pages of a dead process are the engine's and not free at once",
		File: "pkg/sentry/pgalloc/pgalloc.go",
		At:   "func (f *MemoryFile) Allocate(length uint64, opts AllocOpts) (memmap.FileRange, error) {\n",
		Replace: `var unlimited atomicbitops.Int32

// Unlimit lifts the limit until Limit is called as often.
func (f *MemoryFile) Unlimit() { unlimited.Add(1) }

// Limit ends what Unlimit began.
func (f *MemoryFile) Limit() { unlimited.Add(-1) }

// Full reports whether length more bytes would exceed the limit.
func (f *MemoryFile) Full(length uint64) bool {
	if f.opts.DiskBackedFile || usage.MaximumTotalMemoryBytes == 0 || unlimited.Load() > 0 {
		return false
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.file.Fd()), &st); err != nil {
		return false
	}
	return uint64(st.Blocks)*512+length > usage.MaximumTotalMemoryBytes+f.frozen.Load()
}

func (f *MemoryFile) Allocate(length uint64, opts AllocOpts) (memmap.FileRange, error) {
	if f.Full(length) {
		return memmap.FileRange{}, linuxerr.ENOMEM
	}
`,
	},
	{
		Why:   "the process that needs more is killed, as it would be by the kernel; the guest alone may go on into the reserve",
		File:  "pkg/sentry/kernel/task_run.go",
		At:    "\t\t\tregion := trace.StartRegion(t.traceContext, faultRegion)\n",
		After: "\t\t\tif t.tg.pidWithinNS.Load() == int32(initTID) {\n\t\t\t\tt.k.mf.Unlimit()\n\t\t\t\tdefer t.k.mf.Limit()\n\t\t\t}\n",
	},
	{
		Why:  "that kill",
		File: "pkg/sentry/kernel/task_run.go",
		At:   "\t\t\t// Is this a vsyscall that we need emulate?\n",
		Replace: "\t\t\tif linuxerr.Equals(linuxerr.ENOMEM, err) && t.k.mf.Full(hostarch.HugePageSize) {\n" +
			"\t\t\t\tt.PrepareGroupExit(linux.WaitStatusTerminationSignal(linux.SIGKILL))\n\t\t\t\treturn (*runExit)(nil)\n\t\t\t}\n",
	},
	{
		Why:   "the limit changes while the sandbox runs",
		File:  "pkg/sentry/control/usage.go",
		At:    "\tFull bool `json:\"Full\"`\n",
		After: "\tLimit uint64 `json:\"Limit\"`\n",
	},
	{
		Why:   "by the same call",
		File:  "pkg/sentry/control/usage.go",
		At:    "func (u *Usage) Collect(opts *MemoryUsageOpts, out *MemoryUsage) error {\n",
		After: "\tif opts.Limit > 0 {\n\t\tusage.MinimumTotalMemoryBytes = opts.Limit\n\t\tusage.MaximumTotalMemoryBytes = opts.Limit\n\t}\n",
	},
	{
		Why:  "who is in a terminal's foreground can be seen from outside of its session, as on Linux",
		File: "pkg/sentry/fsimpl/proc/task_files.go",
		At:   "\tfmt.Fprintf(buf, \"0 0 \" /* tty_nr tpgid */)\n",
		Replace: "\tttyNr, tpgid := uint32(0), kernel.ProcessGroupID(-1)\n" +
			"\tif tty := s.task.ThreadGroup().TTY(); tty != nil {\n\t\tttyNr = 136<<8 | tty.Index()\n" +
			"\t\tif pg, err := s.task.ThreadGroup().ForegroundProcessGroup(tty); err == nil && pg != nil {\n" +
			"\t\t\ttpgid = s.pidns.IDOfProcessGroup(pg)\n\t\t}\n\t}\n" +
			"\tfmt.Fprintf(buf, \"%d %d \", ttyNr, tpgid)\n",
	},
	{
		Why:  "a machine that stands still while the host copies its disk and memory, and goes on when the host says so or is gone",
		File: "runsc/boot/controller.go",
		At:   "// Savings holds the savings with restore.\n",
		Replace: `// StandArgs has one end of a socket.
type StandArgs struct {
	urpc.FilePayload
}

// Stand pauses all tasks, says so with a byte, and returns when the other end
// has closed.
func (cm *containerManager) Stand(args *StandArgs, _ *struct{}) error {
	if len(args.Files) != 1 {
		return fmt.Errorf("got %d files, wanted 1", len(args.Files))
	}
	defer args.Files[0].Close()
	cm.l.k.Pause()
	defer cm.l.k.Unpause()
	if _, err := args.Files[0].Write([]byte{1}); err != nil {
		return err
	}
	var b [1]byte
	for {
		if _, err := args.Files[0].Read(b[:]); err != nil {
			return nil // io.EOF: the one way in which it ends
		}
	}
}

// Savings holds the savings with restore.
`,
	},
	{
		Why:     "the writable layer has a bound on its files as well: SIZE/FILES",
		File:    "runsc/boot/vfs.go",
		At:      `"size=" + mountConf.Size`,
		Replace: `"size=" + strings.Replace(mountConf.Size, "/", ",nr_inodes=", 1)`,
	},
	{
		Why:   "what no task does stands still with the tasks",
		File:  "pkg/sentry/kernel/kernel.go",
		At:    "\tk.tasks.aioGoroutines.Wait()\n",
		After: "\tk.holdCarries()\n",
	},
	{
		Why:   "and goes on with them",
		File:  "pkg/sentry/kernel/kernel.go",
		At:    "\tk.tasks.EndExternalStop()\n",
		After: "\tk.letCarries()\n",
	},
}
