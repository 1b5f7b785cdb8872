package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Build makes a template, or returns the present one when it was built from the
// same things and req does not force a new build. A build of the same name that
// is under way is waited for. progress is told of every step, from one goroutine
// at a time; it may be nil.
//
// Errors: Invalid (the request, or an image that is none), NotFound (no such
// image), Exhausted (a full disk, or an image beyond the bounds), Unsupported (a
// missing program or right), Unavailable (a registry or mirror out of reach). A
// build that fails, or that is killed, changes nothing.
func (s *Store) Build(ctx context.Context, req sandbox.BuildRequest, progress func(sandbox.Progress)) (sandbox.Template, error) {
	op := "build template " + req.Name
	if progress == nil {
		progress = func(sandbox.Progress) {}
	}
	if err := sandbox.CheckName(req.Name); err != nil {
		return sandbox.Template{}, fault("build template", err)
	}
	src, err := s.parseSource(req.From, req.Login)
	if err != nil {
		return sandbox.Template{}, fault(op, err)
	}
	unlock, err := s.building.Lock(ctx, req.Name)
	if err != nil {
		return sandbox.Template{}, fault(op, err)
	}
	defer unlock()
	t, err := s.build(ctx, req, src, progress)
	return t, fault(op, err)
}

func (s *Store) build(ctx context.Context, req sandbox.BuildRequest, src source, say func(sandbox.Progress)) (t sandbox.Template, err error) {
	say(sandbox.Progress{Step: "look up " + req.From})
	r, err := src.resolve(ctx)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if !req.Force {
		if t, ok, err := s.cached(req, r.key()); err != nil || ok {
			return t, err
		}
	}
	t = sandbox.Template{Name: req.Name, Source: req.From, Policy: req.Policy}
	return s.produce(ctx, r.key(), t, func(w *work) (config, error) { return r.fill(ctx, w, say) }, say)
}

// produce makes the root image of a template from the tree that fill makes, and
// names it, if it has a name. What is said of its processes is fill's, unless t
// says it.
func (s *Store) produce(ctx context.Context, key string, t sandbox.Template, fill func(*work) (config, error), say func(sandbox.Progress)) (_ sandbox.Template, err error) {
	if os.Geteuid() != 0 {
		return t, &sandbox.Error{Kind: sandbox.Unsupported, Err: errors.New("building needs root"),
			Hint: "run the server as root: the files of a template keep their owners"}
	}
	if err := install(ctx, say, "mkfs.erofs"); err != nil {
		return t, err
	}
	w, err := s.newWork()
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, w.remove()) }()
	c, err := fill(w)
	if err != nil {
		return t, err
	}
	if err := fix(w.root(), c); err != nil {
		return t, err
	}
	t.Env, t.Workdir, t.User, t.Created = c.env, c.workdir, c.user, time.Now().UTC()
	t.Digest, t.Size, err = makeImage(ctx, w, say)
	if err != nil {
		return sandbox.Template{}, err
	}
	if err := s.publishImage(w.image(), entry{Template: t, Key: key}); err != nil {
		return sandbox.Template{}, err
	}
	return t, nil
}

// fix opens the finished tree and gives it the fixed parts.
func fix(dir string, c config) error {
	t, err := openTree(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(fixParts(t, c.workdir), t.Close()); err != nil {
		return fmt.Errorf("add the fixed parts: %w", err)
	}
	return nil
}

// cached finds a build of the same things: of that name, or of another, whose
// image then gets this name too.
func (s *Store) cached(req sandbox.BuildRequest, key string) (sandbox.Template, bool, error) {
	s.publish.Lock()
	defer s.publish.Unlock()
	all, err := s.entries()
	if err != nil {
		return sandbox.Template{}, false, err
	}
	var twin *entry
	for _, e := range all {
		if e.Key != key || !s.imageIsThere(e.Template) {
			continue
		}
		if e.Template.Name == req.Name && reflect.DeepEqual(e.Template.Policy, req.Policy) {
			return e.Template, true, nil
		}
		twin = &e
	}
	if twin == nil {
		return sandbox.Template{}, false, nil
	}
	twin.Template.Name, twin.Template.Source, twin.Template.Policy = req.Name, req.From, req.Policy
	if err := writeEntry(s.namePath(req.Name), *twin); err != nil {
		return sandbox.Template{}, false, err
	}
	return twin.Template, true, nil
}

// imageIsThere reports whether the template's root image is there, whole.
func (s *Store) imageIsThere(t sandbox.Template) bool {
	info, err := os.Stat(s.RootPath(t))
	return err == nil && info.Size() == t.Size
}

// publishImage moves a finished image to its place and names it, the name last; one
// without a name is found by what it was built from.
func (s *Store) publishImage(path string, e entry) error {
	s.publish.Lock()
	defer s.publish.Unlock()
	if err := os.Rename(path, s.RootPath(e.Template)); err != nil {
		return err
	}
	if err := writeEntry(s.imageInfoPath(e.Template.Digest), e); err != nil || e.Template.Name == "" {
		return err
	}
	return writeEntry(s.namePath(e.Template.Name), e)
}
