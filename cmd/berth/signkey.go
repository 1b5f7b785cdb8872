package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/sandbox"
)

// signKeyFile holds the secret that URLs of files are signed with. Another one,
// or none, at a start ends every URL that was signed before.
const signKeyFile = "sign.key"

// signSecret returns the secret of a data directory, made at the first start.
func signSecret(dir string) ([]byte, error) {
	path := filepath.Join(dir, signKeyFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		secret := make([]byte, api.MinSignSecret)
		rand.Read(secret) // never fails: it ends the program instead
		return secret, writeSecret(path, hex.EncodeToString(secret)+"\n")
	}
	if err != nil {
		return nil, dataError(path, err)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(secret) < api.MinSignSecret {
		return nil, &sandbox.Error{Op: "read sign key", Kind: sandbox.Invalid, Err: fmt.Errorf("%s does not hold a secret", path),
			Hint: "it is 64 hex digits; remove the file to have a new one made, which ends every URL that was signed"}
	}
	return secret, nil
}
