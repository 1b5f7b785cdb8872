// Package tarball turns folders into tar streams and tar streams into folders.
//
// Both sides work beneath an os.Root, which no name and no link leaves. Neither
// holds more than a buffer of a file's bytes, whatever its size.
package tarball

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// Counts is what was packed or unpacked.
type Counts struct {
	Files   int64
	Folders int64
	Links   int64 // symbolic and hard
	Bytes   int64 // of the files
}

// EntryError says which entry of a stream is refused, and why.
type EntryError struct {
	Name   string
	Reason string
}

func (e *EntryError) Error() string { return fmt.Sprintf("entry %.200q: %s", e.Name, e.Reason) }

// ErrMalformed is what an error wraps when a stream is no tar stream.
var ErrMalformed = errors.New("it is not a tar stream")

// maxDepth bounds folders within folders.
const maxDepth = 1000

// localName checks a name of a stream and makes it canonical: relative, without
// "..", "." for the folder itself.
func localName(name string) (string, error) {
	refuse := func(reason string) (string, error) { return "", &EntryError{name, reason} }
	switch {
	case name == "":
		return refuse("it has no name")
	case name[0] == '/':
		return refuse("the name is absolute")
	case strings.ContainsRune(name, 0):
		return refuse("the name holds a NUL byte")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return refuse("the name leads upwards")
		}
	}
	clean := path.Clean(name)
	if strings.Count(clean, "/") >= maxDepth {
		return refuse("it lies too deep")
	}
	return clean, nil
}

// staysInside reports whether a symbolic link at name, whose parents are real
// folders, leads to a place beneath the root as far as its text tells. Upward
// steps count only at the front: behind a name, that name might be a link too.
func staysInside(name, target string) bool {
	if target == "" || target[0] == '/' {
		return false
	}
	depth, down := strings.Count(name, "/"), false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; down || depth < 0 {
				return false
			}
		default:
			down = true
		}
	}
	return true
}
