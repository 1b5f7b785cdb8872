package image

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// defaultSuite is the distribution release that the default template is made
// from, whatever the host runs: sandboxes are then alike everywhere.
const defaultSuite = "bookworm"

// packages is what the default template holds beyond the essential ones.
var packages = []string{
	"bash", "coreutils", "findutils", "git", "curl", "wget", "jq", "file", "procps", "sudo",
	"python3", "python3-pip", "python3-venv", "nodejs", "npm", "inotify-tools", "ripgrep", "squashfs-tools",
	"ca-certificates", "openssh-client", "locales", "less", "vim-tiny", "tar", "gzip", "xz-utils", "unzip",
	"iproute2", "iputils-ping", "attr", "python-is-python3",
}

// dpkgOptions leave out what no program reads. They stay in force inside, so
// that packages installed later are as small. Unpacking without a sync per file
// is safe in a root that is thrown away unless it is built to its end.
var dpkgOptions = []string{
	"force-unsafe-io",
	"path-exclude=/usr/share/man/*",
	"path-exclude=/usr/share/info/*",
	"path-exclude=/usr/share/doc/*",
	"path-include=/usr/share/doc/*/copyright",
	"path-exclude=/usr/share/locale/*/LC_MESSAGES/*",
}

// localeHook makes en_US.UTF-8; C.UTF-8 is part of the C library's package.
const localeHook = `sed -i 's/^# *en_US\.UTF-8 UTF-8/en_US.UTF-8 UTF-8/' "$1/etc/locale.gen" && chroot "$1" locale-gen >/dev/null && echo LANG=C.UTF-8 >"$1/etc/default/locale"`

var suitePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{1,30}$`)

// distribution is a root made of a Debian or Ubuntu release's packages.
type distribution struct{ suite, mirror string }

func parseDistribution(suite, mirror string) (d distribution, err error) {
	if !suitePattern.MatchString(suite) {
		return d, invalid("name a release, such as distribution:"+defaultSuite, "%.80q is not the name of a release", suite)
	}
	return distribution{suite, mirror}, nil
}

func (d distribution) resolve(context.Context) (root, error) { return d, nil }

func (d distribution) Close() error { return nil }

func (d distribution) key() string {
	return keyOf("distribution", d.suite, d.mirror, packages, dpkgOptions, localeHook)
}

func (d distribution) fill(ctx context.Context, w *work, say func(sandbox.Progress)) (config, error) {
	if err := install(ctx, say, "mmdebstrap"); err != nil {
		return config{}, err
	}
	argv := []string{"mmdebstrap", "--mode=root", "--format=directory", "--variant=apt", "--verbose",
		"--include=" + strings.Join(packages, ","), "--customize-hook=" + localeHook}
	for _, o := range dpkgOptions {
		argv = append(argv, "--dpkgopt="+o)
	}
	argv = append(argv, d.suite, w.root())
	if d.mirror != "" {
		argv = append(argv, d.mirror)
	}
	c := command{argv: argv, env: []string{"TMPDIR=" + w.temp(), "LC_ALL=C.UTF-8"}, lock: w.lock, enclosed: true}
	steps := aptSteps{say: say}
	if err := c.run(ctx, steps.line); err != nil {
		return config{}, d.explain(err)
	}
	return config{env: map[string]string{"LANG": "C.UTF-8"}}, nil
}

// explain adds what can be done about the failures that users meet.
func (d distribution) explain(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := &sandbox.Error{Kind: sandbox.Internal, Err: err, Hint: "the last lines of the output say why"}
	text := err.Error()
	for _, sign := range []string{"Temporary failure resolving", "Could not connect", "Connection timed out", "Could not resolve", "Unable to connect", "Network is unreachable"} {
		if strings.Contains(text, sign) {
			e.Kind, e.Hint = sandbox.Unavailable, "the distribution's mirror cannot be reached from this machine: check the network, the proxy settings or the configured mirror"
		}
	}
	for _, sign := range []string{"does not have a Release file", "404  Not Found", "unknown suite", "Unable to locate package"} {
		if strings.Contains(text, sign) {
			e.Kind, e.Hint = sandbox.Invalid, fmt.Sprintf("%q has no such release or packages: use a Debian or Ubuntu release, such as distribution:%s", d.suite, defaultSuite)
		}
	}
	return e
}
