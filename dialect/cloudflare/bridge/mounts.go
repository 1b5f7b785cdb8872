package bridge

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// mountTime bounds a mount and an unmount: a server that does not answer is asked for long.
const mountTime = 2 * time.Minute

// mount mounts a bucket over a folder, by the program s3fs inside. There is no Worker here:
// it takes the keys that the request gives.
func (b *Bridge) mount(w http.ResponseWriter, r *http.Request) error {
	var req bucketMount
	if err := decode(w, r, &req, false); err != nil {
		return err
	}
	m, err := req.plan()
	if err != nil {
		return failed("mount failed", codeMount, err)
	}
	id, err := b.box(r)
	if err != nil {
		return err
	}
	if err := b.mountBucket(r.Context(), id, m); err != nil {
		return failed("mount failed", codeMount, err)
	}
	return writeJSON(w, ok{true})
}

// unmount ends a mount, and removes its folder if that is empty.
func (b *Bridge) unmount(w http.ResponseWriter, r *http.Request) error {
	var req bucketUnmount
	if err := decode(w, r, &req, false); err != nil {
		return err
	}
	folder, err := mountFolder(req.MountPath)
	if err != nil {
		return err
	}
	id, err := b.box(r)
	if err != nil {
		return err
	}
	if err := b.unmountBucket(r.Context(), id, folder); err != nil {
		return failed("unmount failed", codeUnmount, err)
	}
	return writeJSON(w, ok{true})
}

// How the programs below end that have done nothing.
const (
	nothing   = 1
	noProgram = 3
	noFolder  = 4 // that is as it must be
)

// mountProgram mounts: its arguments are the file of the keys, which goes as soon as they
// are read, the source, the folder, and options. s3fs stays when it ends. That a mount is
// there is seen by its folder alone, which answers once the server has; s3fs says why there
// is none before it ends.
const mountProgram = `trap 'rm -f -- "$1" "$1.read" "$log"' EXIT
command -v s3fs >/dev/null || exit 3
mountpoint -q "$3" && exit 4
there=; [ -d "$3" ] && there=yes
mkdir -p "$3" 2>&1 || exit 1
log=$(mktemp) || exit 1
mv "$1" "$1.read" || exit 1
setsid s3fs -f "$2" "$3" -o "$4,passwd_file=$1.read" >"$log" 2>&1 </dev/null &
while kill -0 $! 2>/dev/null; do
	mountpoint -q "$3" && exit 0
	sleep 0.1
done
tail -n 20 "$log"
mountpoint -q "$3" && fusermount -u -q "$3"
[ -n "$there" ] || rmdir "$3"
exit 1`

// undoProgram takes back what the other had begun, which was ended in the midst of it: its
// arguments are the file of the keys, which has another name once s3fs runs, and the folder.
const undoProgram = `[ -e "$1.read" ] && fusermount -u -z -q "$2"
rm -f -- "$1" "$1.read"`

// mountBucket mounts.
func (b *Bridge) mountBucket(ctx context.Context, id string, m s3Mount) error {
	const op = "mount bucket"
	keys := "/tmp/.s3-" + strings.ToLower(rand.Text())
	if _, err := b.Engine.WriteFile(ctx, id, keys, sandbox.WriteOptions{User: user, Mode: 0o600}, strings.NewReader(m.keys)); err != nil {
		return err
	}
	code, said, err := b.run(ctx, id, "sh", "-c", mountProgram, "sh", keys, m.source, m.folder, strings.Join(m.options, ","))
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), mountTime)
		defer cancel()
		_, _, uerr := b.run(undo, id, "sh", "-c", undoProgram, "sh", keys, m.folder)
		return errors.Join(err, uerr)
	}
	said = strings.ReplaceAll(said, m.secret, "***")
	switch code {
	case 0:
		return nil
	case noProgram:
		return &sandbox.Error{Op: op, Kind: sandbox.Unsupported, Err: errors.New("the sandbox has no s3fs"),
			Hint: "have the operator run: berth template build " + sandbox.BucketTemplate + "; sandboxes that are made later have it"}
	case noFolder:
		return &sandbox.Error{Op: op, Kind: sandbox.Conflict, Err: errors.New("mount path already in use: " + m.folder), Hint: "unmount it first, or take another path"}
	}
	return &sandbox.Error{Op: op, Kind: sandbox.Unavailable, Err: errors.New("s3fs does not mount it: " + said),
		Hint: "look at the endpoint, the bucket's name and the keys, and whether the sandbox may reach the endpoint"}
}

// unmountProgram unmounts: its argument is the folder.
const unmountProgram = `mountpoint -q "$1" || exit 4
fusermount -u "$1" 2>&1 || exit 1
mountpoint -q "$1" || rmdir "$1" 2>/dev/null
exit 0`

// unmountBucket unmounts.
func (b *Bridge) unmountBucket(ctx context.Context, id, folder string) error {
	const op = "unmount bucket"
	code, said, err := b.run(ctx, id, "sh", "-c", unmountProgram, "sh", folder)
	switch {
	case err != nil || code == 0:
		return err
	case code == noFolder:
		return &sandbox.Error{Op: op, Kind: sandbox.NotFound, Err: errors.New("No active mount found at path: " + folder), Hint: "it may have ended with the sandbox"}
	}
	return &sandbox.Error{Op: op, Kind: sandbox.Conflict, Err: errors.New(said), Hint: "end what uses it"}
}

// maxSaid bounds what is kept of what a program says, in bytes.
const maxSaid = 8 << 10

// run runs a program to its end, and gives its code and what it said.
func (b *Bridge) run(ctx context.Context, id string, argv ...string) (code int, said string, err error) {
	all, err := b.Engine.Exec(ctx, id, sandbox.Command{Argv: argv, Cwd: "/", User: user, Timeout: mountTime})
	if err != nil {
		return 0, "", err
	}
	defer all.Close()
	var text []byte
	code = nothing
	for {
		e, err := all.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return code, strings.TrimSpace(string(text)), nil
		case err != nil:
			return 0, "", err
		case e.Exit != nil && e.Exit.Error != "":
			return 0, "", sandbox.Errorf("run "+argv[0], sandbox.Unavailable, "%s", e.Exit.Error)
		case e.Exit != nil && e.Exit.TimedOut:
			return 0, "", sandbox.Errorf("run "+argv[0], sandbox.Timeout, "it took longer than %v", mountTime)
		case e.Exit != nil:
			code = e.Exit.Code
		case len(text) < maxSaid:
			text = append(text, e.Data...)
		}
	}
}

// mountFolder is the folder that is meant, without dots.
func mountFolder(p string) (string, error) {
	switch {
	case p == "":
		return "", invalid("mountPath must be a non-empty string")
	case !strings.HasPrefix(p, "/"):
		return "", invalid("mountPath must be an absolute path (start with /)")
	}
	p = path.Clean(p)
	if p == "/" {
		return "", invalid("mountPath must not resolve to / (filesystem root)")
	}
	if err := sandbox.CheckPath(p); err != nil {
		return "", &fault{status: http.StatusBadRequest, code: codeInvalid, text: "bad mountPath", err: err}
	}
	return p, nil
}
