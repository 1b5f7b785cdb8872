package gvisor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/berth-dev/berth/sandbox"
)

// mkfs makes an image that the engine can map: without noinline_data the tail
// of a file lies beside its inode, and executing it fails.
func mkfs(ctx context.Context, image, dir string) error {
	tool, err := exec.LookPath("mkfs.erofs")
	if err != nil {
		return &sandbox.Error{Op: "make image", Kind: sandbox.Unsupported, Err: err, Hint: "install it: apt-get install erofs-utils"}
	}
	if out, err := exec.CommandContext(ctx, tool, "-E", "noinline_data", image, dir).CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("make image: %w: %s", err, tail(out, 200))
	}
	return nil
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// unsavedImage begins the name of a folder in which an image is made.
const unsavedImage = ".image-"

// makeImage makes dst from a folder that fill fills, unless dst is there. It
// appears whole or not at all.
func makeImage(ctx context.Context, dst string, fill func(dir string) error) error {
	if _, err := os.Stat(dst); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dst), unsavedImage)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	tree := filepath.Join(work, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	if err := fill(tree); err != nil {
		return err
	}
	image := filepath.Join(work, "image")
	if err := mkfs(ctx, image, tree); err != nil {
		return err
	}
	return os.Rename(image, dst)
}

// guestImage returns the path of the image that holds the guest's binary, named
// by its content: machines of an older guest keep theirs.
func (d *Driver) guestImage(ctx context.Context) (string, error) {
	d.imageMu.Lock()
	defer d.imageMu.Unlock()
	if d.present == "" {
		return "", &sandbox.Error{Op: "find guest", Kind: sandbox.Unsupported, Err: errors.New("this program was built without the guest"), Hint: "build it with: make build"}
	}
	image := d.presentGuest()
	return image, makeImage(ctx, image, func(dir string) error {
		b, err := d.guest()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, guestName), b, 0o755)
	})
}

// nameGuest names the image of a guest by its content; "" if there is none.
func nameGuest(guest func() ([]byte, error)) (string, error) {
	if guest == nil {
		return "", nil
	}
	b, err := guest()
	if err != nil || len(b) == 0 {
		return "", err
	}
	sum := sha256.Sum256(b)
	return fmt.Sprintf("guest-%x.erofs", sum[:8]), nil
}

// presentGuest is where the image of this program's guest is, once it is made.
func (d *Driver) presentGuest() string { return filepath.Join(d.dir, d.present) }

// probeImage returns the path of an image with nothing in it but the folders
// that a sandbox needs to start.
func (d *Driver) probeImage(ctx context.Context) (string, error) {
	d.imageMu.Lock()
	defer d.imageMu.Unlock()
	image := filepath.Join(d.dir, "probe.erofs")
	return image, makeImage(ctx, image, func(dir string) error {
		for _, sub := range []string{"proc", "sys", "dev", "tmp", "etc", "home", ".berth"} {
			if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
				return err
			}
		}
		return nil
	})
}
