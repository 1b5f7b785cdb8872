package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// RestoreBackup puts what a backup holds into a folder, of the sandbox that it is
// of or of another. Files of the same names are replaced, others stay. All of the
// backup is checked before the first file is written.
func (e *Engine) RestoreBackup(ctx context.Context, id string, req sandbox.RestoreBackupRequest) (sandbox.Unpacked, error) {
	const op = "restore backup"
	none := sandbox.Unpacked{}
	b, err := e.backupOf(ctx, req.Backup)
	if err != nil {
		return none, fail(op, known(id), err)
	}
	if req.Path == "" {
		req.Path = b.Path
	}
	a, err := e.archived()
	if err != nil {
		return none, fail(op, known(id), err)
	}
	if err := a.Verify(ctx, b.Manifest); err != nil {
		return none, fail(op, known(id), fromArchive(err))
	}
	body, err := a.Stream(ctx, b.Manifest, backupFile)
	if err != nil {
		return none, fail(op, known(id), fromArchive(err))
	}
	u, err := e.Unpack(ctx, id, req.Path, sandbox.UnpackOptions{KeepOwner: true}, body)
	return u, fail(op, "", err)
}
