package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// sums are what the files that an engine reads whole came to when they were written,
// by their names. Private memory has sums of its own, in its index: the engine compares
// them when the memory is first used.
type sums map[string]uint32

var sumTable = crc32.MakeTable(crc32.Castagnoli)

// sumFolder takes the sums of the files in a folder of the engine's.
func sumFolder(dir string) (sums, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	all := sums{}
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), coldName) {
			continue
		}
		if all[e.Name()], err = sumFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func sumFile(path string) (uint32, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	h := crc32.New(sumTable)
	_, err = io.CopyBuffer(h, onlyReader{f}, make([]byte, 1<<20))
	return h.Sum32(), err
}

// check compares the sums with the files in a folder. Those that earlier builds have
// written have none.
func (s sums) check(dir string) error {
	for name, want := range s {
		got, err := sumFile(filepath.Join(dir, name))
		if err != nil {
			return notWhole(err)
		}
		if got != want {
			return notWhole(fmt.Errorf("%s: its bytes are not those that were written", name))
		}
	}
	return nil
}

// sumSaved gives the bytes of Pause with the sums of what the engine wrote, and notes
// them for who finds the machine.
func (p place) sumSaved(s saved) (b []byte, err error) {
	if s.Sums, err = sumFolder(p.saved()); err != nil {
		return nil, err
	}
	if b, err = json.Marshal(s); err != nil {
		return nil, err
	}
	return b, writeWhole(p.asideNote(), b)
}

// check is sums.check for what a pause has left, which is all that there is of a
// machine.
func (s *saved) check(p place) error {
	if err := s.Sums.check(p.saved()); err != nil {
		return &sandbox.Error{Op: "check what was saved", Kind: sandbox.Internal, Err: errors.New(err.Error()), Hint: "it is damaged, and cannot be taken up: go on from a snapshot"}
	}
	return nil
}

// summed is a note with its sum.
type summed struct {
	Note json.RawMessage `json:"note"`
	Sum  uint32          `json:"sum"`
}

// sumNote gives a note with its sum.
func sumNote(note any) ([]byte, error) {
	b, err := json.Marshal(note)
	if err != nil {
		return nil, err
	}
	return json.Marshal(summed{b, crc32.Checksum(b, sumTable)})
}

// readSummed reads a file that sumNote gave, or the note alone, as earlier builds wrote
// it.
func readSummed(path string, into any) error {
	var s summed
	if err := readNote(path, &s); err != nil {
		return err
	}
	if s.Note == nil {
		return readNote(path, into)
	}
	if crc32.Checksum(s.Note, sumTable) != s.Sum {
		return notWhole(fmt.Errorf("%s: its bytes are not those that were written", filepath.Base(path)))
	}
	if err := json.Unmarshal(s.Note, into); err != nil {
		return notWhole(err)
	}
	return nil
}
