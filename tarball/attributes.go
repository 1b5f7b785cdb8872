package tarball

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// attributePrefix begins the records of a stream that are extended attributes.
	attributePrefix = "SCHILY.xattr."

	// capability is the attribute that gives a program capabilities.
	capability = "security.capability"

	maxAttributes     = 64       // of one entry, with their names' bytes bounded by what the kernel takes
	maxAttributeBytes = 64 << 10 // of all values of one entry
)

// travels reports whether an attribute goes with its file: file capabilities and what
// users have set. Others belong to the system that the file lies on.
func travels(name string) bool { return name == capability || strings.HasPrefix(name, "user.") }

// Attributes are the records of a stream's entry that go with it wherever it goes; nil
// if there are none.
func Attributes(records map[string]string) map[string]string {
	var found map[string]string
	for record, value := range records {
		if name, ok := strings.CutPrefix(record, attributePrefix); ok && travels(name) {
			if found == nil {
				found = map[string]string{}
			}
			found[record] = value
		}
	}
	return found
}

// AttributesOf are the extended attributes of an open file that go with it, as records
// of a stream's entry; nil if there are none. One that goes away meanwhile, or cannot be
// read, is left out; what exceeds the bounds too.
func AttributesOf(f *os.File) map[string]string {
	list := make([]byte, unix.PathMax)
	n, err := unix.Flistxattr(int(f.Fd()), list)
	if err != nil || n == 0 {
		return nil
	}
	records, room := map[string]string{}, maxAttributeBytes
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if !travels(name) {
			continue
		}
		value := make([]byte, room)
		m, err := unix.Fgetxattr(int(f.Fd()), name, value)
		if err != nil || len(records) == maxAttributes {
			continue
		}
		records[attributePrefix+name] = string(value[:m])
		room -= m
	}
	return records
}

// setAttributes gives an open file what its entry has. What users have set is left out
// where the disk keeps no such thing; a capability is not, for the program would not
// work.
func setAttributes(f *os.File, entry string, records map[string]string) error {
	wanted := Attributes(records)
	if len(wanted) > maxAttributes {
		return &EntryError{entry, fmt.Sprintf("it has more than %d attributes", maxAttributes)}
	}
	for record, value := range wanted {
		name := strings.TrimPrefix(record, attributePrefix)
		err := unix.Fsetxattr(int(f.Fd()), name, []byte(value), 0)
		switch {
		case err == nil:
		case name != capability && (errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.E2BIG)):
		case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ERANGE) || errors.Is(err, unix.E2BIG):
			return &EntryError{entry, fmt.Sprintf("its attribute %.100q is malformed", name)}
		default:
			return fmt.Errorf("set attribute %.100q: %w", name, err)
		}
	}
	return nil
}
