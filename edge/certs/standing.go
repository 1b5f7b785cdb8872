package certs

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// failedDir is where, beside the certificates, a file named like each domain says why
// there is none, or no newer one.
const failedDir = "failed"

// failedKeep is how long that is kept for a domain that nobody visits any more.
const failedKeep = 30 * 24 * time.Hour

// Standing is how things are with the public certificate of one name.
type Standing struct {
	Name    string
	Expires time.Time // zero: there is none
	Failed  time.Time // when the last try failed; zero: it did not
	Reason  string    // of that failure
}

// failure is a file of failedDir.
type failure struct {
	Time  time.Time `json:"time"`
	Error string    `json:"error"`
}

// Standings tells of all names for which an ACME whose folder is dir has tried to get a
// certificate, by name. It may be called while another process uses the folder; one that
// is not there has none.
func Standings(dir string) ([]Standing, error) {
	all := map[string]*Standing{}
	of := func(name string) *Standing {
		if all[name] == nil {
			all[name] = &Standing{Name: name}
		}
		return all[name]
	}
	files, err := filepath.Glob(filepath.Join(dir, "certificates", "*", "*", "*.crt"))
	if err != nil {
		return nil, standingFault(dir, err)
	}
	for _, file := range files {
		until, err := expiry(file)
		if err != nil {
			return nil, standingFault(file, err)
		}
		if s := of(strings.TrimSuffix(filepath.Base(file), ".crt")); until.After(s.Expires) {
			s.Expires = until
		}
	}
	err = eachFailure(dir, func(name string, f failure) error {
		s := of(name)
		s.Failed, s.Reason = f.Time, f.Error
		return nil
	})
	if err != nil {
		return nil, err
	}
	list := make([]Standing, 0, len(all))
	for _, s := range all {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b Standing) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func standingFault(path string, err error) error {
	return &sandbox.Error{Op: "read certificates " + path, Kind: sandbox.Internal, Err: err}
}

// expiry is when the certificate in a file ends.
func expiry(file string) (time.Time, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return time.Time{}, errors.New("it holds no certificate")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, err
	}
	return c.NotAfter, nil
}

// eachFailure calls f for each failure that is noted in an ACME's folder.
func eachFailure(dir string, f func(name string, what failure) error) error {
	entries, err := os.ReadDir(filepath.Join(dir, failedDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return standingFault(dir, err)
	}
	for _, e := range entries {
		if sandbox.CheckHostName(e.Name()) != nil {
			continue // one that is being written
		}
		b, err := os.ReadFile(filepath.Join(dir, failedDir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var what failure
		if err == nil {
			err = json.Unmarshal(b, &what)
		}
		if err == nil {
			err = f(e.Name(), what)
		}
		if err != nil {
			return standingFault(filepath.Join(dir, failedDir, e.Name()), err)
		}
	}
	return nil
}

// noteFailure keeps why a name got no certificate, for Standings.
func noteFailure(dir, name string, what failure) error {
	if err := sandbox.CheckHostName(name); err != nil {
		return err
	}
	b, err := json.Marshal(what)
	if err != nil {
		return err
	}
	folder := filepath.Join(dir, failedDir)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // it has its other name if all went well
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(folder, name))
}

// forgetFailure ends what noteFailure keeps.
func forgetFailure(dir, name string) error {
	if err := sandbox.CheckHostName(name); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, failedDir, name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// pruneFailures forgets those that are too old, and halves that were left.
func pruneFailures(dir string, now time.Time) error {
	halves, err := filepath.Glob(filepath.Join(dir, failedDir, ".new-*"))
	if err != nil {
		return err
	}
	for _, half := range halves {
		if err := os.Remove(half); err != nil {
			return err
		}
	}
	return eachFailure(dir, func(name string, what failure) error {
		if now.Sub(what.Time) < failedKeep {
			return nil
		}
		return forgetFailure(dir, name)
	})
}
