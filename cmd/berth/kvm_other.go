//go:build !amd64

package main

import (
	"errors"
	"runtime"
)

func bootKVM() error { return errors.New("no boot probe for " + runtime.GOARCH) }
