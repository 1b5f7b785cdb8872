package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/edge/certs"
)

// trust finds whether this machine trusts the server's own authority. That it
// does not keeps no sandbox from running.
func (x *examination) trust(context.Context) []finding {
	path := filepath.Join(x.data, certs.AuthorityFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return one("trust", good, "", "the first server makes %s", path)
	}
	if err != nil {
		return one("trust", warn, "run it as the server's user", "%v", err)
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return one("trust", warn, "remove it and restart the server to have a new one made", "%s holds no certificate", path)
	}
	own, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return one("trust", warn, "remove it and restart the server to have a new one made", "%s: %v", path, err)
	}
	if _, err := own.Verify(x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
		return one("trust", good, "", "this machine trusts %s", path)
	}
	return one("trust", good, "to trust it: cp "+path+" /usr/local/share/ca-certificates/berth.crt && update-ca-certificates; browsers: docs/previews.md",
		"%s signs for previews, and this machine does not trust it", path)
}
