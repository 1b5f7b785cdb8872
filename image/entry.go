package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

const digestPrefix = "sha256:"

// entry is what the store's JSON files hold.
type entry struct {
	Template sandbox.Template `json:"template"`
	Key      string           `json:"key"` // of all that went into the build
}

// maxEntry bounds an entry's file.
const maxEntry = 4 << 20

func readEntry(path string) (entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return entry{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEntry))
	if err != nil {
		return entry{}, err
	}
	var e entry
	if err := json.Unmarshal(b, &e); err != nil {
		return entry{}, fmt.Errorf("read %s: %w", path, err)
	}
	if err := checkDigest(e.Template.Digest); err != nil {
		return entry{}, fmt.Errorf("read %s: %w", path, err)
	}
	return e, nil
}

// writeEntry writes e so that path holds the old bytes or the new ones, also
// after the loss of power.
func writeEntry(path string, e entry) error {
	b, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// entries reads all named templates, sorted by name.
func (s *Store) entries() ([]entry, error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var all []entry
	for _, f := range files {
		name, isEntry := strings.CutSuffix(f.Name(), ".json")
		if !isEntry || sandbox.CheckName(name) != nil {
			continue
		}
		e, err := readEntry(s.namePath(name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.Template.Name, b.Template.Name) })
	return all, nil
}

// namesOf lists the templates whose image is of that digest.
func (s *Store) namesOf(digest string) ([]string, error) {
	all, err := s.entries()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range all {
		if e.Template.Digest == digest {
			names = append(names, e.Template.Name)
		}
	}
	return names, nil
}

// sweepImages removes what a crash left while an image or a template was
// published or removed.
func (s *Store) sweepImages() error {
	for _, dir := range []string{s.dir, s.imagesDir()} {
		half, err := filepath.Glob(filepath.Join(dir, ".new-*"))
		if err != nil {
			return err
		}
		for _, path := range half {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	images, err := filepath.Glob(filepath.Join(s.imagesDir(), "*.erofs"))
	if err != nil {
		return err
	}
	for _, path := range images {
		_, err := os.Stat(strings.TrimSuffix(path, ".erofs") + ".json")
		if errors.Is(err, os.ErrNotExist) {
			err = os.Remove(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func checkDigest(d string) error {
	hex, ok := strings.CutPrefix(d, digestPrefix)
	if !ok || len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		return invalid("an image's digest is sha256: and 64 lower-case hex digits", "%.80q is not a digest", d)
	}
	return nil
}

// syncDir makes the names in dir survive the loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
