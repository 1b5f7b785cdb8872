package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/berth-dev/berth/keylock"
	"github.com/berth-dev/berth/sandbox"
)

// Options says how a Store builds. The zero value is good.
type Options struct {
	Mirror string // of the distribution; "" means the distribution's own

	// MCPGateway is the program that templates with MCP servers have; nil: there is none.
	MCPGateway func() ([]byte, error)
}

// Store keeps templates and their root images. All methods may be called at
// once from many goroutines. One process at a time has a directory open.
type Store struct {
	dir    string
	mirror string
	caps   caps

	mcpGateway func() ([]byte, error)

	building keylock.Locks // by template name
	working  sync.Mutex    // over making and sweeping work directories
	publish  sync.Mutex    // over changes to metadata and images
}

// Open opens the store in dir (<data>/templates), which it makes when absent,
// and removes what dead builds left there.
func Open(dir string, opts Options) (*Store, error) {
	const op = "open templates"
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fault(op, err)
	}
	s := &Store{dir: abs, mirror: opts.Mirror, caps: defaultCaps, mcpGateway: opts.MCPGateway}
	for _, d := range []string{s.dir, s.imagesDir(), s.workDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fault(op, err)
		}
	}
	if err := errors.Join(s.sweepWork(), s.sweepImages(), syncDir(s.dir)); err != nil {
		return nil, fault(op, err)
	}
	return s, nil
}

// Base is how the default template is built.
func (s *Store) Base() sandbox.BuildRequest {
	return sandbox.BuildRequest{Name: sandbox.DefaultTemplate, From: "distribution:" + defaultSuite}
}

// RootPath is the absolute path of the template's EROFS image.
func (s *Store) RootPath(t sandbox.Template) string {
	return filepath.Join(s.imagesDir(), strings.TrimPrefix(t.Digest, digestPrefix)+".erofs")
}

// Get returns the template of that name, or the image of that digest
// ("sha256:…"), which also serves images whose name was built anew since.
func (s *Store) Get(ctx context.Context, name string) (sandbox.Template, error) {
	const op = "get template"
	if err := ctx.Err(); err != nil {
		return sandbox.Template{}, fault(op, err)
	}
	e, err := s.lookup(name)
	return e.Template, fault(op, err)
}

// lookup reads the entry of a name or a digest.
func (s *Store) lookup(name string) (entry, error) {
	path := s.namePath(name)
	if strings.HasPrefix(name, digestPrefix) {
		if err := checkDigest(name); err != nil {
			return entry{}, err
		}
		path = s.imageInfoPath(name)
	} else if err := sandbox.CheckName(name); err != nil {
		return entry{}, err
	}
	e, err := readEntry(path)
	if errors.Is(err, os.ErrNotExist) {
		return entry{}, s.unknown(name)
	}
	if err != nil {
		return entry{}, err
	}
	if _, err := os.Stat(s.RootPath(e.Template)); err != nil {
		return entry{}, &sandbox.Error{Kind: sandbox.Internal, Err: fmt.Errorf("root image of %s: %w", name, err),
			Hint: "build the template anew with force"}
	}
	return e, nil
}

// unknown says what there is and how to get the rest.
func (s *Store) unknown(name string) error {
	hint := "build it from a distribution, an OCI image or an archive: berth template build NAME --from distribution:" + defaultSuite
	if all, err := s.entries(); err == nil && len(all) > 0 {
		var names []string
		for _, e := range all[:min(len(all), 20)] {
			names = append(names, e.Template.Name)
		}
		hint = "there is " + strings.Join(names, ", ") + "; " + hint
	}
	return &sandbox.Error{Kind: sandbox.NotFound, Err: fmt.Errorf("no template %q", name), Hint: hint}
}

// List returns the named templates, sorted by name.
func (s *Store) List(ctx context.Context) ([]sandbox.Template, error) {
	const op = "list templates"
	if err := ctx.Err(); err != nil {
		return nil, fault(op, err)
	}
	all, err := s.entries()
	if err != nil {
		return nil, fault(op, err)
	}
	list := make([]sandbox.Template, 0, len(all))
	for _, e := range all {
		list = append(list, e.Template)
	}
	return list, nil
}

// Remove removes the template of that name, and its root image when no other
// name refers to it; or, by digest, an image without a name. A sandbox that is
// to start from the image again needs it: callers check for that.
func (s *Store) Remove(ctx context.Context, name string) error {
	const op = "remove template"
	if err := ctx.Err(); err != nil {
		return fault(op, err)
	}
	s.publish.Lock()
	defer s.publish.Unlock()
	e, err := s.lookup(name)
	if err != nil {
		return fault(op, err)
	}
	users, err := s.namesOf(e.Template.Digest)
	if err != nil {
		return fault(op, err)
	}
	if strings.HasPrefix(name, digestPrefix) && len(users) > 0 {
		return &sandbox.Error{Op: op, Kind: sandbox.Conflict, Err: fmt.Errorf("%s is the image of %s", name, strings.Join(users, ", ")),
			Hint: "remove the template by its name"}
	}
	if !strings.HasPrefix(name, digestPrefix) {
		if err := os.Remove(s.namePath(name)); err != nil {
			return fault(op, err)
		}
		users = slices.DeleteFunc(users, func(n string) bool { return n == name })
	}
	if len(users) == 0 {
		if err := s.removeImage(e.Template); err != nil {
			return fault(op, err)
		}
	}
	return fault(op, syncDir(s.dir))
}

// Unnamed lists the images that no name refers to, by digest. They stay when a
// template is built anew.
func (s *Store) Unnamed(ctx context.Context) ([]sandbox.Litter, error) {
	const op = "list unnamed templates"
	s.publish.Lock()
	defer s.publish.Unlock()
	infos, err := filepath.Glob(filepath.Join(s.imagesDir(), "*.json"))
	if err != nil {
		return nil, fault(op, err)
	}
	var all []sandbox.Litter
	for _, path := range infos {
		if err := ctx.Err(); err != nil {
			return nil, fault(op, err)
		}
		e, err := readEntry(path)
		if err != nil {
			return nil, fault(op, err)
		}
		users, err := s.namesOf(e.Template.Digest)
		if err != nil {
			return nil, fault(op, err)
		}
		if len(users) > 0 {
			continue
		}
		l := sandbox.Litter{Kind: sandbox.LitterTemplate, Name: e.Template.Digest}
		if info, err := os.Stat(s.RootPath(e.Template)); err == nil {
			l.Bytes = info.Size()
		}
		all = append(all, l)
	}
	return all, nil
}

// Prune removes the images that no name refers to and inUse does not claim, and
// returns their digests. Such images stay when a template is built anew.
func (s *Store) Prune(ctx context.Context, inUse func(digest string) bool) ([]string, error) {
	const op = "prune templates"
	s.publish.Lock()
	defer s.publish.Unlock()
	infos, err := filepath.Glob(filepath.Join(s.imagesDir(), "*.json"))
	if err != nil {
		return nil, fault(op, err)
	}
	var removed []string
	for _, path := range infos {
		if err := ctx.Err(); err != nil {
			return removed, fault(op, err)
		}
		e, err := readEntry(path)
		if err != nil {
			return removed, fault(op, err)
		}
		users, err := s.namesOf(e.Template.Digest)
		if err != nil {
			return removed, fault(op, err)
		}
		if len(users) > 0 || inUse(e.Template.Digest) {
			continue
		}
		if err := s.removeImage(e.Template); err != nil {
			return removed, fault(op, err)
		}
		removed = append(removed, e.Template.Digest)
	}
	return removed, nil
}

// removeImage removes an image and what is said of it, which goes first: an
// image without it is swept at the next Open.
func (s *Store) removeImage(t sandbox.Template) error {
	for _, path := range []string{s.imageInfoPath(t.Digest), s.RootPath(t)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return syncDir(s.imagesDir())
}

func (s *Store) imagesDir() string { return filepath.Join(s.dir, "images") }
func (s *Store) workDir() string   { return filepath.Join(s.dir, "work") }

func (s *Store) namePath(name string) string { return filepath.Join(s.dir, name+".json") }

func (s *Store) imageInfoPath(digest string) string {
	return filepath.Join(s.imagesDir(), strings.TrimPrefix(digest, digestPrefix)+".json")
}
