package guest

import (
	"errors"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// Bounds on extended attributes.
const (
	namespace      = "user."
	maxAttributes  = 64
	maxAttrName    = 200
	maxAttrValue   = 32 << 10
	maxAttrNames   = 64 << 10 // bytes of all names; the kernel's own bound
	maxAttrValues  = 1 << 20  // bytes of all values that are told
	noAttributes   = "this file system keeps no extended attributes: use one that does, such as that of /workspace"
	badAttrMessage = "a name has 1 to 200 bytes of UTF-8, without the namespace"
)

// getAttributes gives what an entry, whose links are followed, has.
func (g *Guest) getAttributes(p string) ([]*guestv1.Attribute, error) {
	f, err := g.openEntry(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAttributes(f)
}

// setAttributes sets and removes, then gives all there are.
func (g *Guest) setAttributes(r *guestv1.SetAttributesRequest) ([]*guestv1.Attribute, error) {
	if len(r.Set)+len(r.Remove) > maxAttributes {
		return nil, refuse(invalid, "", "%d attributes, at most %d are taken", len(r.Set)+len(r.Remove), maxAttributes)
	}
	for _, a := range r.Set {
		if err := checkAttribute(a.Name); err != nil {
			return nil, err
		}
		if len(a.Value) > maxAttrValue {
			return nil, refuse(invalid, "", "a value of %d bytes, at most %d are taken", len(a.Value), maxAttrValue)
		}
	}
	f, err := g.openEntry(string(r.Path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for _, a := range r.Set {
		if err := unix.Fsetxattr(int(f.Fd()), namespace+a.Name, a.Value, 0); err != nil {
			return nil, attributeError(err)
		}
	}
	for _, name := range r.Remove {
		if err := checkAttribute(name); err != nil {
			return nil, err
		}
		if err := unix.Fremovexattr(int(f.Fd()), namespace+name); err != nil && !errors.Is(err, unix.ENODATA) {
			return nil, attributeError(err)
		}
	}
	return readAttributes(f)
}

func checkAttribute(name string) error {
	if name == "" || len(name) > maxAttrName || strings.ContainsRune(name, 0) || !utf8.ValidString(name) {
		return refuse(invalid, badAttrMessage, "%.80q is not an attribute's name", name)
	}
	return nil
}

func attributeError(err error) error {
	if errors.Is(err, unix.ENOTSUP) {
		return refuse(unsupported, noAttributes, "%w", err)
	}
	if errors.Is(err, unix.ENODATA) {
		return refuse(notFound, "", "%w", err)
	}
	return fromOS(err)
}

// openEntry opens a file or a folder; devices and pipes have no attributes of
// users.
func (g *Guest) openEntry(p string) (*os.File, error) {
	name, err := cleanPath(p)
	if err != nil {
		return nil, err
	}
	f, err := g.files.open(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, fromOS(err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() && !info.IsDir() {
		f.Close()
		return nil, refuse(invalid, "", "%.200q is neither a file nor a folder", name)
	}
	return f, nil
}

// readAttributes gives those of the users' namespace, sorted by name.
func readAttributes(f *os.File) ([]*guestv1.Attribute, error) {
	list := make([]byte, maxAttrNames)
	n, err := unix.Flistxattr(int(f.Fd()), list)
	if err != nil {
		return nil, attributeError(err)
	}
	var all []*guestv1.Attribute
	total := 0
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		short, ours := strings.CutPrefix(name, namespace)
		if !ours || short == "" || !utf8.ValidString(short) {
			continue
		}
		value := make([]byte, 64<<10) // the kernel's own bound
		n, err := unix.Fgetxattr(int(f.Fd()), name, value)
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, attributeError(err)
		}
		if total += n; total > maxAttrValues {
			return nil, refuse(exhausted, "", "the attributes have more than %d bytes", maxAttrValues)
		}
		all = append(all, &guestv1.Attribute{Name: short, Value: slices.Clone(value[:n])})
	}
	slices.SortFunc(all, func(a, b *guestv1.Attribute) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// copyAttributes carries them to another file, where that has any.
func copyAttributes(from, to *os.File) error {
	all, err := readAttributes(from)
	if codeOf(err) == unsupported {
		return nil
	}
	if err != nil {
		return err
	}
	for _, a := range all {
		err := unix.Fsetxattr(int(to.Fd()), namespace+a.Name, a.Value, 0)
		if err != nil && !errors.Is(err, unix.ENOTSUP) {
			return err
		}
	}
	return nil
}
