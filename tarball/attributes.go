package tarball

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// attributePrefix begins the records of a stream that are extended attributes.
	attributePrefix = "SCHILY.xattr."

	maxAttributes     = 64       // of one entry, with their names' bytes bounded by what the kernel takes
	maxAttributeBytes = 64 << 10 // of all values of one entry
)

// attributes are the extended attributes of an open file that go with it: file
// capabilities and what users have set. Others belong to the system that it lies on.
// One that goes away meanwhile, or cannot be read, is left out; what exceeds the
// bounds too.
func attributes(f *os.File) map[string]string {
	list := make([]byte, unix.PathMax)
	n, err := unix.Flistxattr(int(f.Fd()), list)
	if err != nil || n == 0 {
		return nil
	}
	records, room := map[string]string{}, maxAttributeBytes
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if name != "security.capability" && !strings.HasPrefix(name, "user.") {
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
