package image

import (
	"errors"
	"path"

	"golang.org/x/sys/unix"
)

// fixParts puts into a root what every sandbox relies on, whatever it was made
// from. It edits files only and runs nothing of the image.
func fixParts(t *tree, workdir string) error {
	for _, dir := range []struct {
		path string
		mode uint32
		own  owner
	}{
		{"proc", 0o555, rootOwner}, {"sys", 0o555, rootOwner}, {"dev", 0o755, rootOwner}, {"run", 0o755, rootOwner},
		{"tmp", 0o1777, rootOwner}, {"var/tmp", 0o1777, rootOwner},
		{".berth", 0o755, rootOwner}, // the guest is mounted here
		{"workspace", 0o755, userOwner},
		{"home/user", 0o755, userOwner},
	} {
		if err := t.mkdir(dir.path, dir.mode, dir.own); err != nil {
			return err
		}
	}
	for _, dir := range []string{"proc", "sys", "dev", ".berth"} {
		if err := t.empty(dir); err != nil {
			return err
		}
	}
	if err := addUser(t); err != nil {
		return err
	}
	return errors.Join(copySkeleton(t), allowSudo(t), identityFiles(t), makeWorkdir(t, workdir))
}

// copySkeleton puts the files of /etc/skel into the user's home, where they are
// not there yet.
func copySkeleton(t *tree) error {
	f, err := t.open("etc/skel", unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(100) // hostile images may have any number
	if err = errors.Join(ignoreEnd(err), f.Close()); err != nil {
		return err
	}
	for _, name := range names {
		to := path.Join("home/user", name)
		if t.has(to) {
			continue
		}
		text, err := t.read(path.Join("etc/skel", name))
		if errors.Is(err, errNoFile) {
			continue
		}
		if err == nil {
			err = t.write(to, text, 0o644, userOwner)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// allowSudo lets the user become root without a password, where sudo is.
func allowSudo(t *tree) error {
	for _, sudo := range []string{"usr/bin/sudo", "bin/sudo", "usr/local/bin/sudo"} {
		if !t.has(sudo) {
			continue
		}
		return t.write("etc/sudoers.d/90-user", []byte("user ALL=(ALL:ALL) NOPASSWD: ALL\n"), 0o440, rootOwner)
	}
	return nil
}

// hosts is an /etc/hosts without names of the machine's own.
const hosts = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"

// identityFiles makes the files that say who a machine is regular ones without
// an identity: the guest fills them when the sandbox starts. A root may have
// them from the host that built it, or as links to what a host would run.
func identityFiles(t *tree) error {
	for _, file := range []struct{ path, text string }{
		{"etc/resolv.conf", "# filled in when the sandbox starts\n"},
		{"etc/hostname", "localhost\n"},
		{"etc/hosts", hosts},
		{"etc/machine-id", ""},
	} {
		if err := t.write(file.path, []byte(file.text), 0o644, rootOwner); err != nil {
			return err
		}
	}
	return nil
}

// makeWorkdir makes the folder in which processes start, if it is missing.
func makeWorkdir(t *tree, workdir string) error {
	if workdir == "" {
		return nil
	}
	_, err := t.folder(path.Join(".", workdir), true)
	return err
}
