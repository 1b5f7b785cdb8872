package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/berth-dev/berth/guestapi"
)

// The user that every sandbox has.
const userID = 1000

// folders are there in every sandbox, whatever its template.
var folders = []struct {
	path string
	mode fs.FileMode
	uid  int
}{
	{"/tmp", 0o777 | fs.ModeSticky, 0},
	{"/home", 0o755, 0},
	{"/home/user", 0o755, userID},
	{"/workspace", 0o755, userID},
}

// prepare makes the system around the guest what programs expect.
func prepare(b guestapi.Boot) error {
	for _, f := range folders {
		if err := makeFolder(f.path, f.mode, f.uid); err != nil {
			return fmt.Errorf("prepare %s: %w", f.path, err)
		}
	}
	if err := writeIdentity(b.SandboxID, b.Hostname); err != nil {
		return err
	}
	if b.Nameserver != "" {
		if err := replace("/etc/resolv.conf", "nameserver "+b.Nameserver+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// makeFolder makes a missing folder; one that is there stays as it is.
func makeFolder(path string, mode fs.FileMode, uid int) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Chown(path, uid, uid); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// rename makes the system that of another sandbox, after its memory was copied.
func rename(sandboxID, hostname string) error {
	if hostname != "" {
		if err := syscall.Sethostname([]byte(hostname)); err != nil {
			return fmt.Errorf("set hostname: %w", err)
		}
	}
	return writeIdentity(sandboxID, hostname)
}

// writeIdentity writes what tells one machine from another (machine-id(5)).
func writeIdentity(sandboxID, hostname string) error {
	if err := os.Mkdir("/etc", 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("prepare /etc: %w", err)
	}
	if hostname != "" {
		if err := writeHost(hostname); err != nil {
			return err
		}
	}
	sum := sha256.Sum256([]byte("machine-id " + sandboxID))
	return replace("/etc/machine-id", hex.EncodeToString(sum[:16])+"\n")
}

// writeHost tells the system its name. A template may have left anything at
// these paths, so they are replaced and not written through.
func writeHost(name string) error {
	for path, text := range map[string]string{
		"/etc/hostname": name + "\n",
		"/etc/hosts":    "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t" + name + "\n",
	} {
		if err := replace(path, text); err != nil {
			return err
		}
	}
	return nil
}

// replace writes a file of the system anew.
func replace(path, text string) error {
	err := os.Remove(path)
	if errors.Is(err, syscall.EBUSY) {
		err = nil // mounted there; write into it
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
