package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// tools names, for each program that builds run, the distribution's packages
// that bring it and the files it needs beside it.
var tools = map[string]struct {
	packages []string
	files    []string
}{
	"mmdebstrap": {[]string{"mmdebstrap", "debian-archive-keyring"}, []string{"/usr/share/keyrings/debian-archive-keyring.gpg"}},
	"mkfs.erofs": {[]string{"erofs-utils"}, nil},
}

// install makes sure that a program is here: with apt-get on a Debian or
// Ubuntu host, otherwise by asking for it.
func install(ctx context.Context, say func(sandbox.Progress), program string) error {
	if present(program) {
		return nil
	}
	pkgs := strings.Join(tools[program].packages, " ")
	refuse := &sandbox.Error{Kind: sandbox.Unsupported, Err: fmt.Errorf("%s is not installed", program),
		Hint: "install it: apt-get install " + pkgs}
	if _, err := os.Stat("/etc/debian_version"); err != nil {
		refuse.Hint = "install " + program + " (Debian's packages " + pkgs + "), or bring the root as an OCI image"
		return refuse
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return refuse
	}
	steps := aptSteps{say: say, now: sandbox.Progress{Step: "install " + program}, updating: true}
	for _, argv := range [][]string{
		{"apt-get", "update"},
		append([]string{"apt-get", "install", "--yes", "--no-install-recommends"}, tools[program].packages...),
	} {
		c := command{argv: argv, env: []string{"DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"}}
		if err := c.run(ctx, steps.line); err != nil {
			return &sandbox.Error{Err: err, Hint: "install it by hand: apt-get install " + pkgs}
		}
	}
	if !present(program) {
		return refuse
	}
	return nil
}

func present(program string) bool {
	if _, err := exec.LookPath(program); err != nil {
		return false
	}
	for _, f := range tools[program].files {
		if _, err := os.Stat(f); err != nil {
			return false
		}
	}
	return true
}
