// Command engineedit lays a copy of the gVisor module into a directory, adds
// the files under lay to it and makes the few edits that Berth needs of it, then
// writes a go.mod beside it that builds with that copy.
//
// An edit names a line by a short piece of it that occurs once in its file;
// when the piece is missing or ambiguous the build stops, so that an upgrade of
// the module can never drop an edit unseen.
package main

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "gvisor.dev/gvisor"

// added are whole files of Berth's own, each at its place in the module with
// addedSuffix behind its name.
//
//go:embed lay
var added embed.FS

const addedSuffix = ".in"

func main() {
	out := flag.String("out", "build", "directory that receives the copy, go.mod and go.sum")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "engineedit:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	src, version, err := locate()
	if err != nil {
		return err
	}
	dst := filepath.Join(out, "gvisor")
	stamp := filepath.Join(out, "gvisor.stamp")
	want, err := fingerprint(version)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(stamp); err != nil || string(have) != want {
		if err := lay(src, dst); err != nil {
			return err
		}
		if err := os.WriteFile(stamp, []byte(want), 0o644); err != nil {
			return err
		}
	}
	return writeModFile(out)
}

// locate downloads the module if need be and returns its directory.
func locate() (dir, version string, err error) {
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return "", "", fmt.Errorf("download %s: %w", module, err)
	}
	var m struct{ Dir, Version string }
	if err := json.Unmarshal(b, &m); err != nil {
		return "", "", fmt.Errorf("download %s: %w", module, err)
	}
	return m.Dir, m.Version, nil
}

func fingerprint(version string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, version)
	for _, e := range slices.Concat(edits, coldEdits, quickEdits, sizeEdits, stillEdits, layerEdits, attributeEdits, snapEdits, initEdits, stateEdits, shelfEdits, spawnEdits, turnsEdits, fuseEdits, begunEdits) {
		fmt.Fprintf(h, "%q\n", e)
	}
	err := eachAdded(func(name string, b []byte) error {
		_, err := fmt.Fprintf(h, "%q %q\n", name, b)
		return err
	})
	return fmt.Sprintf("%x\n", h.Sum(nil)), err
}

// eachAdded calls fn with the place in the module and the content of each file
// that is added to it.
func eachAdded(fn func(name string, b []byte) error) error {
	return fs.WalkDir(added, "lay", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := added.ReadFile(p)
		if err != nil {
			return err
		}
		return fn(strings.TrimSuffix(strings.TrimPrefix(p, "lay/"), addedSuffix), b)
	})
}

// lay copies src to dst with the edits made. dst appears whole or not at all.
func lay(src, dst string) error {
	tmp := dst + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := copyTree(src, tmp); err != nil {
		return fmt.Errorf("copy %s: %w", module, err)
	}
	for _, e := range slices.Concat(edits, coldEdits, quickEdits, sizeEdits, stillEdits, layerEdits, attributeEdits, snapEdits, initEdits, stateEdits, shelfEdits, spawnEdits, turnsEdits, fuseEdits, begunEdits) {
		if err := e.apply(tmp); err != nil {
			return err
		}
	}
	if err := eachAdded(func(name string, b []byte) error { return add(tmp, name, b) }); err != nil {
		return err
	}
	if err := os.RemoveAll(dst); err != nil {
		return err
	}
	return os.Rename(tmp, dst)
}

func copyTree(src, dst string) error {
	return filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, p)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o644)
	})
}

// add writes a file that the module must not have itself.
func add(root, name string, b []byte) error {
	f, err := os.OpenFile(filepath.Join(root, filepath.FromSlash(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

func (e edit) apply(root string) error {
	p := filepath.Join(root, e.File)
	b, err := os.ReadFile(p)
	if err != nil {
		return fmt.Errorf("edit %s: %w", e.File, err)
	}
	if n := bytes.Count(b, []byte(e.At)); n != 1 {
		return fmt.Errorf("edit %s (%s): %q occurs %d times, want once", e.File, e.Why, e.At, n)
	}
	with := e.Replace
	if with == "" {
		with = e.At + e.After
	}
	b = bytes.Replace(b, []byte(e.At), []byte(with), 1)
	return os.WriteFile(p, b, 0o644)
}

// writeModFile writes out/go.mod: the module's own, with the edited copy in
// place of the original. It is used through go's -modfile flag.
func writeModFile(out string) error {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		return err
	}
	rel := filepath.ToSlash(filepath.Join(out, "gvisor"))
	if !filepath.IsAbs(rel) {
		rel = "./" + rel
	}
	mod = append(bytes.TrimRight(mod, "\n"), fmt.Sprintf("\n\nreplace %s => %s\n", module, rel)...)
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		return err
	}
	return errors.Join(
		writeIfChanged(filepath.Join(out, "go.mod"), mod),
		writeIfChanged(filepath.Join(out, "go.sum"), sum))
}

// writeIfChanged keeps the file's time when nothing changed, for make's sake.
func writeIfChanged(p string, b []byte) error {
	if have, err := os.ReadFile(p); err == nil && bytes.Equal(have, b) {
		return nil
	}
	return os.WriteFile(p, b, 0o644)
}
