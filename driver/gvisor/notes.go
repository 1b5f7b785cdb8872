package gvisor

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// A machine's folder holds notes for a process that comes after this one was
// killed in the midst of something (see Find):
//
//	state.json   what is known of the engine that runs, or is about to: its
//	             process is in it once the machine is whole
//	aside.json   the bytes of Pause; there from before the save begins until a
//	             resume has come to its end
//	resuming     there while a resume is under way
//	reducing     there while the memory of what was saved is given up
//	engine/begun written by the engine before anything of what was saved runs
//
// So: state alone, it runs. Aside alone, it is put aside. Both, a save is under
// way. With resuming a resume, with reducing a Reduce, whatever else is there.
func (p place) stateNote() string    { return p.dir + "/state.json" }
func (p place) asideNote() string    { return p.dir + "/aside.json" }
func (p place) resumingNote() string { return p.dir + "/resuming" }
func (p place) begunNote() string    { return p.engine() + "/begun" } // the name is the engine's edit

// noteState says what engine runs, or is about to.
func (p place) noteState(s state) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return writeWhole(p.stateNote(), b)
}

// writeWhole writes a file that is seen whole or not at all.
func writeWhole(path string, b []byte) error {
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// notes is what a folder's notes say; nil for those that are not there.
type notes struct {
	state    *state
	aside    []byte
	saved    saved // what aside holds
	resuming bool
	reducing bool
}

// readNotes reads them. One that is damaged counts as not there: no step is
// taken on what it might have said.
func (p place) readNotes() (notes, error) {
	var n notes
	b, err := os.ReadFile(p.stateNote())
	if err == nil {
		var s state
		if json.Unmarshal(b, &s) == nil && s.Version == stateVersion {
			n.state = &s
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return n, err
	}
	b, err = os.ReadFile(p.asideNote())
	if err == nil {
		if json.Unmarshal(b, &n.saved) == nil && n.saved.Version == stateVersion {
			n.aside = b
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return n, err
	}
	_, err = os.Stat(p.resumingNote())
	n.resuming = err == nil
	_, err = os.Stat(p.reducingNote())
	n.reducing = err == nil
	return n, nil
}

// openBegun makes the note that the engine is to write.
func (p place) openBegun() (*os.File, error) {
	return os.OpenFile(p.begunNote(), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
}

// begun reports whether what was saved has begun to run: then it has changed its layer,
// and what was saved is void. Not to know is to take it for that.
func (p place) begun() bool {
	st, err := os.Lstat(p.begunNote())
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return err != nil || st.Size() > 0
}

// removeAll removes files and folders; those that are not there are no error.
func removeAll(paths ...string) error {
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}
