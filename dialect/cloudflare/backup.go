package cloudflare

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

const (
	backupTime  = time.Hour // to make, restore or upload an archive
	uploadTurns = 4         // parts that are uploaded at once
	maxParts    = 10_000
	maxExcludes = 1000
)

// backupRoots are the folders beneath which one may be kept.
var backupRoots = []string{"/workspace", "/home", "/tmp", "/var/tmp", "/app"}

// backupDir checks the folder that is kept or restored.
func (b *box) backupDir(ctx context.Context, session, dir string) (string, error) {
	p, err := b.resolve(ctx, session, dir)
	if err != nil {
		return "", err
	}
	for _, root := range backupRoots {
		if p == root || strings.HasPrefix(p, root+"/") {
			return p, nil
		}
	}
	return "", &fault{code: invalidBackup, text: "the folder must be beneath one of " + strings.Join(backupRoots, ", "),
		context: map[string]any{"reason": "dir is " + p}}
}

// tool runs a program and gives what it said. what is for the text of an error of
// the code given.
func (b *box) tool(ctx context.Context, c code, dir string, argv ...string) (output, error) {
	events, err := b.begin(ctx, sandbox.Command{Argv: argv, User: user, Timeout: backupTime, Lossless: true}, "/")
	if noProgram(err) {
		return output{}, &fault{code: c, text: argv[0] + " is not there", context: map[string]any{"dir": dir},
			err: &sandbox.Error{Kind: sandbox.Unsupported, Err: errNoTool, Hint: "take a template that has squashfs-tools and curl"}}
	} else if err != nil {
		return output{}, err
	}
	out, err := collect(events, maxOutput)
	if err != nil {
		return out, err
	}
	if out.exit.Code != 0 || out.exit.TimedOut {
		said := trimmed(out.stderr)
		return out, &fault{code: c, text: fmt.Sprintf("%s exited with %d: %s", argv[0], exitCode(out.exit), said),
			context: map[string]any{"dir": dir, "stderr": said, "exitCode": exitCode(out.exit)}}
	}
	return out, nil
}

// createArchive packs a folder into a file of the sandbox.
func (b *box) createArchive(ctx context.Context, r archiveRequest) (any, error) {
	dir, err := b.backupDir(ctx, r.SessionID, r.Dir)
	if err != nil {
		return nil, err
	}
	archive, err := b.resolve(ctx, r.SessionID, r.ArchivePath)
	if err != nil {
		return nil, err
	}
	pack, err := r.options()
	if err != nil {
		return nil, err
	}
	if fi, err := b.engine.Stat(ctx, b.id, dir, true); err != nil || fi.Type != sandbox.TypeDir {
		return nil, &fault{code: backupFailed, text: "no folder " + dir, context: map[string]any{"dir": dir}, err: err}
	}
	if _, err := b.engine.MakeDir(ctx, b.id, path.Dir(archive), 0o700, user, true); err != nil {
		return nil, err
	}
	var ignored []string
	if r.Gitignore {
		if ignored, err = b.ignored(ctx, dir); err != nil {
			return nil, err
		}
	}
	argv := append([]string{"mksquashfs", dir, archive, "-noappend", "-no-progress", "-quiet"}, pack...)
	if excludes := append(wildcards(r.Excludes), ignored...); len(excludes) > 0 {
		argv = append(append(argv, "-wildcards", "-e"), excludes...)
	}
	_, err = b.tool(ctx, backupFailed, dir, argv...)
	if errors.Is(err, errNoTool) {
		err = b.packTar(ctx, dir, archive, append(r.Excludes, ignored...))
	}
	if err != nil {
		return nil, err
	}
	fi, err := b.engine.Stat(ctx, b.id, archive, true)
	if err != nil {
		return nil, err
	}
	return archiveAnswer{Success: true, SizeBytes: fi.Size, ArchivePath: archive}, nil
}

// errNoTool is of images without the packer.
var errNoTool = errors.New("the program is not there")

// packTar packs a folder where the image has no packer. Only restoreArchive reads
// what it makes.
func (b *box) packTar(ctx context.Context, dir, archive string, excludes []string) error {
	body, err := b.engine.Archive(ctx, b.id, dir, sandbox.ArchiveOptions{Gzip: true, Excludes: excludes})
	if err != nil {
		return backupFault(backupFailed, dir, err)
	}
	_, err = b.engine.WriteFile(ctx, b.id, archive, sandbox.WriteOptions{User: user, Mode: 0o600}, body)
	return backupFault(backupFailed, dir, errors.Join(err, body.Close()))
}

func backupFault(c code, dir string, err error) error {
	if err == nil {
		return nil
	}
	return &fault{code: c, text: err.Error(), context: map[string]any{"dir": dir}, err: err}
}

// options are the packer's.
func (r *archiveRequest) options() ([]string, error) {
	if len(r.Excludes) > maxExcludes {
		return nil, &fault{code: invalidBackup, text: fmt.Sprintf("more than %d excludes", maxExcludes), context: map[string]any{"reason": "too many excludes"}}
	}
	for _, e := range r.Excludes {
		if e == "" || strings.ContainsAny(e, "\x00\n") {
			return nil, &fault{code: invalidBackup, text: "an exclude is empty or has a line's end", context: map[string]any{"reason": "bad exclude"}}
		}
	}
	c := compression{Format: "lz4"}
	if r.Compression != nil {
		c = *r.Compression
	}
	switch c.Format {
	case "":
		c.Format = "lz4"
	case "gzip", "lz4", "zstd":
	default:
		return nil, &fault{code: invalidBackup, text: fmt.Sprintf("unknown compression %.20q", c.Format), context: map[string]any{"reason": "compression.format"}}
	}
	argv := []string{"-comp", c.Format}
	if c.Threads > 0 && c.Threads <= 256 {
		argv = append(argv, "-processors", strconv.Itoa(c.Threads))
	}
	return argv, nil
}

// wildcards are patterns as the packer takes them: of a path beneath the folder, and
// of a name at any depth.
func wildcards(patterns []string) (all []string) {
	for _, p := range patterns {
		p = strings.Trim(strings.ReplaceAll(p, "**/", ""), "/")
		if p != "" {
			all = append(all, p, "... "+p)
		}
	}
	return all
}

// ignored lists what git ignores beneath a folder; nothing where there is no git.
func (b *box) ignored(ctx context.Context, dir string) ([]string, error) {
	out, err := b.tool(ctx, backupFailed, dir, "bash", "-c",
		`cd -- "$1" && git rev-parse --is-inside-work-tree >/dev/null 2>&1 && git ls-files --others --ignored --exclude-standard --directory -z || :`, "bash", dir)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, p := range strings.Split(string(out.stdout), "\x00") {
		if p = strings.TrimSuffix(p, "/"); p != "" {
			all = append(all, literal.Replace(p))
		}
	}
	return all, nil
}

// literal makes a pattern that fits a name alone.
var literal = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// swap replaces what a folder holds by what another holds, which goes. The folder
// itself stays, for who works in it.
const swap = `set -e
mkdir -p -- "$1"
find "$1" -mindepth 1 -delete
find "$2" -mindepth 1 -maxdepth 1 -exec mv -t "$1" -- {} +
chmod --reference="$2" -- "$1"
rmdir -- "$2"`

// squashed is how an archive of the packer's begins.
const squashed = "hsqs"

// restoreArchive replaces what a folder holds by what an archive holds, once all of
// that is there. It stays when the sandbox sleeps: nothing is mounted.
func (b *box) restoreArchive(ctx context.Context, r archiveRequest) (any, error) {
	dir, err := b.backupDir(ctx, r.SessionID, r.Dir)
	if err != nil {
		return nil, err
	}
	archive, err := b.resolve(ctx, r.SessionID, r.ArchivePath)
	if err != nil {
		return nil, err
	}
	body, _, err := b.engine.ReadFile(ctx, b.id, archive, sandbox.ReadRange{})
	if err != nil {
		return nil, &fault{code: backupNotFound, text: "no archive " + archive, context: map[string]any{"backupId": strings.TrimSuffix(path.Base(archive), ".sqsh")}, err: err}
	}
	defer body.Close()
	fresh := dir + ".restore-" + strings.ToLower(rand.Text()[:10])
	if _, err := b.engine.MakeDir(ctx, b.id, fresh, 0o755, user, true); err != nil {
		return nil, backupFault(restoreFailed, dir, err)
	}
	err = b.unpack(ctx, dir, fresh, archive, body)
	if err == nil {
		_, err = b.tool(ctx, restoreFailed, dir, "bash", "-c", swap, "bash", dir, fresh)
	}
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if rerr := b.engine.RemoveFile(undo, b.id, fresh, true); rerr != nil && sandbox.KindOf(rerr) != sandbox.NotFound {
			b.log.Warn("a half restored folder stays", "sandbox", b.id, "error", rerr)
		}
		return nil, err
	}
	return restoreAnswer{Success: true, Dir: dir}, nil
}

// unpack unpacks an archive, whose bytes body gives, into a new folder.
func (b *box) unpack(ctx context.Context, dir, fresh, archive string, body io.Reader) error {
	head := make([]byte, len(squashed))
	if _, err := io.ReadFull(body, head); err != nil {
		return backupFault(restoreFailed, dir, err)
	}
	if string(head) == squashed {
		_, err := b.tool(ctx, restoreFailed, dir, "unsquashfs", "-n", "-q", "-f", "-d", fresh, archive)
		return err
	}
	_, err := b.engine.Unpack(ctx, b.id, fresh, sandbox.UnpackOptions{User: user, KeepOwner: true}, io.MultiReader(bytes.NewReader(head), body))
	return backupFault(restoreFailed, dir, err)
}

// upload sends a part of a file from inside the sandbox, within its policy, and
// prints the answer's headers.
const upload = `set -e
part=$(mktemp)
trap 'rm -f -- "$part"' EXIT
dd if="$1" of="$part" bs=1M iflag=skip_bytes,count_bytes skip="$2" count="$3" status=none
curl -sSf --retry 3 --connect-timeout 10 -X PUT -H 'Content-Type:' -T "$part" -o /dev/null -D - -- "$4"`

// uploadParts sends an archive to where its parts are to go.
func (b *box) uploadParts(ctx context.Context, r uploadRequest) (any, error) {
	archive, err := b.resolve(ctx, r.SessionID, r.ArchivePath)
	if err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := make([]uploadedPart, len(r.Parts))
	turns := make(chan struct{}, uploadTurns)
	var parts sync.WaitGroup
	for i, p := range r.Parts {
		parts.Go(func() {
			select {
			case turns <- struct{}{}:
				defer func() { <-turns }()
			case <-ctx.Done():
				return
			}
			etag, err := b.uploadOne(ctx, archive, p)
			if err != nil {
				cancel(err)
			}
			all[i] = uploadedPart{Number: p.Number, ETag: etag}
		})
	}
	parts.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return uploadAnswer{Success: true, Parts: all}, nil
}

func (r *uploadRequest) check() error {
	if len(r.Parts) == 0 || len(r.Parts) > maxParts {
		return invalid(fmt.Sprintf("%d parts, 1 to %d are taken", len(r.Parts), maxParts))
	}
	for _, p := range r.Parts {
		u, err := url.Parse(p.URL)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.ContainsAny(p.URL, "\x00\r\n{}[]") {
			return invalid(fmt.Sprintf("part %d has no URL that can be written to", p.Number))
		}
		if p.Offset < 0 || p.Size <= 0 || p.Number < 1 || p.Number > maxParts {
			return invalid(fmt.Sprintf("part %d: offset %d and size %d are no part of a file", p.Number, p.Offset, p.Size))
		}
	}
	return nil
}

func (b *box) uploadOne(ctx context.Context, archive string, p uploadPart) (etag string, err error) {
	out, err := b.tool(ctx, backupFailed, archive, "bash", "-c", upload, "bash", archive, strconv.FormatInt(p.Offset, 10), strconv.FormatInt(p.Size, 10), p.URL)
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(out.stdout), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(strings.TrimSpace(name), "etag") {
			etag = strings.TrimSpace(value)
		}
	}
	if etag == "" {
		return "", &fault{code: backupFailed, text: fmt.Sprintf("the answer to part %d has no ETag", p.Number), context: map[string]any{"dir": archive}}
	}
	return etag, nil
}
