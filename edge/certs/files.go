package certs

import (
	"crypto/tls"
	"os"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// lookEvery is how often the files are looked at for a newer certificate.
const lookEvery = 10 * time.Second

// Files is a certificate of the operator's, which may be replaced while it is
// served.
type Files struct {
	cert, key string
	now       func() time.Time

	mu     sync.Mutex
	loaded *tls.Certificate
	stamp  time.Time // of the newer file, when it was loaded
	looked time.Time
}

// OpenFiles reads a certificate with its chain, and its key, both in PEM.
func OpenFiles(cert, key string, now func() time.Time) (*Files, error) {
	f := &Files{cert: cert, key: key, now: now}
	if err := f.load(); err != nil {
		return nil, &sandbox.Error{Op: "open certificate", Kind: sandbox.Invalid, Err: err,
			Hint: "give --tls-cert a file with the certificate and its chain, and --tls-key one with its key, both in PEM"}
	}
	return f, nil
}

func (f *Files) load() error {
	c, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return err
	}
	f.loaded, f.stamp, f.looked = &c, f.newest(), f.now()
	return nil
}

func (f *Files) newest() (t time.Time) {
	for _, path := range []string{f.cert, f.key} {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(t) {
			t = info.ModTime()
		}
	}
	return t
}

// Certificate is the newest that could be read: two files that are being replaced
// do not fit each other for a moment.
func (f *Files) Certificate() (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.now(); now.Sub(f.looked) >= lookEvery {
		f.looked = now
		if !f.newest().Equal(f.stamp) {
			_ = f.load() // what was read before serves on
		}
	}
	return f.loaded, nil
}
