package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/sandbox"
)

// Import makes the root image of a source, or returns the one that was made of the
// same things. Its registry, if it has one, is shown login if that is not nil and
// its own. The image has no name: Prune removes it unless it is claimed. Errors are
// those of Build.
func (s *Store) Import(ctx context.Context, from string, login *sandbox.Login, force bool, progress func(sandbox.Progress)) (t sandbox.Template, err error) {
	op := fmt.Sprintf("import %.200q", from)
	src, err := s.parseImport(from, login)
	if err != nil {
		return t, fault(op, err)
	}
	progress(sandbox.Progress{Step: "look up " + from})
	r, err := src.resolve(ctx)
	if err != nil {
		return t, fault(op, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	unlock, err := s.building.Lock(ctx, "key "+r.key())
	if err != nil {
		return t, fault(op, err)
	}
	defer unlock()
	if !force {
		if t, ok, err := s.Made(ctx, r.key()); err != nil || ok {
			return t, fault(op, err)
		}
	}
	t, err = s.produce(ctx, r.key(), sandbox.Template{Source: from}, func(w *work) (config, error) { return r.fill(ctx, w, progress) }, progress)
	return t, fault(op, err)
}

func (s *Store) parseImport(from string, login *sandbox.Login) (source, error) {
	if from == sandbox.FromScratch {
		return scratch{}, nil
	}
	return s.parseSource(from, login)
}

// scratch is a root without anything in it but the fixed parts.
type scratch struct{}

func (scratch) resolve(context.Context) (root, error) { return scratch{}, nil }
func (scratch) key() string                           { return keyOf(sandbox.FromScratch) }
func (scratch) Close() error                          { return nil }
func (scratch) fill(context.Context, *work, func(sandbox.Progress)) (config, error) {
	return config{env: map[string]string{}}, nil
}

// Pack makes a root image of a tar stream of a whole root, with what t says of
// its processes and its source. The stream is as hostile as an image's layer. key
// names all that went into it, for Made. It has no name.
func (s *Store) Pack(ctx context.Context, t sandbox.Template, key string, stream io.Reader, progress func(sandbox.Progress)) (sandbox.Template, error) {
	t.Name = ""
	t, err := s.produce(ctx, key, t, func(w *work) (config, error) {
		dir, err := openTree(w.root())
		if err != nil {
			return config{}, err
		}
		said := sandbox.Progress{Step: "write root", Unit: "bytes"}
		in := &counted{ctx: ctx, r: stream, read: func(n int) {
			if said.Done += int64(n); said.Done>>26 != (said.Done-int64(n))>>26 {
				progress(said)
			}
		}}
		left := s.caps.bytes
		u := newUnpacker(dir, s.caps)
		err = u.apply(ctx, &budget{r: in, left: &left})
		if err == nil {
			err = u.finish()
		}
		return config{t.Env, t.Workdir, t.User}, errors.Join(err, dir.Close())
	}, progress)
	return t, fault("pack root", err)
}

// Made finds the root image that was made of what key names; false if there is
// none.
func (s *Store) Made(ctx context.Context, key string) (sandbox.Template, bool, error) {
	const op = "find root image"
	s.publish.Lock()
	defer s.publish.Unlock()
	infos, err := filepath.Glob(filepath.Join(s.imagesDir(), "*.json"))
	if err != nil {
		return sandbox.Template{}, false, fault(op, err)
	}
	for _, path := range infos {
		if err := ctx.Err(); err != nil {
			return sandbox.Template{}, false, fault(op, err)
		}
		e, err := readEntry(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return sandbox.Template{}, false, fault(op, err)
		}
		if e.Key == key && s.imageIsThere(e.Template) {
			return e.Template, true, nil
		}
	}
	return sandbox.Template{}, false, nil
}

// Assign gives a root image that is there a name, with all that t says, in place of
// what had the name before.
func (s *Store) Assign(ctx context.Context, t sandbox.Template) error {
	const op = "name template"
	if err := sandbox.CheckName(t.Name); err != nil {
		return fault(op, err)
	}
	unlock, err := s.building.Lock(ctx, t.Name)
	if err != nil {
		return fault(op, err)
	}
	defer unlock()
	s.publish.Lock()
	defer s.publish.Unlock()
	e, err := readEntry(s.imageInfoPath(t.Digest))
	if err != nil {
		return fault(op, err)
	}
	if !s.imageIsThere(e.Template) {
		return fault(op, &sandbox.Error{Kind: sandbox.NotFound, Err: fmt.Errorf("no root image %s", t.Digest), Hint: "build the template anew"})
	}
	return fault(op, writeEntry(s.namePath(t.Name), entry{Template: t, Key: e.Key}))
}
