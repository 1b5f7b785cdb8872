package cloudflare

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

const (
	maxFile    = 32 << 20 // bytes that are read or written at once
	dirPage    = 10_000   // entries that are asked for at once
	maxEntries = 200_000  // of one list
	maxDepth   = 64       // of a list of all that a folder holds
)

func (b *box) writeFile(ctx context.Context, r writeRequest) (any, error) {
	const op = "file.write"
	p, err := b.resolve(ctx, r.SessionID, r.Path)
	if err != nil {
		return nil, err
	}
	content := []byte(r.Content)
	switch r.Encoding {
	case "", "utf-8", "utf8":
	case "base64":
		if content, err = base64.StdEncoding.DecodeString(r.Content); err != nil {
			return nil, &fault{code: validationFailed, text: "the content is no base64: " + err.Error(), op: op, err: err}
		}
	default:
		return nil, invalid(fmt.Sprintf("unsupported encoding: %.40q", r.Encoding))
	}
	mode, err := modeOf(r.Permissions)
	if err != nil {
		return nil, err
	}
	fi, err := b.write(ctx, p, mode, bytes.NewReader(content))
	if err != nil {
		return nil, fileFault(op, p, err)
	}
	return pathAnswer{Success: true, Path: r.Path, Bytes: &fi.Size, Timestamp: now()}, nil
}

// write writes a file, and makes the folders above it that are not there. These clients
// expect the same file to stay, for who watches it or has it open.
func (b *box) write(ctx context.Context, p string, mode uint32, body io.Reader) (sandbox.FileInfo, error) {
	return b.engine.WriteFile(ctx, b.id, p, sandbox.WriteOptions{User: user, Mode: mode, Parents: true, InPlace: true}, body)
}

// modeOf reads permissions; none are 0, which keeps what there is.
func modeOf(s string) (uint32, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o7777 {
		return 0, invalid(fmt.Sprintf("%.20q is no mode", s))
	}
	return uint32(n), nil
}

// openFile opens a file and says what sort it is. The caller closes it.
func (b *box) openFile(ctx context.Context, p string) (body io.ReadCloser, fi sandbox.FileInfo, mime string, err error) {
	const op = "file.read"
	if fi, err = b.engine.Stat(ctx, b.id, p, true); err == nil && fi.Type == sandbox.TypeDir {
		err = &fault{code: isDirectory, text: "Is a directory: " + p, op: op, context: map[string]any{"path": p, "operation": op}}
	}
	if err != nil {
		return nil, fi, "", fileFault(op, p, err)
	}
	if body, fi, err = b.engine.ReadFile(ctx, b.id, p, sandbox.ReadRange{}); err != nil {
		return nil, fi, "", fileFault(op, p, err)
	}
	head := make([]byte, sniffed)
	n, err := io.ReadFull(body, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		_ = body.Close()
		return nil, fi, "", fileFault(op, p, err)
	}
	head = head[:n]
	return &rejoined{io.MultiReader(bytes.NewReader(head), body), body}, fi, mimeOf(p, head), nil
}

// rejoined is a body whose beginning was read already.
type rejoined struct {
	io.Reader
	body io.Closer
}

func (r *rejoined) Close() error { return r.body.Close() }

func (b *box) readFile(ctx context.Context, r pathRequest) (any, error) {
	const op = "file.read"
	p, err := b.resolve(ctx, r.SessionID, r.Path)
	if err != nil {
		return nil, err
	}
	body, fi, mime, err := b.openFile(ctx, p)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	content, err := io.ReadAll(io.LimitReader(body, maxFile+1))
	switch {
	case err != nil:
		return nil, fileFault(op, p, err)
	case len(content) > maxFile:
		return nil, &fault{code: fileTooLarge, text: fmt.Sprintf("File too large: %s has %d bytes, at most %d are read at once", p, max(fi.Size, maxFile+1), maxFile),
			op: op, context: map[string]any{"path": p, "operation": op, "size": fi.Size, "maxSize": maxFile},
			err: &sandbox.Error{Kind: sandbox.Exhausted, Err: io.ErrShortBuffer, Hint: "read it as a stream"}}
	}
	a := readAnswer{Success: true, Path: r.Path, Encoding: "utf-8", MimeType: mime, Size: int64(len(content)), IsBinary: isBinary(mime), Timestamp: now()}
	switch r.Encoding {
	case "":
	case "utf-8", "utf8":
		a.IsBinary = false
	case "base64":
		a.IsBinary = true
	default:
		return nil, invalid(fmt.Sprintf("unsupported encoding: %.40q", r.Encoding))
	}
	if a.IsBinary {
		a.Encoding, a.Content = "base64", base64.StdEncoding.EncodeToString(content)
	} else {
		a.Content = valid(content)
	}
	return a, nil
}

// valid is text of any bytes.
func valid(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// chunk is how much of a file one event has: a multiple of three, so that parts in
// base64 can be put together.
const chunk = 48 << 10

// readStream gives a file in parts.
func (b *box) readStream(ctx context.Context, r pathRequest, out stream) error {
	p, err := b.resolve(ctx, r.SessionID, r.Path)
	if err != nil {
		return err
	}
	body, fi, mime, err := b.openFile(ctx, p)
	if err != nil {
		return err
	}
	defer body.Close()
	binary, encoding := isBinary(mime), "utf-8"
	if binary {
		encoding = "base64"
	}
	if err := out.send("metadata", fileEvent{Type: "metadata", MimeType: mime, Size: &fi.Size, IsBinary: &binary, Encoding: encoding}); err != nil {
		return err
	}
	part, t, read := make([]byte, chunk), newText(), int64(0)
	for {
		n, err := io.ReadFull(body, part)
		read += int64(n)
		data := ""
		if binary {
			data = base64.StdEncoding.EncodeToString(part[:n])
		} else {
			data = t.take(sandbox.Stdout, part[:n])
		}
		if data != "" {
			if err := out.send("chunk", fileEvent{Type: "chunk", Data: data}); err != nil {
				return err
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		} else if err != nil {
			return fileFault("file.read", p, err)
		}
	}
	if err := t.rest(func(_ sandbox.Stream, s string) error {
		return out.send("chunk", fileEvent{Type: "chunk", Data: s})
	}); err != nil {
		return err
	}
	return out.send("complete", fileEvent{Type: "complete", BytesRead: &read})
}

func (b *box) mkdir(ctx context.Context, r pathRequest) (any, error) {
	p, err := b.resolve(ctx, r.SessionID, r.Path)
	if err != nil {
		return nil, err
	}
	if _, err := b.engine.MakeDir(ctx, b.id, p, 0o755, user, r.Recursive); err != nil {
		return nil, fileFault("directory.create", p, err)
	}
	return pathAnswer{Success: true, Path: r.Path, Recursive: &r.Recursive, Timestamp: now()}, nil
}

func (b *box) deleteFile(ctx context.Context, r pathRequest) (any, error) {
	const op = "file.delete"
	p, err := b.resolve(ctx, r.SessionID, r.Path)
	if err != nil {
		return nil, err
	}
	fi, err := b.engine.Stat(ctx, b.id, p, false)
	if err == nil && fi.Type == sandbox.TypeDir {
		return nil, &fault{code: isDirectory, text: "Cannot delete directory with deleteFile(): " + p, op: op,
			context: map[string]any{"path": p, "operation": op},
			err:     &sandbox.Error{Kind: sandbox.Invalid, Err: fs.ErrInvalid, Hint: "remove a folder with a command, such as rm -r"}}
	}
	if err == nil {
		err = b.engine.RemoveFile(ctx, b.id, p, false)
	}
	if err != nil {
		return nil, fileFault(op, p, err)
	}
	return pathAnswer{Success: true, Path: r.Path, Timestamp: now()}, nil
}

func (b *box) renameFile(ctx context.Context, r moveRequest) (any, error) {
	return b.rename(ctx, "file.rename", r.SessionID, r.From, r.To)
}

func (b *box) moveFile(ctx context.Context, r moveRequest) (any, error) {
	return b.rename(ctx, "file.move", r.SessionID, r.Source, r.Dest)
}

func (b *box) rename(ctx context.Context, op, session, from, to string) (any, error) {
	if from == "" { // to these clients a path that was left out is a file that is not there
		return nil, &fault{code: fileNotFound, text: "File not found: no path was given", op: op, context: map[string]any{"path": "", "operation": op}}
	}
	src, err := b.resolve(ctx, session, from)
	if err != nil {
		return nil, err
	}
	dst, err := b.resolve(ctx, session, to)
	if err != nil {
		return nil, err
	}
	if err := b.engine.Move(ctx, b.id, src, dst, true); err != nil {
		return nil, fileFault(op, src, err)
	}
	return pathAnswer{Success: true, Path: from, NewPath: to, Timestamp: now()}, nil
}

func (b *box) exists(ctx context.Context, r pathRequest) (any, error) {
	p, err := b.resolve(ctx, r.SessionID, r.Path)
	if err != nil {
		return nil, err
	}
	_, err = b.engine.Stat(ctx, b.id, p, true)
	there := err == nil
	if err := fileFault("file.exists", p, err); err != nil {
		f, ok := err.(*fault)
		if !ok || f.code != fileNotFound && f.code != notDirectory {
			return nil, err
		}
	}
	return pathAnswer{Success: true, Path: r.Path, Exists: &there, Timestamp: now()}, nil
}

func (b *box) listFiles(ctx context.Context, r listRequest) (any, error) {
	const op = "directory.list"
	p, err := b.resolve(ctx, r.SessionID, r.Path)
	if err != nil {
		return nil, err
	}
	depth := 1
	if r.Options.Recursive {
		depth = maxDepth
	}
	files := []fileInfo{}
	for after, more := "", true; more; {
		var page []sandbox.FileInfo
		if page, more, err = b.engine.ListDir(ctx, b.id, p, depth, dirPage, after); err != nil {
			return nil, fileFault(op, p, err)
		}
		for _, fi := range page {
			after = fi.Path
			relative := strings.TrimPrefix(strings.TrimPrefix(fi.Path, p), "/")
			if !r.Options.Hidden && hidden(relative) {
				continue
			}
			files = append(files, infoOf(fi, relative))
		}
		if len(files) > maxEntries || len(page) == 0 {
			break
		}
	}
	if len(files) > maxEntries {
		return nil, &fault{code: filesystemError, op: op, text: fmt.Sprintf("%s has more than %d entries", p, maxEntries), context: map[string]any{"path": p, "operation": op}}
	}
	return listAnswer{Success: true, Path: r.Path, Files: files, Count: len(files), Timestamp: now()}, nil
}

// hidden reports whether a name begins with a dot. What lies in a hidden folder is
// not hidden by that.
func hidden(relative string) bool { return strings.HasPrefix(path.Base(relative), ".") }

// infoOf describes an entry. What may be done with it is said of its owner, as whom
// these clients work.
func infoOf(fi sandbox.FileInfo, relative string) fileInfo {
	t := string(fi.Type)
	switch fi.Type {
	case sandbox.TypeDir:
		t = "directory"
	case sandbox.TypeFile, sandbox.TypeSymlink:
	default:
		t = "other"
	}
	return fileInfo{Name: valid([]byte(fi.Name)), Absolute: valid([]byte(fi.Path)), Relative: valid([]byte(relative)), Type: t, Size: fi.Size,
		ModifiedAt: stamp(fi.Modified), Mode: fs.FileMode(fi.Mode & 0o777).String()[1:],
		Permissions: permissions{fi.Mode&0o400 != 0, fi.Mode&0o200 != 0, fi.Mode&0o100 != 0}}
}
