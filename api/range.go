package api

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// byteRange is one range of a Range header. Last is -1 for "to the end"; a
// suffix asks for the last Last bytes.
type byteRange struct {
	first, last int64
	suffix      bool
}

// parseRange reads a Range header; none, or one of another unit, is nil. Of
// several ranges none is served: the whole file is a valid answer then.
func parseRange(header string) (*byteRange, error) {
	set, ok := strings.CutPrefix(header, "bytes=")
	if !ok || strings.Contains(set, ",") {
		return nil, nil
	}
	bad := &sandbox.Error{Op: "read Range header", Kind: sandbox.Invalid, Err: fmt.Errorf("%.80q is malformed", header),
		Hint: "a range looks like bytes=0-99, bytes=100- or bytes=-100"}
	from, to, ok := strings.Cut(strings.TrimSpace(set), "-")
	if !ok || from == "" && to == "" {
		return nil, bad
	}
	r := &byteRange{last: -1}
	var err error
	if to != "" {
		if r.last, err = digits(to); err != nil {
			return nil, bad
		}
	}
	if from == "" {
		r.suffix = true
		return r, nil
	}
	if r.first, err = digits(from); err != nil || r.last >= 0 && r.last < r.first {
		return nil, bad
	}
	return r, nil
}

func digits(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err
}

// of returns the part of a file of that size that the range selects.
func (b *byteRange) of(size int64) (sandbox.ReadRange, error) {
	first, end := b.first, size
	switch {
	case b.suffix:
		first = max(0, size-b.last)
	case b.last >= 0 && b.last < size:
		end = b.last + 1
	}
	if first >= end {
		return sandbox.ReadRange{}, &sandbox.Error{Op: "read file", Kind: sandbox.Invalid, Err: &rangeError{size}}
	}
	return sandbox.ReadRange{Offset: first, Length: end - first}, nil
}

// rangeError says that a file has nothing in the range asked for. It has a
// status of its own, which clients that resume downloads know.
type rangeError struct{ size int64 }

func (e *rangeError) Error() string {
	return fmt.Sprintf("the range lies outside the file's %d bytes", e.size)
}
func (e *rangeError) contentRange() string { return fmt.Sprintf("bytes */%d", e.size) }
