package main

// attributeEdits let the root's files have extended attributes: file capabilities and
// those of users. The module refuses to look at a file that has any.
var attributeEdits = []edit{
	{
		Why:  "a small inode may have attributes",
		File: "pkg/erofs/erofs.go",
		At: "\t\tino, err := i.inodeCompactAt(off)\n\t\tif err != nil {\n\t\t\treturn Inode{}, err\n\t\t}\n\n" +
			"\t\tif ino.XattrCount != 0 {\n\t\t\tlog.Warningf(\"Unsupported xattr at inode (nid=%v)\", nid)\n\t\t\treturn Inode{}, linuxerr.ENOTSUP\n\t\t}\n\n" +
			"\t\trawBlockAddr = ino.RawBlockAddr\n\t\tinodeSize = ino.SizeBytes()\n",
		Replace: "\t\tino, err := i.inodeCompactAt(off)\n\t\tif err != nil {\n\t\t\treturn Inode{}, err\n\t\t}\n\n" +
			"\t\trawBlockAddr = ino.RawBlockAddr\n\t\tinodeSize = ino.SizeBytes() + xattrSize(ino.XattrCount)\n",
	},
	{
		Why:  "a large one too",
		File: "pkg/erofs/erofs.go",
		At: "\t\tino, err := i.inodeExtendedAt(off)\n\t\tif err != nil {\n\t\t\treturn Inode{}, err\n\t\t}\n\n" +
			"\t\tif ino.XattrCount != 0 {\n\t\t\tlog.Warningf(\"Unsupported xattr at inode (nid=%v)\", nid)\n\t\t\treturn Inode{}, linuxerr.ENOTSUP\n\t\t}\n\n" +
			"\t\trawBlockAddr = ino.RawBlockAddr\n\t\tinodeSize = ino.SizeBytes()\n",
		Replace: "\t\tino, err := i.inodeExtendedAt(off)\n\t\tif err != nil {\n\t\t\treturn Inode{}, err\n\t\t}\n\n" +
			"\t\trawBlockAddr = ino.RawBlockAddr\n\t\tinodeSize = ino.SizeBytes() + xattrSize(ino.XattrCount)\n",
	},
	{
		Why:     "an open file's are listed",
		File:    "pkg/sentry/fsimpl/erofs/erofs.go",
		At:      "func (fd *fileDescription) ListXattr(ctx context.Context, size uint64) ([]string, error) {\n\treturn nil, linuxerr.ENOTSUP\n",
		Replace: "func (fd *fileDescription) ListXattr(ctx context.Context, size uint64) ([]string, error) {\n\treturn fd.inode().listXattr(size)\n",
	},
	{
		Why:     "and read",
		File:    "pkg/sentry/fsimpl/erofs/erofs.go",
		At:      "func (fd *fileDescription) GetXattr(ctx context.Context, opts vfs.GetXattrOptions) (string, error) {\n\treturn \"\", linuxerr.ENOTSUP\n",
		Replace: "func (fd *fileDescription) GetXattr(ctx context.Context, opts vfs.GetXattrOptions) (string, error) {\n\treturn fd.inode().getXattr(auth.CredentialsFromContext(ctx), &opts)\n",
	},
	{
		Why:  "those of a path are listed",
		File: "pkg/sentry/fsimpl/erofs/filesystem.go",
		At: "func (fs *filesystem) ListXattrAt(ctx context.Context, rp *vfs.ResolvingPath, size uint64) ([]string, error) {\n" +
			"\td, err := resolve(ctx, rp)\n\tif err != nil {\n\t\treturn nil, err\n\t}\n\td.DecRef(ctx)\n\treturn nil, linuxerr.ENOTSUP\n",
		Replace: "func (fs *filesystem) ListXattrAt(ctx context.Context, rp *vfs.ResolvingPath, size uint64) ([]string, error) {\n" +
			"\td, err := resolve(ctx, rp)\n\tif err != nil {\n\t\treturn nil, err\n\t}\n\tdefer d.DecRef(ctx)\n\treturn d.inode.listXattr(size)\n",
	},
	{
		Why:  "and read",
		File: "pkg/sentry/fsimpl/erofs/filesystem.go",
		At: "func (fs *filesystem) GetXattrAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.GetXattrOptions) (string, error) {\n" +
			"\td, err := resolve(ctx, rp)\n\tif err != nil {\n\t\treturn \"\", err\n\t}\n\td.DecRef(ctx)\n\treturn \"\", linuxerr.ENOTSUP\n",
		Replace: "func (fs *filesystem) GetXattrAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.GetXattrOptions) (string, error) {\n" +
			"\td, err := resolve(ctx, rp)\n\tif err != nil {\n\t\treturn \"\", err\n\t}\n\tdefer d.DecRef(ctx)\n\treturn d.inode.getXattr(rp.Credentials(), &opts)\n",
	},
}
