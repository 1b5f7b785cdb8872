package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-dev/berth/blob/memory"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

// mortalTemplates is a store of templates as one process sees it.
type mortalTemplates struct {
	*templates
	fate *fate
}

func (m mortalTemplates) Assign(ctx context.Context, t sandbox.Template) error {
	return m.fate.pass("templates assign", func() error { return m.templates.Assign(ctx, t) })
}

// guestTown is a town with an archive whose puppets have guests.
func guestTown(t *testing.T) (*town, *memory.Store) {
	x := newTown(t, sandbox.Running)
	if err := x.e.Close(); err != nil {
		t.Fatal(err)
	}
	withGuests(t, x.h.world)
	b, dir := &memory.Store{}, t.TempDir()
	x.archive = func(f *fate) engine.Archive { return mortalArchive{shelfOf(t, b, dir), f} }
	x.more = func(c *engine.Config, f *fate) { c.Templates = mortalTemplates{x.h.templates, f} }
	if err := x.open(-1, ""); err != nil {
		t.Fatal(err)
	}
	return x, b
}

// app is built of one step, and has a command that goes on in its sandboxes.
var app = sandbox.BuildRequest{Name: "app", Dockerfile: "FROM base\nRUN true\n", Start: "sleep 1", Ready: "true"}

// TestBuildCrashes breaks a build at each of its steps. After the next start there is
// the template, whole, or there is none; nothing that was worked in is left, and nothing
// that was started for a template that does not have it.
func TestBuildCrashes(t *testing.T) {
	for at := 0; crashBuild(t, at, killedAfter) && crashBuild(t, at, errorBefore); at++ {
	}
}

// crashBuild is false if there is no such step.
func crashBuild(t *testing.T, at int, how fault) bool {
	t.Helper()
	x, b := guestTown(t)
	ctx := operator(t)
	x.fate.arm(at, how)
	_, err := x.e.BuildTemplate(ctx, app, nil)
	steps := x.fate.taken()
	if len(steps) <= at {
		if err != nil || at == 0 {
			t.Fatalf("undisturbed: %v after %q", err, steps)
		}
		x.fate.arm(-1, "")
		x.builtWhole(true, b, "undisturbed")
		return false
	}
	what := fmt.Sprintf("%s step %d (%s)", how, at, steps[at])
	if x.fate.isDead() {
		if err := x.open(-1, ""); err != nil {
			t.Fatalf("%s: open: %v", what, err)
		}
	}
	x.builtWhole(err == nil, b, what)
	return true
}

// builtWhole holds what is there to what must be there, then takes all away.
func (x *town) builtWhole(done bool, b *memory.Store, how string) {
	x.t.Helper()
	ctx := operator(x.t)
	if live := x.h.world.ids(); len(live) != 1 {
		x.t.Errorf("%s: machines %q", how, live)
	}
	t, err := x.e.Template(ctx, app.Name)
	if err != nil && (done || sandbox.KindOf(err) != sandbox.NotFound) {
		x.t.Errorf("%s: the template: %v", how, err)
	}
	all, serr := x.e.Snapshots(ctx, sandbox.SnapshotQuery{})
	if serr != nil {
		x.t.Fatal(serr)
	}
	for _, s := range all {
		if s.ID != t.Snapshot && !strings.HasPrefix(s.Name, "build-") {
			x.t.Errorf("%s: a snapshot is left that no template has: %+v", how, s)
		}
	}
	if err == nil {
		if s, err := x.e.Create(ctx, sandbox.CreateRequest{Template: app.Name}); err != nil {
			x.t.Errorf("%s: the template is of no use: %v", how, err)
		} else if err := x.e.Remove(ctx, string(s.ID)); err != nil {
			x.t.Errorf("%s: %v", how, err)
		}
		if err := x.e.RemoveTemplate(ctx, app.Name); err != nil {
			x.t.Errorf("%s: remove the template: %v", how, err)
		}
	}
	for _, s := range all {
		if err := x.e.RemoveSnapshot(ctx, string(s.ID)); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			x.t.Errorf("%s: remove a snapshot: %v", how, err)
		}
	}
	x.swept(b, how)
}

// TestBackupCrashes breaks a backup, and its removal, at each step. What was acknowledged
// is there after the next start, whole; what was not is there whole or not at all.
func TestBackupCrashes(t *testing.T) {
	for _, removing := range []bool{false, true} {
		for at := 0; ; at++ {
			ok := true
			for _, how := range []fault{errorBefore, errorAfter, killedBefore, killedAfter} {
				ok = crashBackup(t, removing, at, how) && ok
			}
			if !ok {
				break
			}
		}
	}
}

// crashBackup is false if there is no such step.
func crashBackup(t *testing.T, removing bool, at int, how fault) bool {
	t.Helper()
	x, b := guestTown(t)
	ctx := operator(t)
	verb := func() error {
		_, err := x.e.Backup(ctx, "box", sandbox.BackupRequest{Path: "/workspace"})
		return err
	}
	if removing {
		made, err := x.e.Backup(ctx, "box", sandbox.BackupRequest{Path: "/workspace"})
		if err != nil {
			t.Fatal(err)
		}
		verb = func() error { return x.e.RemoveBackup(ctx, string(made.ID)) }
	}
	x.fate.arm(at, how)
	err := verb()
	steps := x.fate.taken()
	if len(steps) <= at {
		if err != nil || at == 0 {
			t.Fatalf("undisturbed: %v after %q", err, steps)
		}
		return false
	}
	if how == errorAfter && steps[at] != "commit" {
		return true // an error of the others means that it was not done
	}
	what := fmt.Sprintf("removing %v: %s step %d (%s)", removing, how, at, steps[at])
	if x.fate.isDead() {
		if err := x.open(-1, ""); err != nil {
			t.Fatalf("%s: open: %v", what, err)
		}
	}
	all, lerr := x.e.Backups(ctx, "")
	if lerr != nil || err == nil && (len(all) == 0) != removing {
		t.Errorf("%s: acknowledged %v, there are %d, %v", what, err == nil, len(all), lerr)
	}
	for _, one := range all {
		if u, err := x.e.RestoreBackup(ctx, "box", sandbox.RestoreBackupRequest{Backup: string(one.ID), Path: "/workspace/back"}); err != nil || u.Files != 1 {
			t.Errorf("%s: it is listed and does not serve: %+v, %v", what, u, err)
		}
		if err := x.e.RemoveBackup(ctx, string(one.ID)); err != nil {
			t.Errorf("%s: remove: %v", what, err)
		}
	}
	if used := x.e.Used(sandbox.MainAccount).SnapshotBytes; used != 0 {
		t.Errorf("%s: %d bytes are still used", what, used)
	}
	x.swept(b, what)
	return true
}
