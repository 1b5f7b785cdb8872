package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// volumePrefix + account/id: a volume, as JSON; volumeNamePrefix + account/name: its
// id.
const (
	volumePrefix     = "volume/"
	volumeNamePrefix = "volume-name/"
)

// Volumes keeps what volumes hold, by their ids.
type Volumes interface {
	Make(ctx context.Context, id sandbox.ID, size int64) error
	Folder(ctx context.Context, id sandbox.ID) (path string, err error)
	Stored(ctx context.Context, id sandbox.ID) (bytes int64, err error) // that it occupies on the host
	Remove(ctx context.Context, id sandbox.ID) error

	// Tidy removes what was never whole, and says which volumes there are.
	Tidy() (there map[sandbox.ID]bool, err error)

	Stat(ctx context.Context, id sandbox.ID, path string) (sandbox.VolumeEntry, error)
	List(ctx context.Context, id sandbox.ID, path string, depth int) ([]sandbox.VolumeEntry, error)
	MakeDir(ctx context.Context, id sandbox.ID, path string, a sandbox.VolumeAttributes, parents bool) (sandbox.VolumeEntry, error)
	Set(ctx context.Context, id sandbox.ID, path string, a sandbox.VolumeAttributes) (sandbox.VolumeEntry, error)
	Read(ctx context.Context, id sandbox.ID, path string) (io.ReadCloser, sandbox.VolumeEntry, error)
	Write(ctx context.Context, id sandbox.ID, path string, a sandbox.VolumeAttributes, replace bool, body io.Reader) (sandbox.VolumeEntry, error)
	RemoveEntry(ctx context.Context, id sandbox.ID, path string) error
}

// CreateVolume makes a volume.
//
// Conflict: a volume of the account has the name. Exhausted: there are too many.
// Unsupported: this server keeps none.
func (e *Engine) CreateVolume(ctx context.Context, req sandbox.VolumeRequest) (v sandbox.Volume, err error) {
	const op = "create volume"
	done, err := e.task()
	if err != nil {
		return v, fail(op, "", err)
	}
	defer done()
	if err := req.Check(); err != nil {
		return v, fail(op, "", err)
	}
	if req.SizeBytes == 0 {
		req.SizeBytes = sandbox.DefaultVolume
	}
	c, err := e.volumeCaller(ctx)
	if err != nil {
		return v, fail(op, "", err)
	}
	unlock, err := e.sharing.Lock(ctx, c.Account)
	if err != nil {
		return v, fail(op, "", err)
	}
	defer unlock()
	if err := e.mayCreateVolume(ctx, c.Account); err != nil {
		return v, fail(op, "", err)
	}
	v = sandbox.Volume{ID: sandbox.NewID(), Name: req.Name, Account: c.Account, SizeBytes: req.SizeBytes, Created: e.now().UTC().Round(0)}
	value, err := json.Marshal(v)
	if err != nil {
		return v, fail(op, "", sandbox.Errorf("encode volume", sandbox.Internal, "%w", err))
	}
	ops, counted, err := e.meter.Volume(v, false)
	if err != nil {
		return v, fail(op, "", err)
	}
	_, err = e.records.Commit(ctx, record.Txn{
		If:   []record.Cond{{Key: volumeNameKey(v.Account, v.Name)}, {Key: volumeKey(v.Account, v.ID)}},
		Then: append(ops, record.Op{Key: volumeKey(v.Account, v.ID), Value: value}, record.Op{Key: volumeNameKey(v.Account, v.Name), Value: []byte(v.ID)}),
	})
	if sandbox.KindOf(err) == sandbox.Conflict {
		err = &sandbox.Error{Kind: sandbox.Conflict, Err: fmt.Errorf("a volume has the name %q", v.Name), Hint: "take another name, or remove that one"}
	}
	if err != nil {
		return v, fail(op, "", err)
	}
	counted()
	// A record without a folder is one whose making was cut off; it goes at the next
	// start at the latest.
	if err := e.volumes.Make(ctx, v.ID, v.SizeBytes); err != nil {
		undo, cancel := bounded(ctx, undoTime)
		defer cancel()
		return v, fail(op, "", errors.Join(err, e.forgetVolume(undo, v)))
	}
	return v, nil
}

func (e *Engine) forgetVolume(ctx context.Context, v sandbox.Volume) error {
	ops, counted, err := e.meter.Volume(v, true)
	if err != nil {
		return err
	}
	ops = append(ops, record.Op{Key: volumeKey(v.Account, v.ID), Delete: true}, record.Op{Key: volumeNameKey(v.Account, v.Name), Delete: true})
	if _, err = e.records.Commit(ctx, record.Txn{Then: ops}); err == nil {
		counted()
	}
	return err
}

// mayCreateVolume checks that an account may have one more.
func (e *Engine) mayCreateVolume(ctx context.Context, account string) error {
	if _, err := e.quotaOf(ctx, account); err != nil { // the account has ended
		return err
	}
	if err := e.room.need(0); err != nil {
		return err
	}
	all, err := e.volumesOf(ctx, account)
	if err == nil && len(all) >= sandbox.MaxVolumes {
		err = &sandbox.Error{Kind: sandbox.Exhausted, Err: fmt.Errorf("there are %d volumes already", len(all)), Hint: "remove one first"}
	}
	return err
}

// volumeCaller is who asks for volumes. Without them they are Unsupported.
func (e *Engine) volumeCaller(ctx context.Context) (sandbox.Caller, error) {
	c, err := sandbox.CallerOf(ctx)
	if err == nil && e.volumes == nil {
		err = &sandbox.Error{Kind: sandbox.Unsupported, Err: errors.New("this server keeps no volumes"), Hint: "use snapshots, or files"}
	}
	return c, err
}

// Volumes lists the volumes of the caller's account, the oldest first.
func (e *Engine) Volumes(ctx context.Context) ([]sandbox.Volume, error) {
	const op = "list volumes"
	c, err := e.volumeCaller(ctx)
	if err != nil {
		return nil, fail(op, "", err)
	}
	all, err := e.volumesOf(ctx, c.Account)
	return all, fail(op, "", err)
}

// volumesOf lists the volumes of an account, or of all for "".
func (e *Engine) volumesOf(ctx context.Context, account string) (all []sandbox.Volume, err error) {
	prefix := volumePrefix
	if account != "" {
		prefix = volumeKey(account, "")
	}
	err = e.eachEntry(ctx, prefix, func(entry record.Entry) error {
		var v sandbox.Volume
		if err := json.Unmarshal(entry.Value, &v); err != nil {
			return sandbox.Errorf("decode record "+entry.Key, sandbox.Internal, "%w", err)
		}
		all = append(all, v)
		return nil
	})
	slices.SortFunc(all, func(a, b sandbox.Volume) int { return a.Created.Compare(b.Created) })
	return all, err
}

// Volume returns a volume of the caller's account by id or name, or NotFound.
func (e *Engine) Volume(ctx context.Context, given string) (sandbox.Volume, error) {
	v, err := e.volume(ctx, given)
	return v, fail("get volume", "", err)
}

func (e *Engine) volume(ctx context.Context, given string) (sandbox.Volume, error) {
	c, err := e.volumeCaller(ctx)
	if err != nil {
		return sandbox.Volume{}, err
	}
	return e.volumeIn(ctx, c.Account, given)
}

func (e *Engine) volumeIn(ctx context.Context, account, given string) (v sandbox.Volume, err error) {
	absent := func(err error) error {
		if sandbox.KindOf(err) == sandbox.NotFound {
			return &sandbox.Error{Kind: sandbox.NotFound, Err: fmt.Errorf("no volume %.80q", given), Hint: "berth volume ls lists the volumes"}
		}
		return err
	}
	id, err := sandbox.ParseID(given)
	if err != nil {
		if err := sandbox.CheckVolumeName(given); err != nil {
			return v, err
		}
	}
	// A name may have the form of an id; it then comes first.
	if named, nerr := e.records.Get(ctx, volumeNameKey(account, given)); nerr == nil {
		id = sandbox.ID(named.Value)
	} else if err != nil || sandbox.KindOf(nerr) != sandbox.NotFound {
		return v, absent(nerr)
	}
	entry, err := e.records.Get(ctx, volumeKey(account, id))
	if err != nil {
		return v, absent(err)
	}
	if err := json.Unmarshal(entry.Value, &v); err != nil {
		return v, sandbox.Errorf("decode record "+entry.Key, sandbox.Internal, "%w", err)
	}
	return v, nil
}

// RemoveVolume removes a volume with all that it holds. While a sandbox or a
// snapshot has it, that is Conflict.
func (e *Engine) RemoveVolume(ctx context.Context, given string) error {
	const op = "remove volume"
	done, err := e.task()
	if err != nil {
		return fail(op, "", err)
	}
	defer done()
	v, err := e.volume(ctx, given)
	if err != nil {
		return fail(op, "", err)
	}
	return fail(op, "", e.removeVolume(ctx, v))
}

func (e *Engine) removeVolume(ctx context.Context, v sandbox.Volume) error {
	unlock, err := e.sharing.Lock(ctx, v.Account)
	if err != nil {
		return err
	}
	defer unlock()
	user, err := e.volumeUser(ctx, v)
	if err != nil {
		return err
	}
	if user != "" {
		return &sandbox.Error{Kind: sandbox.Conflict, Err: fmt.Errorf("%s has it", user), Hint: "remove that first"}
	}
	if err := e.volumes.Remove(ctx, v.ID); err != nil {
		return err
	}
	return e.forgetVolume(ctx, v)
}

// volumeUser names a sandbox or a snapshot that has a volume; "" if none has.
func (e *Engine) volumeUser(ctx context.Context, v sandbox.Volume) (user string, err error) {
	has := func(m sandbox.VolumeMount) bool { return m.Volume == string(v.ID) }
	err = e.eachEntry(ctx, ownKey(v.Account, ""), func(entry record.Entry) error {
		s, err := e.load(ctx, sandbox.ID(entry.Value))
		if sandbox.KindOf(err) == sandbox.NotFound {
			return nil
		}
		if err == nil && s.State != sandbox.Failed && slices.ContainsFunc(s.Volumes, has) {
			user = "the sandbox " + string(s.ID)
		}
		return err
	})
	if err != nil || user != "" {
		return user, err
	}
	shots, err := e.shotsOf(ctx, v.Account)
	for _, sh := range shots {
		if slices.ContainsFunc(sh.Volumes, has) {
			user = "the snapshot " + string(sh.ID)
		}
	}
	return user, err
}

// shareVolumes settles which volumes a planned sandbox has, by their ids. Until
// release they stay; once the sandbox is on record it keeps them.
func (e *Engine) shareVolumes(ctx context.Context, s *stored) (release func(), err error) {
	if len(s.Volumes) == 0 {
		return func() {}, nil
	}
	if e.volumes == nil {
		_, err := e.volumeCaller(ctx)
		return nil, err
	}
	release, err = e.sharing.Lock(ctx, s.Account)
	if err != nil {
		return nil, err
	}
	settled := make([]sandbox.VolumeMount, len(s.Volumes))
	for i, m := range s.Volumes {
		v, err := e.volumeIn(ctx, s.Account, m.Volume)
		if err != nil {
			release()
			return nil, err
		}
		settled[i] = sandbox.VolumeMount{Volume: string(v.ID), Path: path.Clean(m.Path), ReadOnly: m.ReadOnly}
	}
	s.Volumes = settled
	return release, nil
}

// machineSpec is what a sandbox's machine is made of, on a root image.
func (e *Engine) machineSpec(ctx context.Context, s *stored, root string) (driver.Spec, error) {
	spec := driver.Spec{ID: s.ID, Root: root, Hostname: string(s.ID), Limits: s.Limits}
	for _, m := range s.Volumes {
		if e.volumes == nil {
			_, err := e.volumeCaller(ctx)
			return spec, err
		}
		dir, err := e.volumes.Folder(ctx, sandbox.ID(m.Volume))
		if err != nil {
			return spec, err
		}
		spec.Mounts = append(spec.Mounts, driver.Mount{Source: dir, Target: m.Path, ReadOnly: m.ReadOnly})
	}
	return spec, nil
}

// tidyVolumes takes volumes off the record that were never whole, or are gone: their
// making or their removal was cut off.
func (e *Engine) tidyVolumes(ctx context.Context) error {
	if e.volumes == nil {
		return nil
	}
	there, err := e.volumes.Tidy()
	if err != nil {
		return err
	}
	all, err := e.volumesOf(ctx, "")
	for _, v := range all {
		if there[v.ID] {
			continue
		}
		if err := e.forgetVolume(ctx, v); err != nil {
			return err
		}
	}
	return err
}

func (e *Engine) clearVolumes(ctx context.Context, account string) error {
	all, err := e.volumesOf(ctx, account)
	for _, v := range all {
		if err := e.removeVolume(ctx, v); err != nil {
			return err
		}
	}
	return err
}

func volumeKey(account string, id sandbox.ID) string {
	return volumePrefix + account + "/" + string(id)
}
func volumeNameKey(account, name string) string { return volumeNamePrefix + account + "/" + name }
