package main

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/tarball"
)

// buildFiles is what a build takes from this machine.
type buildFiles struct {
	file    string // the Dockerfile; "" means the one of context
	context string // folder; "" means none
}

// maxDockerfile bounds what is read of a Dockerfile, or a .dockerignore.
const maxDockerfile = sandbox.MaxDockerfile

// into reads the Dockerfile into a request, and sends the context. A source that
// was asked for goes on with its own steps: there is no Dockerfile then.
func (f *buildFiles) into(ctx context.Context, c *client.Client, req *sandbox.BuildRequest, from bool) error {
	if f.file == "" && f.context == "" {
		return nil
	}
	if from {
		return usage("leave --from out: the Dockerfile's FROM says it", "--from and a Dockerfile exclude each other")
	}
	if f.file == "" {
		f.file = filepath.Join(f.context, "Dockerfile")
	}
	text, err := readAtMost(f.file, maxDockerfile)
	if err != nil {
		return &sandbox.Error{Op: "read Dockerfile", Kind: sandbox.Invalid, Err: err, Hint: "name it with --file"}
	}
	req.From, req.Dockerfile = "", string(text)
	if f.context == "" {
		return nil
	}
	req.Context, err = f.send(ctx, c)
	return err
}

func readAtMost(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(b)) > most {
		err = errors.New("it is too large")
	}
	return b, err
}

// send uploads the context, without what its .dockerignore names.
func (f *buildFiles) send(ctx context.Context, c *client.Client) (digest string, err error) {
	const op = "send context"
	ignored, err := f.ignored()
	if err != nil {
		return "", &sandbox.Error{Op: op, Kind: sandbox.Invalid, Err: err}
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(ctx, f.context, ignored, w)
		w.CloseWithError(err)
		packed <- err
	}()
	digest, _, err = c.PutContext(ctx, "", r)
	r.CloseWithError(errors.New("the server reads no more"))
	if perr := <-packed; perr != nil && err != nil {
		return "", &sandbox.Error{Op: op, Kind: sandbox.Invalid, Err: perr}
	}
	return digest, err
}

func (f *buildFiles) ignored() (*patternmatcher.PatternMatcher, error) {
	file, err := os.Open(filepath.Join(f.context, ".dockerignore"))
	if errors.Is(err, fs.ErrNotExist) {
		return patternmatcher.New(nil)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	patterns, err := ignorefile.ReadAll(io.LimitReader(file, maxDockerfile))
	if err != nil {
		return nil, err
	}
	return patternmatcher.New(patterns)
}

// pack writes a folder as a tar stream that is the same for the same files: no
// owners, and no times, which a check-out changes.
func pack(ctx context.Context, dir string, ignored *patternmatcher.PatternMatcher, w io.Writer) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	out := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		skip, err := ignored.MatchesOrParentMatches(filepath.FromSlash(name))
		if err != nil {
			return err
		}
		if skip {
			if entry.IsDir() && !ignored.Exclusions() {
				return fs.SkipDir
			}
			return nil
		}
		return packOne(root, name, out)
	})
	return errors.Join(err, out.Close())
}

// packOne writes one entry. What files have beside their bytes goes along.
func packOne(root *os.Root, name string, out *tar.Writer) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	target, body := "", (*os.File)(nil)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err = root.Readlink(name)
	case info.IsDir() || info.Mode().IsRegular():
		if body, err = root.Open(name); err == nil {
			defer body.Close()
		}
	default:
		return nil // sockets and the like are of no use elsewhere
	}
	if err != nil {
		return err
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.ModTime, h.AccessTime, h.ChangeTime = name, time.Unix(0, 0), time.Time{}, time.Time{}
	h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
	if body != nil {
		h.PAXRecords = tarball.AttributesOf(body)
	}
	if info.IsDir() {
		h.Name += "/"
	}
	if err := out.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(body, h.Size))
	return err
}
