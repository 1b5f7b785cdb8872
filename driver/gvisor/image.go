package gvisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cpuid"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/sandbox"
)

// image says where the parts of a machine lie that others are made of. A
// captured folder is one, and so is what a pause has left in a machine's folder.
type image struct {
	about  driver.About
	inner  inner
	engine string      // folder of what the engine wrote: memory, or the tree of the layer's names
	layer  string      // file
	bases  []string    // in which the rest of the layer lies; in a captured folder there are none
	frozen bool        // nobody writes the layer any more
	guest  string      // file of the guest's image; "" with KeepDisk
	left   *left       // private memory that is not in engine, but only named there
	feed   driver.Feed // tells what of the private memory in engine is there; nil: all is
}

// inner is what an image's children need to know and nobody else may.
type inner struct {
	Version int             `json:"version"`
	Secret  guestapi.Secret `json:"secret"`          // opens the guest that was captured
	Guest   string          `json:"guest,omitempty"` // name of its image
	Sums    sums            `json:"sums,omitempty"`  // of what the engine wrote
	About   uint32          `json:"about,omitempty"` // the sum of the note for others
}

// Parts of a captured folder, beside driver.AboutName.
const (
	innerName  = "machine.json"
	engineName = "engine"
	layerName  = "layer"
	guestFile  = "guest.erofs"
)

// maxNote bounds the bytes of an image's JSON files.
const maxNote = 64 << 10

// guestImageName is of the guest's images, as guestImage makes them.
var guestImageName = regexp.MustCompile(`^guest-[0-9a-f]{16}\.erofs$`)

// imageIn is the image in a captured folder.
func imageIn(dir string) image {
	return image{engine: filepath.Join(dir, engineName), layer: filepath.Join(dir, layerName), frozen: true, guest: filepath.Join(dir, guestFile)}
}

// describe fills in what is known of a machine before it is captured.
func (d *Driver) describe(p place, s state, keep driver.Keep) (image, error) {
	limits, err := p.limits()
	if err != nil {
		return image{}, fmt.Errorf("read limits: %w", err)
	}
	img := image{
		about: driver.About{Format: driver.AboutFormat, Class: d.Class(), Engine: engineVersion, Arch: runtime.GOARCH, Keep: keep, Limits: limits},
		inner: inner{Version: stateVersion},
	}
	if keep == driver.KeepMemory {
		img.about.CPU = features()
		img.inner.Secret, img.inner.Guest = s.Secret, filepath.Base(s.Guest)
		img.guest = filepath.Join(d.dir, s.Guest)
	}
	return img, nil
}

// measure fills in the sizes of what was captured.
func (i *image) measure() error {
	var err error
	if i.about.Disk, err = stored(append(i.bases, i.layer)...); err != nil {
		return err
	}
	if i.about.Keep != driver.KeepMemory {
		return nil
	}
	i.about.Memory = 0
	var st unix.Stat_t
	for _, name := range []string{pagesName, coldName} {
		pages := filepath.Join(i.engine, name)
		if err := unix.Stat(pages, &st); err != nil {
			return &fs.PathError{Op: "stat", Path: pages, Err: err}
		}
		i.about.Memory += st.Size
	}
	return nil
}

// write makes dir, which holds the image's parts, a captured folder.
func (i *image) write(dir string) error {
	about, err := json.MarshalIndent(i.about, "", "  ")
	if err != nil {
		return err
	}
	i.inner.About = crc32.Checksum(about, sumTable)
	if i.inner.Sums, err = sumFolder(filepath.Join(dir, engineName)); err != nil {
		return err
	}
	b, err := sumNote(i.inner)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, innerName), b, 0o600); err != nil {
		return err
	}
	return writeWhole(filepath.Join(dir, driver.AboutName), about)
}

// readImage reads a captured folder and checks that this driver can use it.
func (d *Driver) readImage(dir string) (image, error) {
	i := imageIn(dir)
	if err := readNote(filepath.Join(dir, driver.AboutName), &i.about); err != nil {
		return i, err
	}
	if err := d.Fits(i.about); err != nil {
		return i, err
	}
	if err := readSummed(filepath.Join(dir, innerName), &i.inner); err != nil {
		return i, err
	}
	parts := []string{i.layer}
	if i.about.Keep == driver.KeepMemory {
		parts = append(parts, i.guest)
		for _, name := range []string{stateName, pagesName, pagesMetaName, coldIndexName, coldName} {
			parts = append(parts, filepath.Join(i.engine, name))
		}
		if !guestImageName.MatchString(i.inner.Guest) {
			return i, notWhole(fmt.Errorf("%q is not a guest's image", i.inner.Guest))
		}
	}
	if st, err := os.Lstat(i.engine); err != nil || !st.IsDir() {
		return i, notWhole(errors.Join(err, fmt.Errorf("%s is not a folder", engineName)))
	}
	for _, p := range parts {
		if st, err := os.Lstat(p); err != nil || !st.Mode().IsRegular() {
			return i, notWhole(errors.Join(err, fmt.Errorf("%s is not a file", filepath.Base(p))))
		}
	}
	if err := i.about.Limits.Check(); err != nil {
		return i, notWhole(err)
	}
	return i, i.checkSums(dir)
}

// checkSums compares what a captured folder holds with what was written, the layer and
// the private memory left out.
func (i *image) checkSums(dir string) error {
	if i.inner.Sums == nil {
		return nil // an earlier build wrote it
	}
	about := sums{driver.AboutName: i.inner.About}
	if err := about.check(dir); err != nil {
		return err
	}
	return i.inner.Sums.check(i.engine)
}

// readNote reads a JSON file of bounded size.
func readNote(path string, into any) error {
	f, err := os.Open(path)
	if err != nil {
		return notWhole(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxNote+1))
	if err == nil && len(b) > maxNote {
		err = fmt.Errorf("%s: more than %d bytes", filepath.Base(path), maxNote)
	}
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(b)).Decode(into)
	}
	if err != nil {
		return notWhole(err)
	}
	return nil
}

func notWhole(err error) error {
	return &sandbox.Error{Op: "read what was captured", Kind: sandbox.Invalid, Err: err, Hint: "it is damaged, or its capture never ended: take another"}
}

// Fits implements driver.Snapshotter.
func (d *Driver) Fits(a driver.About) error {
	unfit := func(hint, format string, args ...any) error {
		return &sandbox.Error{Op: "check what was captured", Kind: sandbox.Unsupported, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	switch {
	case a.Format != driver.AboutFormat:
		return unfit("use the version of berth that made it", "format %d is unknown, this is %d", a.Format, driver.AboutFormat)
	case a.Class != d.Class():
		return unfit("", "it is of class %.40q, this is %q", a.Class, d.Class())
	case a.Keep != driver.KeepMemory && a.Keep != driver.KeepDisk:
		return unfit("use the version of berth that made it", "%.40q is kept in it", a.Keep)
	case a.Keep == driver.KeepDisk:
		return nil
	case a.Engine != engineVersion:
		return unfit("its disk alone can be used, its memory by the version of berth that made it", "it was made by %.80q, this is %q", a.Engine, engineVersion)
	case a.Arch != runtime.GOARCH:
		return unfit("its memory can be used on a machine of that kind alone", "it was made on %.20q, this is %q", a.Arch, runtime.GOARCH)
	}
	here := map[string]bool{}
	for _, f := range features() {
		here[f] = true
	}
	var lacking []string
	for _, f := range a.CPU {
		if !here[f] {
			lacking = append(lacking, f)
		}
	}
	if len(lacking) > 0 {
		return unfit("its memory can be used on a processor that has them", "this processor lacks %.200q", lacking)
	}
	return nil
}

// features are those of this processor that a program may find and come to use.
var features = sync.OnceValue(func() []string {
	cpuid.Initialize()
	return strings.Fields(cpuid.HostFeatureSet().FlagString())
})

// kind is what the machine's engine was started as.
func (p place) kind(guest string) (kind, error) {
	limits, err := p.limits()
	if err != nil {
		return kind{}, err
	}
	s, err := p.spec()
	if err != nil {
		return kind{}, err
	}
	return kindOf(driver.Spec{Root: s.Annotations[rootAnnotation], Limits: limits}, guest), nil
}

// spec is what the machine's engine was told.
func (p place) spec() (*specs.Spec, error) {
	b, err := os.ReadFile(filepath.Join(p.bundle(), "config.json"))
	if err != nil {
		return nil, err
	}
	var s specs.Spec
	return &s, json.Unmarshal(b, &s)
}

// limits are those that the machine's engine was started with.
func (p place) limits() (sandbox.Limits, error) {
	s, err := p.spec()
	if err != nil {
		return sandbox.Limits{}, err
	}
	l := sandbox.DefaultLimits()
	if err := parseLayerOptions(s.Annotations[optionsAnnotation], &l); err != nil {
		return l, err
	}
	if s.Process == nil || s.Linux == nil || s.Linux.Resources == nil || s.Linux.Resources.Memory == nil || s.Linux.Resources.Memory.Limit == nil {
		return l, errors.New("the bundle lacks limits")
	}
	l.MemoryBytes = *s.Linux.Resources.Memory.Limit
	for _, r := range s.Process.Rlimits {
		switch r.Type {
		case "RLIMIT_NOFILE":
			l.OpenFiles = int64(r.Hard)
		case "RLIMIT_NPROC":
			l.Processes = int64(r.Hard)
		}
	}
	return l, nil
}
