package engine

import (
	"archive/tar"
	"context"
	"encoding/json"
	"io"
	"slices"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/snapshot"
)

// maxImport bounds what an imported snapshot may hold, in plain bytes.
const maxImport = 4 << 40

// rootMover is a Templates that can put a root image into a stream and take it out of
// one.
type rootMover interface {
	WriteRoot(ctx context.Context, digest string, out *tar.Writer) error
	TakeRoot(ctx context.Context, h *tar.Header, in *tar.Reader) (digest string, err error)
}

// ExportSnapshot writes a snapshot as one stream, which ImportSnapshot of this or
// another server reads, with the root that it stands on unless that is left out. What
// is in it is as secret as the sandbox's memory was.
func (e *Engine) ExportSnapshot(ctx context.Context, id string, req sandbox.ExportRequest, to io.Writer) error {
	const op = "export snapshot"
	sh, err := e.shotOf(ctx, id)
	if err != nil {
		return fail(op, "", err)
	}
	a, err := e.archived()
	if err != nil {
		return fail(op, "", err)
	}
	mover, ok := e.templates.(rootMover)
	if req.WithoutRoot || !ok {
		return fail(op, "", fromArchive(a.Export(ctx, sh.Manifest, to, nil)))
	}
	e.builds.RLock() // while whose roots stay
	defer e.builds.RUnlock()
	root := func(out *tar.Writer) error { return mover.WriteRoot(ctx, sh.Image, out) }
	return fail(op, "", fromArchive(a.Export(ctx, sh.Manifest, to, root)))
}

// ImportSnapshot keeps what a stream of ExportSnapshot's holds as a new snapshot
// of the caller's account. It is for the operator alone: the memory of a sandbox
// holds the state of the engine that runs it, and who may write that may do what
// the engine may.
//
// Invalid: the stream is not whole, or not one of ExportSnapshot's. Unsupported:
// it does not fit this server.
func (e *Engine) ImportSnapshot(ctx context.Context, from io.Reader, req sandbox.ImportRequest) (sandbox.Snapshot, error) {
	const op = "import snapshot"
	done, err := e.task()
	if err != nil {
		return sandbox.Snapshot{}, fail(op, "", err)
	}
	defer done()
	ctx, cancel := e.whileOpen(ctx)
	defer cancel()
	sh, err := e.importShot(ctx, from, req)
	if err != nil {
		return sandbox.Snapshot{}, fail(op, "", err)
	}
	return sh.Snapshot, nil
}

func (e *Engine) importShot(ctx context.Context, from io.Reader, req sandbox.ImportRequest) (*shot, error) {
	if err := operatorOnly(ctx); err != nil {
		return nil, err
	}
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return nil, err
	}
	if err := (&sandbox.SnapshotRequest{Name: req.Name, TTLSeconds: req.TTLSeconds}).Check(); err != nil {
		return nil, err
	}
	if err := e.nameIsFree(ctx, c.Account, req.Name); err != nil {
		return nil, err
	}
	a, err := e.archived()
	if err != nil {
		return nil, err
	}
	give, err := e.keeping.take(ctx)
	if err != nil {
		return nil, err
	}
	defer give()
	e.builds.RLock() // a root that is taken has no name, and nothing that claims it yet
	defer e.builds.RUnlock()
	var sh *shot
	saved, m, err := a.Import(ctx, from, e.takeRoot(ctx), func(m *snapshot.Manifest) (err error) {
		sh, err = e.acceptShot(ctx, m)
		return err
	})
	if err != nil {
		e.garbage.poke()
		return nil, err
	}
	now := e.now().UTC().Round(0)
	sh.ID, sh.Account, sh.Name, sh.Parent = sandbox.NewID(), c.Account, req.Name, ""
	sh.Created, sh.Expires = now, e.expiry(now, req.TTLSeconds)
	sh.Manifest, sh.Bytes, sh.Stored = saved.Digest, m.Bytes(), saved.Stored
	return sh, e.registerSaved(ctx, sh, saved)
}

// takeRoot keeps the root that comes with a snapshot.
func (e *Engine) takeRoot(ctx context.Context) snapshot.First {
	mover, ok := e.templates.(rootMover)
	if !ok {
		return nil
	}
	return func(h *tar.Header, in *tar.Reader) error {
		_, err := mover.TakeRoot(ctx, h, in)
		return err
	}
}

// acceptShot judges what a manifest from outside says of itself before its chunks
// are taken.
func (e *Engine) acceptShot(ctx context.Context, m *snapshot.Manifest) (*shot, error) {
	const op = "check imported snapshot"
	sh := &shot{}
	if err := json.Unmarshal(m.About, sh); err != nil {
		return nil, sandbox.Errorf(op, sandbox.Invalid, "%w", err)
	}
	if n := m.Bytes(); n > maxImport {
		return nil, sandbox.Errorf(op, sandbox.Exhausted, "it holds %d bytes, at most %d are taken", n, int64(maxImport))
	}
	if string(sh.About.Keep) != string(sh.Keep) || sh.About.Class != sh.Class || e.drivers[sh.Class] == nil {
		return nil, sandbox.Errorf(op, sandbox.Invalid, "it says that it is of class %.40q, or two things of itself", sh.Class)
	}
	if _, err := sandbox.ParseID(string(sh.Sandbox)); err != nil {
		return nil, sandbox.Errorf(op, sandbox.Invalid, "%w", err)
	}
	req := sandbox.CreateRequest{Template: sh.Template, Env: sh.Env}
	if err := req.Check(); err != nil {
		return nil, err
	}
	if err := sandbox.CheckEnv(sh.Base.Env); err != nil {
		return nil, err
	}
	if err := sh.Limits.Check(); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(m.Files, func(f snapshot.File) bool { return f.Name == driver.AboutName }) {
		return nil, sandbox.Errorf(op, sandbox.Invalid, "there is no %s in it", driver.AboutName)
	}
	sh.Build = false // it is kept for its own sake
	return sh, e.fits(ctx, sh, fullLimits(sh))
}

// fullLimits are limits that have room for what a snapshot holds.
func fullLimits(sh *shot) sandbox.Limits {
	l := sh.Limits
	l.MemoryBytes, l.DiskBytes = max(l.MemoryBytes, sh.About.Memory), max(l.DiskBytes, sh.About.Disk)
	return l
}
