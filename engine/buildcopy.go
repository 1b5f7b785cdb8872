package engine

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/tarball"
)

// contentKey names the bytes that a copy puts into a root.
func (b *building) contentKey(ctx context.Context, c *sandbox.CopyStep) (string, error) {
	if n, ok := strings.CutPrefix(c.From, "stage:"); ok {
		s, err := b.numbered(n)
		if err != nil {
			return "", err
		}
		return s.key(), nil
	}
	if len(c.Sources) == 0 {
		return "", nil // what it brings along is in the step itself
	}
	pick, err := b.pick(ctx, c)
	if err != nil {
		return "", err
	}
	return pick.key, nil
}

// copy puts what a step names into the root of a stage.
func (b *building) copy(ctx context.Context, s *stage, c *sandbox.CopyStep) error {
	for _, f := range c.Inline {
		to := c.To
		if c.AsFolder() {
			to = path.Join(c.To, f.Name)
		}
		o := sandbox.WriteOptions{User: orElse(c.Owner, "root"), Parents: true}
		if c.Mode != nil {
			o.Mode = *c.Mode
		}
		if _, err := b.WriteFile(ctx, string(s.box), to, o, strings.NewReader(f.Data)); err != nil {
			return err
		}
	}
	if len(c.Sources) == 0 {
		return nil
	}
	if n, ok := strings.CutPrefix(c.From, "stage:"); ok {
		from, err := b.numbered(n)
		if err != nil {
			return err
		}
		return b.copyStage(ctx, s, from, c)
	}
	pick, err := b.pick(ctx, c)
	if err != nil {
		return err
	}
	return b.copyContext(ctx, s, c, pick)
}

// picked is what a copy takes of a context.
type picked struct {
	key    string
	single bool // one file, and nothing else
}

// pick goes through a context once: it hashes what a copy takes. Nothing taken is
// NotFound.
func (b *building) pick(ctx context.Context, c *sandbox.CopyStep) (p picked, err error) {
	entries, files := []string{}, 0
	missing := map[int]bool{}
	for i := range c.Sources {
		missing[i] = true
	}
	err = b.eachOf(ctx, c, func(h *tar.Header, m match, body io.Reader) error {
		delete(missing, m.source)
		sum := sha256.New()
		fmt.Fprintf(sum, "%d %q %q %d %o\n", m.source, m.name, h.Linkname, h.Typeflag, h.Mode)
		if a := tarball.Attributes(h.PAXRecords); a != nil {
			fmt.Fprintf(sum, "%q\n", a) // whose keys are in order
		}
		if _, err := io.Copy(sum, body); err != nil {
			return err
		}
		entries = append(entries, hex.EncodeToString(sum.Sum(nil)))
		if h.Typeflag == tar.TypeReg && m.itself {
			files++
		}
		return nil
	})
	if err != nil {
		return p, err
	}
	for i, source := range c.Sources {
		if missing[i] {
			return p, &sandbox.Error{Op: "copy", Kind: sandbox.NotFound, Err: fmt.Errorf("%.200q is not in the context", source),
				Hint: "paths are relative to the context, and cannot leave it; .dockerignore may leave it out"}
		}
	}
	slices.Sort(entries)
	return picked{keyOf(entries), files == 1 && len(entries) == 1}, nil
}

// match is how an entry of a context is taken.
type match struct {
	source int    // which of the step's
	name   string // beneath the destination
	itself bool   // it is what the source names, not beneath it
}

// eachOf calls f for each entry of the context that a copy takes.
func (b *building) eachOf(ctx context.Context, c *sandbox.CopyStep, f func(*tar.Header, match, io.Reader) error) (err error) {
	digest := orElse(c.From, b.req.Context)
	if digest == "" {
		return &sandbox.Error{Op: "copy", Kind: sandbox.Invalid, Err: errors.New("there is no context to copy from"), Hint: "give the folder: berth template build --context DIR"}
	}
	patterns, err := patternsOf(c.Sources)
	if err != nil {
		return err
	}
	body, err := b.openContext(ctx, digest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	plain, err := unpacked(body)
	if err != nil {
		return err
	}
	folders := map[string]bool{}
	in := tar.NewReader(plain)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return sandbox.Errorf("read context", sandbox.Invalid, "%w", err)
		}
		name, ok := contextName(h.Name)
		if !ok {
			return sandbox.Errorf("read context", sandbox.Invalid, "entry %.200q lies outside of it", h.Name)
		}
		folders[name] = h.Typeflag == tar.TypeDir
		for i, p := range patterns {
			m, ok := p.match(name, h.Typeflag == tar.TypeDir, folders)
			if !ok {
				continue
			}
			m.source = i
			if err := f(h, m, in); err != nil {
				return err
			}
			break
		}
	}
}

// unpacked is a stream without its gzip, if it has one.
func unpacked(r io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(r, 128<<10)
	head, err := in.Peek(2)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return in, nil
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, sandbox.Errorf("read context", sandbox.Invalid, "%w", err)
	}
	return &bounds{r: z, left: maxContext}, nil
}

// contextName is an entry's path in a context, "." for the context itself.
func contextName(name string) (string, bool) {
	clean := path.Clean(name)
	return clean, !path.IsAbs(name) && clean != ".." && !strings.HasPrefix(clean, "../") && !strings.ContainsRune(name, 0)
}

// pattern is one source of a copy.
type pattern struct {
	path  string // clean, relative; "." for all
	parts int
	wild  bool
}

func patternsOf(sources []string) ([]pattern, error) {
	var all []pattern
	for _, s := range sources {
		clean := strings.TrimPrefix(path.Clean("/"+s), "/") // as if the context were the root
		if clean == "" {
			clean = "."
		}
		if _, err := path.Match(clean, ""); err != nil {
			return nil, sandbox.Errorf("copy", sandbox.Invalid, "the pattern %.200q is malformed", s)
		}
		all = append(all, pattern{clean, strings.Count(clean, "/") + 1, strings.ContainsAny(clean, "*?[")})
	}
	return all, nil
}

// match says how an entry is taken by the source. What a folder holds is taken,
// not the folder itself.
func (p pattern) match(name string, folder bool, folders map[string]bool) (match, bool) {
	if p.path == "." {
		return match{name: name}, name != "."
	}
	head, rest := name, ""
	if parts := strings.SplitN(name, "/", p.parts+1); len(parts) > p.parts {
		head, rest = strings.Join(parts[:p.parts], "/"), parts[p.parts]
	}
	if ok, _ := path.Match(p.path, head); head != p.path && (!p.wild || !ok) {
		return match{}, false
	}
	switch {
	case rest != "":
		return match{name: rest}, true
	case folder:
		return match{name: "."}, true
	}
	return match{name: path.Base(head), itself: true}, true
}

// copyContext puts what a copy takes of the context into a stage's root.
func (b *building) copyContext(ctx context.Context, s *stage, c *sandbox.CopyStep, pick picked) error {
	to, rename := c.To, ""
	if pick.single && !c.AsFolder() && !c.Extract {
		fi, err := b.Stat(ctx, string(s.box), c.To, true)
		switch {
		case err == nil && fi.Type == sandbox.TypeDir:
		case err != nil && sandbox.KindOf(err) != sandbox.NotFound:
			return err
		default:
			to, rename = path.Dir(path.Clean(c.To)), path.Base(c.To)
		}
	}
	if err := b.makeDir(ctx, s, c, to); err != nil {
		return err
	}
	if c.Extract {
		return b.extract(ctx, s, c, to)
	}
	return b.unpackInto(ctx, s, c, to, func(out *tar.Writer) error {
		return b.eachOf(ctx, c, func(h *tar.Header, m match, body io.Reader) error {
			if rename != "" {
				m.name = rename
			}
			if m.name == "." {
				return nil // the destination is there
			}
			return writeEntry(out, h, m.name, c.Mode, body)
		})
	})
}

// makeDir makes the folder that a copy goes to; it belongs to whom the copy is for.
func (b *building) makeDir(ctx context.Context, s *stage, c *sandbox.CopyStep, p string) error {
	if fi, err := b.Stat(ctx, string(s.box), p, true); err == nil && fi.Type == sandbox.TypeDir {
		return nil
	}
	_, err := b.MakeDir(ctx, string(s.box), path.Clean(p), 0o755, orElse(c.Owner, "root"), true)
	return err
}

// unpackInto unpacks the stream that write makes into a folder of a stage's root.
func (b *building) unpackInto(ctx context.Context, s *stage, c *sandbox.CopyStep, to string, write func(*tar.Writer) error) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		out := tar.NewWriter(w)
		err := write(out)
		if err == nil {
			err = out.Close()
		}
		w.CloseWithError(err)
		written <- err
	}()
	_, err := b.Unpack(ctx, string(s.box), path.Clean(to), sandbox.UnpackOptions{User: orElse(c.Owner, "root")}, r)
	r.CloseWithError(errors.New("the sandbox reads no more"))
	if werr := <-written; err == nil || werr != nil && sandbox.KindOf(werr) != sandbox.Internal {
		err = werr
	}
	return err
}

// writeEntry writes one entry under another name.
func writeEntry(out *tar.Writer, h *tar.Header, name string, mode *uint32, body io.Reader) error {
	e := &tar.Header{Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode & 0o7777, ModTime: h.ModTime, Format: tar.FormatPAX,
		PAXRecords: tarball.Attributes(h.PAXRecords)}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink:
	case tar.TypeLink:
		return &sandbox.Error{Op: "copy", Kind: sandbox.Unsupported, Err: fmt.Errorf("%.200q is a hard link", h.Name), Hint: "pack the context without hard links"}
	default:
		return nil // devices and the like belong to no root
	}
	if mode != nil && h.Typeflag != tar.TypeSymlink {
		e.Mode = int64(*mode)
	}
	if h.Typeflag == tar.TypeDir {
		e.Name += "/"
	}
	if err := out.WriteHeader(e); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	_, err := io.Copy(out, body)
	return err
}

// extract copies like copyContext, but a file that is a tar stream becomes what it
// holds.
func (b *building) extract(ctx context.Context, s *stage, c *sandbox.CopyStep, to string) error {
	return b.eachOf(ctx, c, func(h *tar.Header, m match, body io.Reader) error {
		if h.Typeflag == tar.TypeDir {
			if m.name == "." {
				return nil
			}
			return b.makeDir(ctx, s, c, path.Join(to, m.name))
		}
		in := bufio.NewReaderSize(body, 1024)
		head, err := in.Peek(512)
		if err != nil && err != io.EOF {
			return err
		}
		if m.itself && h.Typeflag == tar.TypeReg && isArchive(head) {
			_, err := b.Unpack(ctx, string(s.box), path.Clean(to), sandbox.UnpackOptions{User: "root", KeepOwner: true}, in)
			return err
		}
		return b.unpackInto(ctx, s, c, to, func(out *tar.Writer) error { return writeEntry(out, h, m.name, c.Mode, in) })
	})
}

// isArchive reports whether bytes begin a tar stream, or one that is packed.
func isArchive(head []byte) bool {
	return bytes.HasPrefix(head, []byte{0x1f, 0x8b}) || len(head) >= 262 && string(head[257:262]) == "ustar"
}

// copyStage copies from the root of an earlier stage.
func (b *building) copyStage(ctx context.Context, s, from *stage, c *sandbox.CopyStep) error {
	if err := b.work(ctx, from); err != nil {
		return err
	}
	var sources []sandbox.FileInfo
	for _, source := range c.Sources {
		found, err := b.glob(ctx, from, path.Clean("/"+source))
		if err != nil {
			return err
		}
		sources = append(sources, found...)
	}
	folder := c.AsFolder() || len(sources) > 1
	for _, fi := range sources {
		if err := b.copyPath(ctx, s, from, fi, c, folder); err != nil {
			return err
		}
	}
	return nil
}

func (b *building) copyPath(ctx context.Context, s, from *stage, fi sandbox.FileInfo, c *sandbox.CopyStep, folder bool) error {
	to, rename := c.To, ""
	if fi.Type != sandbox.TypeDir && !folder {
		if there, err := b.Stat(ctx, string(s.box), c.To, true); err != nil || there.Type != sandbox.TypeDir {
			to, rename = path.Dir(path.Clean(c.To)), path.Base(c.To)
		}
	}
	if err := b.makeDir(ctx, s, c, to); err != nil {
		return err
	}
	stream, err := b.Archive(ctx, string(from.box), fi.Path, sandbox.ArchiveOptions{})
	if err != nil {
		return err
	}
	defer stream.Close()
	if rename == "" && c.Mode == nil {
		_, err = b.Unpack(ctx, string(s.box), path.Clean(to), sandbox.UnpackOptions{User: orElse(c.Owner, "root")}, stream)
		return err
	}
	return b.unpackInto(ctx, s, c, to, func(out *tar.Writer) error {
		in := tar.NewReader(stream)
		for {
			h, err := in.Next()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			name := orElse(rename, path.Clean(h.Name))
			if name == "." {
				continue
			}
			if err := writeEntry(out, h, name, c.Mode, in); err != nil {
				return err
			}
		}
	})
}

// glob finds what a source names in a stage's root: itself, or what matches its
// last part.
func (b *building) glob(ctx context.Context, from *stage, source string) ([]sandbox.FileInfo, error) {
	if !strings.ContainsAny(path.Base(source), "*?[") {
		fi, err := b.Stat(ctx, string(from.box), source, true)
		if err != nil {
			return nil, err
		}
		fi.Path = source
		return []sandbox.FileInfo{fi}, nil
	}
	all, _, err := b.ListDir(ctx, string(from.box), path.Dir(source), 1, 10_000, "")
	if err != nil {
		return nil, err
	}
	var found []sandbox.FileInfo
	for _, fi := range all {
		if ok, err := path.Match(path.Base(source), fi.Name); err != nil {
			return nil, sandbox.Errorf("copy", sandbox.Invalid, "the pattern %.200q is malformed", source)
		} else if ok {
			found = append(found, fi)
		}
	}
	if len(found) == 0 {
		return nil, sandbox.Errorf("copy", sandbox.NotFound, "nothing matches %.200q", source)
	}
	return found, nil
}
