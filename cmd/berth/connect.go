package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

const (
	defaultURL  = client.DefaultURL
	defaultData = "/var/lib/berth"
)

// dataDir is the local server's data directory: BERTH_DATA, or the default.
func dataDir() string { return envOr("BERTH_DATA", defaultData) }

// connect makes the client of the server that the flags name. It sends nothing.
func (p *program) connect() (*client.Client, error) {
	key, err := p.apiKey()
	if err != nil {
		return nil, err
	}
	return client.New(p.url, key, client.WithAccount(p.account)), nil
}

// apiKey is --key, BERTH_API_KEY, or the admin key of the local data directory,
// in this order.
func (p *program) apiKey() (string, error) {
	if p.key != "" {
		return p.key, nil
	}
	if k := os.Getenv("BERTH_API_KEY"); k != "" {
		return k, nil
	}
	path := filepath.Join(dataDir(), adminKeyFile)
	b, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	hint := "set BERTH_API_KEY or give --key; on the server's machine, BERTH_DATA names its data directory"
	if errors.Is(err, fs.ErrPermission) {
		hint = "run it as the user of the server, or set BERTH_API_KEY"
	}
	return "", &sandbox.Error{Op: "find API key", Kind: sandbox.Unauthorized, Err: err, Hint: hint}
}
