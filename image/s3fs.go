package image

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/berth-dev/berth/sandbox"
)

// withS3FS, behind what a distribution's root is called, asks for the program that mounts
// buckets.
const withS3FS = "+s3fs"

// installS3FS installs the release's own package. Programs that mount ask fusermount(1) to
// do it, which inside has no right to: the guest's program answers by that name, and the
// release's own keeps another, after every upgrade too.
const installS3FS = `set -e; export DEBIAN_FRONTEND=noninteractive
for name in fusermount fusermount3; do
dpkg-divert --quiet --local --rename --divert /bin/$name.distrib --add /bin/$name
done
dpkg-statoverride --add root root 0755 /bin/fusermount3
apt-get -q -o APT::Sandbox::User=root update
apt-get -q -y -o APT::Sandbox::User=root install --no-install-recommends s3fs fuse3
apt-get clean; rm -rf /var/lib/apt/lists/*
for name in fusermount fusermount3; do ln -s /.berth/berth-guest /bin/$name; done
sed -i 's/^#user_allow_other/user_allow_other/' /etc/fuse.conf
s3fs --version >/dev/null`

// s3fsRoot is a distribution's root, with interpreters for code or without, and s3fs. It is
// filled on the host, as that is.
type s3fsRoot struct {
	store *Store
	from  string // the source of the other
	inner root
}

// parseS3FS is the source of a root that is like another with s3fs.
func parseS3FS(s *Store, from string, inner source) (source, error) {
	r, ok := inner.(root) // a distribution's are settled without being looked up
	if !ok {
		return nil, invalid(sourceHint, "s3fs cannot be added to %.80q", from)
	}
	return s3fsRoot{s, from, r}, nil
}

func (r s3fsRoot) resolve(context.Context) (root, error) { return r, nil }

func (r s3fsRoot) Close() error { return nil }

func (r s3fsRoot) key() string { return keyOf("s3fs", r.inner.key(), installS3FS, enter) }

func (r s3fsRoot) fill(ctx context.Context, w *work, say func(sandbox.Progress)) (config, error) {
	base, err := r.store.Import(ctx, r.from, nil, false, say)
	if err != nil {
		return config{}, err
	}
	say(sandbox.Progress{Step: "copy " + r.from})
	if err := unpackImage(ctx, w, r.store.RootPath(base)); err != nil {
		return config{}, fmt.Errorf("copy the root: %w", err)
	}
	t, err := openTree(w.root())
	if err != nil {
		return config{}, err
	}
	if err := errors.Join(lendNames(t), t.Close()); err != nil {
		return config{}, err
	}
	const step = "install s3fs"
	say(sandbox.Progress{Step: step})
	argv := append(append([]string{"sh", "-c", enter, w.root(), "/usr/bin/env", "-i"}, chrootEnv()...), "sh", "-c", installS3FS)
	run := command{argv: argv, lock: w.lock, enclosed: true}
	if err := run.run(ctx, func(line string) { say(sandbox.Progress{Step: step, Log: line}) }); err != nil {
		return config{}, distribution{}.explain(err)
	}
	return config{env: base.Env, workdir: base.Workdir, user: base.User}, nil
}

// lendNames gives a root the host's way to names, until the fixed parts take its place.
func lendNames(t *tree) error {
	for _, name := range []string{"etc/resolv.conf", "etc/hosts"} {
		if text, err := os.ReadFile("/" + name); err == nil {
			if err := t.write(name, text, 0o644, rootOwner); err != nil {
				return err
			}
		}
	}
	return nil
}
