package sandbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds on what is asked of files.
const (
	MaxGlobBytes       = 1024     // of one pattern
	MaxAttributes      = 64       // of one entry
	MaxAttributeName   = 200      // bytes, without the namespace
	MaxAttributeBytes  = 32 << 10 // of one value
	MaxSignedURLExpiry = 7 * 24 * time.Hour
)

// FindQuery selects what lies beneath a folder, in the order of ListDir.
type FindQuery struct {
	Path  string // the folder
	Glob  string // of the path beneath it: * ? [a-z] {a,b}, and ** for folders; without a slash, of the name at any depth
	Depth int    // 1: the entries alone; 0 means as deep as the pattern may reach
	Limit int    // 1 to 10,000; 0 means 10,000
	After string // path of the last entry that the caller has
}

// FileChange is what to set of an entry; nil and "" leave as it is. Links are
// followed, except beneath a folder.
type FileChange struct {
	Mode      *uint32    // 0 to 07777
	Owner     string     // "name", "uid" or "uid:gid"
	Modified  *time.Time // nanoseconds are kept
	Recursive bool       // mode and owner of all that a folder holds too
	Create    bool       // make an empty file if nothing is there
	User      string     // owner of what Create makes; "" means the template's
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (c *FileChange) Check() error {
	switch {
	case c.Mode != nil && *c.Mode > 0o7777:
		return Errorf("check mode", Invalid, "mode %o is out of range, 0 to 7777 are taken", *c.Mode)
	case c.Mode == nil && c.Owner == "" && c.Modified == nil && !c.Create:
		return &Error{Op: "check change", Kind: Invalid, Err: fmt.Errorf("nothing is to be changed"),
			Hint: "give mode, owner, modified or create"}
	case c.Modified != nil && (c.Modified.Year() < 1902 || c.Modified.Year() > 2261):
		return Errorf("check time", Invalid, "the year %d is out of range, 1902 to 2261 are taken", c.Modified.Year())
	}
	return nil
}

// CopyOptions says how an entry is copied inside a sandbox. Modes, times, owners
// and links are kept.
type CopyOptions struct {
	Recursive bool // a folder with all that it holds
	Replace   bool // let a file take the place of what is there, a folder mix with one
}

// FileHash is what a sandbox says of the bytes of a file.
type FileHash struct {
	SHA256 string `json:"sha256"` // 64 hex digits
	Size   int64  `json:"size"`   // bytes that were read
}

// ArchiveOptions says what form a tar stream has.
type ArchiveOptions struct {
	Gzip     bool
	Excludes []string // see BackupRequest
}

// UnpackOptions says how a tar stream becomes files. The stream may be packed
// with gzip.
type UnpackOptions struct {
	User      string // owner of what is made; "" means the template's
	KeepOwner bool   // give entries the numbers that the stream has instead
}

// Unpacked counts what a tar stream became.
type Unpacked struct {
	Files   int64 `json:"files"`
	Folders int64 `json:"folders"`
	Links   int64 `json:"links"` // symbolic and hard
	Bytes   int64 `json:"bytes"` // of the files
}

// Attributes are extended attributes of an entry, by name, in the namespace that
// belongs to users. Values may be any bytes.
type Attributes map[string][]byte

// AttributeChange sets some attributes and removes others. Removing one that is
// not there is no error.
type AttributeChange struct {
	Set    Attributes
	Remove []string
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (c *AttributeChange) Check() error {
	if len(c.Set)+len(c.Remove) > MaxAttributes {
		return Errorf("check attributes", Invalid, "%d attributes, at most %d are taken", len(c.Set)+len(c.Remove), MaxAttributes)
	}
	for name, value := range c.Set {
		if err := checkAttribute(name); err != nil {
			return err
		}
		if len(value) > MaxAttributeBytes {
			return Errorf("check attributes", Invalid, "the value of %q has %d bytes, at most %d are taken", name, len(value), MaxAttributeBytes)
		}
	}
	for _, name := range c.Remove {
		if err := checkAttribute(name); err != nil {
			return err
		}
		if _, both := c.Set[name]; both {
			return Errorf("check attributes", Invalid, "%q is to be set and removed", name)
		}
	}
	return nil
}

func checkAttribute(name string) error {
	if name == "" || len(name) > MaxAttributeName || strings.ContainsRune(name, 0) || !utf8.ValidString(name) {
		return &Error{Op: "check attributes", Kind: Invalid, Err: fmt.Errorf("%.80q is not an attribute's name", name),
			Hint: fmt.Sprintf("a name has 1 to %d bytes of UTF-8, without the namespace", MaxAttributeName)}
	}
	return nil
}

// CheckGlob reports an error of kind Invalid unless p can be a pattern: its
// length, and the parts that cost time, are bounded. Its grammar is the guest's
// to check.
func CheckGlob(p string) error {
	switch {
	case p == "" || len(p) > MaxGlobBytes:
		return Errorf("check pattern", Invalid, "the pattern has %d bytes, 1 to %d are taken", len(p), MaxGlobBytes)
	case strings.ContainsRune(p, 0):
		return Errorf("check pattern", Invalid, "the pattern holds a NUL byte")
	case strings.Count(p, "**") > 8 || strings.Count(p, "{") > 8:
		return Errorf("check pattern", Invalid, "the pattern has more than 8 of ** or {")
	}
	return nil
}

// Raw is the exact bytes of a text whose JSON form cannot hold them: nil for
// valid UTF-8. It crosses JSON in base64.
func Raw(s string) []byte {
	if utf8.ValidString(s) {
		return nil
	}
	return []byte(s)
}

// Exact undoes Raw: the bytes if there are any, else the text.
func Exact(text string, raw []byte) string {
	if len(raw) > 0 {
		return string(raw)
	}
	return text
}

// rawFileInfo is a FileInfo with what JSON text cannot hold.
type rawFileInfo struct {
	plainFileInfo
	NameB64   []byte `json:"name_b64,omitempty"`
	PathB64   []byte `json:"path_b64,omitempty"`
	TargetB64 []byte `json:"target_b64,omitempty"`
}

// plainFileInfo is a FileInfo without its methods.
type plainFileInfo FileInfo

// MarshalJSON adds name_b64, path_b64 and target_b64 when those are not UTF-8;
// their text forms are then for people only.
func (f FileInfo) MarshalJSON() ([]byte, error) {
	return json.Marshal(rawFileInfo{plainFileInfo(f), Raw(f.Name), Raw(f.Path), Raw(f.Target)})
}

// UnmarshalJSON undoes MarshalJSON.
func (f *FileInfo) UnmarshalJSON(b []byte) error {
	var r rawFileInfo
	if err := json.Unmarshal(b, &r); err != nil {
		return err
	}
	*f = FileInfo(r.plainFileInfo)
	f.Name, f.Path, f.Target = Exact(f.Name, r.NameB64), Exact(f.Path, r.PathB64), Exact(f.Target, r.TargetB64)
	return nil
}
