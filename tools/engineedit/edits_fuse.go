package main

// fuseEdits end a FUSE file system's server with its mount, and the mount with its server.
var fuseEdits = []edit{
	{
		Why:     "a server of a file system that was unmounted would wait for ever for its next request",
		File:    "pkg/sentry/fsimpl/fuse/connection.go",
		At:      "func (dc *deviceConn) release(ctx context.Context) {}\n",
		Replace: "func (dc *deviceConn) release(ctx context.Context) {\n\tdc.conn.Abort(ctx)\n\tdc.conn.waitQueue.Notify(waiter.ReadableEvents)\n}\n",
	},
	{
		Why:  "and is told so in the words that its library takes for an end, not for a fault",
		File: "pkg/sentry/fsimpl/fuse/dev.go",
		At:   "\tif !fd.connected() {\n\t\treturn 0, linuxerr.EPERM\n\t}\n\treturn fd.conn.read(ctx, dst)\n",
		Replace: "\tif !fd.connected() {\n\t\tif fd.conn != nil {\n\t\t\treturn 0, linuxerr.ENODEV\n\t\t}\n\t\treturn 0, linuxerr.EPERM\n\t}\n" +
			"\treturn fd.conn.read(ctx, dst)\n",
	},
	{
		Why:     "a server that ends unmounts what it served, and has no right to: whose it is may do that alone",
		File:    "pkg/sentry/syscalls/linux/sys_mount.go",
		At:      "\t// Currently, this is always the init task's user namespace.\n\tcreds := t.Credentials()\n\tif !creds.HasCapabilityIn(linux.CAP_SYS_ADMIN, t.MountNamespace().Owner) {\n\t\treturn 0, nil, linuxerr.EPERM\n\t}\n",
		Replace: "\tcreds := t.Credentials()\n",
	},
	{
		Why:  "that is asked where it is known which mount is meant",
		File: "pkg/sentry/syscalls/linux/sys_mount.go",
		At:   "\treturn 0, nil, t.Kernel().VFS().UmountAt(t, creds, &tpop.pop, &opts)\n",
		Replace: "\tif !creds.HasCapabilityIn(linux.CAP_SYS_ADMIN, t.MountNamespace().Owner) {\n\t\treturn 0, nil, umountOwned(t, creds, &tpop.pop, &opts)\n\t}\n" +
			"\treturn 0, nil, t.Kernel().VFS().UmountAt(t, creds, &tpop.pop, &opts)\n",
	},
	{
		Why:   "a FUSE file system is its mounter's",
		File:  "pkg/sentry/fsimpl/fuse/fusefs.go",
		At:    "// MountOptions implements vfs.FilesystemImpl.MountOptions.\nfunc (fs *filesystem) MountOptions() string {\n\treturn fs.opts.mopts\n}\n",
		After: "\n// BelongsTo reports whether the file system was mounted for a user.\nfunc (fs *filesystem) BelongsTo(creds *auth.Credentials) bool {\n\treturn creds.EffectiveKUID == fs.opts.uid\n}\n",
	},
	{
		Why:     "a signal does not end a call that was sent to a server",
		File:    "pkg/sentry/fsimpl/fuse/request_response.go",
		At:      "if err := b.Block(f.ch); err != nil {",
		Replace: "if err := await(b, f.ch); err != nil {",
	},
	{
		Why:     "nor does a machine that is put aside, if the call can be made again",
		File:    "pkg/sentry/fsimpl/fuse/connection.go",
		At:      "\tres, err := fut.resolve(ctx)\n\tif err != nil {\n",
		Replace: "\tres, err := fut.resolve(ctx)\n\tif err == linuxerr.ErrInterrupted && repeatable(r.hdr.Opcode) {\n\t\treturn res, linuxerr.ERESTARTNOINTR\n\t}\n\tif err != nil {\n",
	},
	{
		Why:     "an answer may not have more bytes than any request can want: they are held in the engine's own memory",
		File:    "pkg/sentry/fsimpl/fuse/connection.go",
		At:      "\tif src.NumBytes() < int64(hdr.SizeBytes()) {\n\t\treturn 0, linuxerr.EINVAL\n\t}\n",
		Replace: "\tif n := src.NumBytes(); n < int64(hdr.SizeBytes()) || n > mostAnswered {\n\t\treturn 0, linuxerr.EINVAL\n\t}\n",
	},
	{
		Why:     "whoever waits for an answer that could not be read goes on waiting, until there is another or the server is gone",
		File:    "pkg/sentry/fsimpl/fuse/connection.go",
		At:      "\tdelete(conn.completions, hdr.Unique)\n\n\t// Copy over the header into the future response.",
		Replace: "\n\t// Copy over the header into the future response.",
	},
	{
		Why:     "and is given it once it is there whole",
		File:    "pkg/sentry/fsimpl/fuse/connection.go",
		At:      "\t\tn += n2\n\t}\n\tif err := conn.sendResponse(ctx, fut); err != nil {\n",
		Replace: "\t\tn += n2\n\t}\n\tdelete(conn.completions, hdr.Unique)\n\tif err := conn.sendResponse(ctx, fut); err != nil {\n",
	},
	{
		Why:     "a read that failed is no end of the file",
		File:    "pkg/sentry/fsimpl/fuse/read_write.go",
		At:      "\t\t// Not enough bytes in response,\n\t\t// either we reached EOF,\n",
		Replace: "\t\tif err := res.Error(); err != nil {\n\t\t\treturn nil, 0, err\n\t\t}\n\n\t\t// Not enough bytes in response,\n\t\t// either we reached EOF,\n",
	},
	{
		Why:     "a write ends with its bytes, wherever in the file they lie: what lay before was written again as nothing, at 4 GiB without end",
		File:    "pkg/sentry/fsimpl/fuse/read_write.go",
		At:      "\tend := offset + src.NumBytes()\n",
		Replace: "\tend := src.NumBytes()\n",
	},
	{
		Why:     "a long read goes piece by piece: what a server has answered is in the engine's memory until it is copied to the caller's",
		File:    "pkg/sentry/fsimpl/fuse/regular_file.go",
		At:      "// PRead implements vfs.FileDescriptionImpl.PRead.\nfunc (fd *regularFileFD) PRead(",
		Replace: "// readPiece reads at most as much as PRead has it read.\nfunc (fd *regularFileFD) readPiece(",
	},
	{
		Why:     "an attribute is as long as one may be, whatever a server says",
		File:    "pkg/sentry/fsimpl/fuse/inode.go",
		At:      "\t\treturn string(make([]byte, out.Size)), nil\n",
		Replace: "\t\tif out.Size > linux.XATTR_SIZE_MAX {\n\t\t\treturn \"\", linuxerr.E2BIG\n\t\t}\n\t\treturn string(make([]byte, out.Size)), nil\n",
	},
	{
		Why:     "who wants to know what is known already does not wait for those who ask the server",
		File:    "pkg/sentry/fsimpl/fuse/inode.go",
		At:      "\topts.Mask &= linux.STATX_BASIC_STATS\n\n\ti.attrMu.Lock()\n\tdefer i.attrMu.Unlock()\n",
		Replace: "\topts.Mask &= linux.STATX_BASIC_STATS\n\n\tif opts.Sync == linux.AT_STATX_DONT_SYNC {\n\t\treturn statFromFUSEAttr(i.getFUSEAttr(), opts.Mask, i.fs.devMinor), nil // +checklocksforce\n\t}\n\ti.attrMu.Lock()\n\tdefer i.attrMu.Unlock()\n",
	},
	{
		Why:     "a file of more than 2 GiB is opened as any other",
		File:    "pkg/sentry/fsimpl/fuse/inode.go",
		At:      "\t\tlinux.O_APPEND | linux.O_DIRECT\n\ti.attrMu.Lock()\n",
		Replace: "\t\tlinux.O_APPEND | linux.O_DIRECT | linux.O_LARGEFILE\n\ti.attrMu.Lock()\n",
	},
}
