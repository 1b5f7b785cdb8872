package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/snapshot"
)

// backupPrefix + account/id: a backup's record as JSON.
const backupPrefix = "backup/"

// backupFile is the name of a backup's one stream in the archive.
const backupFile = "files.tar"

// maxBackups is how many backups an account may have.
const maxBackups = 10_000

// backup is a backup with what the engine keeps beside what the owner sees.
type backup struct {
	sandbox.Backup
	Manifest blob.Digest `json:"manifest,omitempty"`
}

func backupKey(account string, id sandbox.ID) string {
	return backupPrefix + account + "/" + string(id)
}

func (b *backup) key() string { return backupKey(b.Account, b.ID) }

func decodeBackup(entry record.Entry) (*backup, error) {
	b := &backup{}
	if err := json.Unmarshal(entry.Value, b); err != nil {
		return nil, sandbox.Errorf("decode record "+entry.Key, sandbox.Internal, "%w", err)
	}
	return b, nil
}

// Backup keeps what a folder holds, but for what the patterns leave out. Files
// that change meanwhile are kept as they are found: for one moment of all, take a
// snapshot. A failure leaves nothing.
//
// NotFound: no such folder. Invalid: it is none, or a malformed pattern.
// Exhausted: no room, or the account's quota.
func (e *Engine) Backup(ctx context.Context, id string, req sandbox.BackupRequest) (sandbox.Backup, error) {
	const op = "backup"
	done, err := e.task()
	if err != nil {
		return sandbox.Backup{}, fail(op, "", err)
	}
	defer done()
	ctx, cancel := e.whileOpen(ctx)
	defer cancel()
	b, err := e.backup(ctx, id, req)
	if err != nil {
		return sandbox.Backup{}, fail(op, known(id), err)
	}
	return b.Backup, nil
}

func (e *Engine) backup(ctx context.Context, id string, req sandbox.BackupRequest) (*backup, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	a, err := e.archived()
	if err != nil {
		return nil, err
	}
	if err := e.room.need(0); err != nil {
		return nil, err
	}
	info, err := e.Stat(ctx, id, req.Path, true)
	if err != nil {
		return nil, err
	}
	if info.Type != sandbox.TypeDir {
		return nil, &sandbox.Error{Op: "check path", Kind: sandbox.Invalid, Err: fmt.Errorf("%s is no folder", req.Path), Hint: "give the folder that holds it"}
	}
	b, most, err := e.planBackup(ctx, id, req)
	if err != nil {
		return nil, err
	}
	give, err := e.keeping.take(ctx)
	if err != nil {
		return nil, err
	}
	defer give()
	body, err := e.Archive(ctx, id, req.Path, sandbox.ArchiveOptions{Excludes: req.Excludes})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	about, err := json.Marshal(b)
	if err != nil {
		return nil, sandbox.Errorf("encode backup", sandbox.Internal, "%w", err)
	}
	saved, err := a.SaveStream(ctx, backupFile, body, most, about)
	if err != nil {
		e.garbage.poke()
		return nil, fromArchive(err)
	}
	return b, e.registerBackup(ctx, b, saved)
}

// planBackup checks what can be checked before, and says how many bytes of files
// may come.
func (e *Engine) planBackup(ctx context.Context, id string, req sandbox.BackupRequest) (*backup, int64, error) {
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	s, err := e.load(ctx, sid)
	if err != nil {
		return nil, 0, err
	}
	all, err := e.backupsOf(ctx, s.Account)
	if err != nil {
		return nil, 0, err
	}
	if len(all) >= maxBackups {
		return nil, 0, &sandbox.Error{Op: "check backups", Kind: sandbox.Exhausted, Err: fmt.Errorf("the account has %d", len(all)), Hint: "remove some first"}
	}
	now := e.now().UTC().Round(0)
	b := &backup{Backup: sandbox.Backup{ID: sandbox.NewID(), Account: s.Account, Sandbox: s.ID, Name: s.Name, Path: req.Path,
		Excludes: req.Excludes, Created: now, Expires: e.expiry(now, req.TTLSeconds)}}
	// What is written is bounded by the disk, what the template holds by nothing:
	// a guest that never ends its stream must not fill the archive.
	most := int64(math.MaxInt64 / 2)
	if l := s.Limits.DiskBytes; l < most/4 {
		most = 4*l + 64<<30
	}
	quota, err := e.quotaOf(ctx, s.Account)
	if err != nil {
		return nil, 0, err
	}
	if q := quota.SnapshotBytes; q > 0 {
		used := e.Used(s.Account).SnapshotBytes
		if used >= q {
			return nil, 0, &sandbox.Error{Op: "check quota", Kind: sandbox.Exhausted, Err: fmt.Errorf("snapshot_bytes: %d used, %d allowed", used, q),
				Hint: "remove snapshots or backups, or ask the operator for a larger quota"}
		}
	}
	return b, most, nil
}

func (e *Engine) registerBackup(ctx context.Context, b *backup, saved *snapshot.Saved) (err error) {
	defer saved.Release()
	b.Manifest, b.Bytes, b.Stored = saved.Digest, saved.Bytes, saved.Stored
	defer func() {
		if err != nil {
			e.ledger.set(b.key(), b.Account, sandbox.Quota{})
			e.garbage.poke()
		}
	}()
	if err := e.admitUse(ctx, b.Account, b.key(), sandbox.Quota{SnapshotBytes: b.Stored}); err != nil {
		return err
	}
	value, err := json.Marshal(b)
	if err != nil {
		return sandbox.Errorf("encode backup", sandbox.Internal, "%w", err)
	}
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	_, err = e.records.Commit(ctx, record.Txn{If: []record.Cond{{Key: b.key()}}, Then: []record.Op{{Key: b.key(), Value: value}}})
	if err != nil {
		// The outcome may be unknown: what is on record decides.
		if _, lerr := e.records.Get(ctx, b.key()); sandbox.KindOf(lerr) == sandbox.NotFound {
			return err
		} else if lerr != nil {
			return errors.Join(err, lerr)
		}
	}
	e.planExpiry(b.key(), b.Expires)
	return nil
}

// backupOf returns a backup of the caller's account.
func (e *Engine) backupOf(ctx context.Context, given string) (*backup, error) {
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return nil, err
	}
	id, err := sandbox.ParseID(given)
	if err != nil {
		return nil, noBackup()
	}
	entry, err := e.records.Get(ctx, backupKey(c.Account, id))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, noBackup()
	}
	if err != nil {
		return nil, err
	}
	return decodeBackup(entry)
}

func noBackup() error {
	return &sandbox.Error{Kind: sandbox.NotFound, Err: errors.New("no such backup"), Hint: "berth backup ls lists them"}
}

// backupsOf returns the backups of an account, or of all if it is "".
func (e *Engine) backupsOf(ctx context.Context, account string) (all []*backup, err error) {
	prefix := backupPrefix
	if account != "" {
		prefix = backupKey(account, "")
	}
	err = e.eachEntry(ctx, prefix, func(entry record.Entry) error {
		b, err := decodeBackup(entry)
		if err == nil {
			all = append(all, b)
		}
		return err
	})
	return all, err
}

// Backups lists the backups of the account, the newest first; of one sandbox, if
// sandboxID is not "".
func (e *Engine) Backups(ctx context.Context, sandboxID string) ([]sandbox.Backup, error) {
	const op = "list backups"
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return nil, fail(op, "", err)
	}
	all, err := e.backupsOf(ctx, c.Account)
	if err != nil {
		return nil, fail(op, "", err)
	}
	list := []sandbox.Backup{}
	for _, b := range all {
		if sandboxID == "" || sandboxID == string(b.Sandbox) {
			list = append(list, b.Backup)
		}
	}
	slices.SortFunc(list, func(a, b sandbox.Backup) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// GetBackup returns one backup, or NotFound.
func (e *Engine) GetBackup(ctx context.Context, id string) (sandbox.Backup, error) {
	b, err := e.backupOf(ctx, id)
	if err != nil {
		return sandbox.Backup{}, fail("get backup", "", err)
	}
	return b.Backup, nil
}

// RemoveBackup removes a backup. What it shares with others stays.
func (e *Engine) RemoveBackup(ctx context.Context, id string) error {
	const op = "remove backup"
	b, err := e.backupOf(ctx, id)
	if err != nil {
		return fail(op, "", err)
	}
	return fail(op, "", e.removeBackup(ctx, b))
}

func (e *Engine) removeBackup(ctx context.Context, b *backup) error {
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	if _, err := e.records.Commit(ctx, record.Txn{Then: []record.Op{{Key: b.key(), Delete: true}}}); err != nil && !e.isGone(ctx, b.key()) {
		return err
	}
	e.timers.drop(sandbox.ID(b.key()))
	e.ledger.set(b.key(), b.Account, sandbox.Quota{})
	e.garbage.poke()
	return nil
}
