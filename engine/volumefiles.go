package engine

import (
	"context"
	"io"

	"github.com/berth-dev/berth/sandbox"
)

// What volumes hold is reached without any sandbox. Paths are absolute in the
// volume; links that lead out of it are Invalid.

// StatVolume describes an entry of a volume; of a link, the link itself.
func (e *Engine) StatVolume(ctx context.Context, volume, path string) (entry sandbox.VolumeEntry, err error) {
	return entry, e.inVolume(ctx, volume, func(id sandbox.ID) error {
		entry, err = e.volumes.Stat(ctx, id, path)
		return err
	})
}

// ListVolume lists a folder of a volume, depth levels of it (1 to 64), by path.
// More than 10,000 entries are Exhausted.
func (e *Engine) ListVolume(ctx context.Context, volume, path string, depth int) (all []sandbox.VolumeEntry, err error) {
	return all, e.inVolume(ctx, volume, func(id sandbox.ID) error {
		all, err = e.volumes.List(ctx, id, path, depth)
		return err
	})
}

// MakeVolumeDir makes a folder in a volume. One that is there is Conflict; with
// parents it is no error, and those above it are made too.
func (e *Engine) MakeVolumeDir(ctx context.Context, volume, path string, a sandbox.VolumeAttributes, parents bool) (entry sandbox.VolumeEntry, err error) {
	return entry, e.inVolume(ctx, volume, func(id sandbox.ID) error {
		entry, err = e.volumes.MakeDir(ctx, id, path, a, parents)
		return err
	})
}

// SetVolumeAttributes changes the attributes of an entry of a volume.
func (e *Engine) SetVolumeAttributes(ctx context.Context, volume, path string, a sandbox.VolumeAttributes) (entry sandbox.VolumeEntry, err error) {
	return entry, e.inVolume(ctx, volume, func(id sandbox.ID) error {
		entry, err = e.volumes.Set(ctx, id, path, a)
		return err
	})
}

// ReadVolume gives the bytes of a file of a volume.
func (e *Engine) ReadVolume(ctx context.Context, volume, path string) (body io.ReadCloser, entry sandbox.VolumeEntry, err error) {
	return body, entry, e.inVolume(ctx, volume, func(id sandbox.ID) error {
		body, entry, err = e.volumes.Read(ctx, id, path)
		return err
	})
}

// WriteVolume writes a file of a volume. One that is there is Conflict; with replace
// it gets the new bytes, and folders above a new one are made.
func (e *Engine) WriteVolume(ctx context.Context, volume, path string, a sandbox.VolumeAttributes, replace bool, body io.Reader) (entry sandbox.VolumeEntry, err error) {
	return entry, e.inVolume(ctx, volume, func(id sandbox.ID) error {
		entry, err = e.volumes.Write(ctx, id, path, a, replace, body)
		return err
	})
}

// RemoveFromVolume removes an entry of a volume with all beneath it.
func (e *Engine) RemoveFromVolume(ctx context.Context, volume, path string) error {
	return e.inVolume(ctx, volume, func(id sandbox.ID) error { return e.volumes.RemoveEntry(ctx, id, path) })
}

// inVolume does something in a volume of the caller's account.
func (e *Engine) inVolume(ctx context.Context, volume string, do func(sandbox.ID) error) error {
	const op = "volume"
	v, err := e.volume(ctx, volume)
	if err != nil {
		return fail(op, "", err)
	}
	return fail(op, "", do(v.ID))
}
