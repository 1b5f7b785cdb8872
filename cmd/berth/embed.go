package main

import (
	"embed"
	"errors"
	"io/fs"

	"github.com/berth-dev/berth/sandbox"
)

// embedded holds the guest program, the engine and the gateway of MCP servers when this binary was made by
// "make build".
//
//go:embed all:embedded
var embedded embed.FS

// guestProgram returns the bytes of berth-guest, or Unsupported when this
// binary was built without it.
func guestProgram() ([]byte, error) {
	b, err := embedded.ReadFile("embedded/berth-guest")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &sandbox.Error{Op: "load guest", Kind: sandbox.Unsupported,
			Err:  errors.New("this binary was built without the guest program"),
			Hint: "build with: make build"}
	}
	return b, err
}

// hasGuest is guestProgram without its bytes.
func hasGuest() error {
	f, err := embedded.Open("embedded/berth-guest")
	if err == nil {
		return f.Close()
	}
	_, err = guestProgram()
	return err
}

// engineProgram opens berth-engine, or tells that this binary was built without it.
func engineProgram() (fs.File, error) {
	f, err := embedded.Open("embedded/berth-engine")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &sandbox.Error{Op: "load engine", Kind: sandbox.Unsupported,
			Err:  errors.New("this binary was built without the engine"),
			Hint: "build with: make build"}
	}
	return f, err
}

// mcpProgram returns the bytes of berth-mcp, or Unsupported when this binary was built
// without it.
func mcpProgram() ([]byte, error) {
	b, err := embedded.ReadFile("embedded/berth-mcp")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &sandbox.Error{Op: "load the MCP gateway", Kind: sandbox.Unsupported,
			Err:  errors.New("this binary was built without the gateway of MCP servers"),
			Hint: "build with: make build"}
	}
	return b, err
}
