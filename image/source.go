package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// builderVersion changes when equal sources begin to give other roots: cached
// builds of before are then built anew.
const builderVersion = 2

// source is where a root comes from.
type source interface {
	// resolve finds out what exactly would be built, without building it.
	resolve(ctx context.Context) (root, error)
}

// root is one root file system that can be built.
type root interface {
	// key is equal for roots that are built alike.
	key() string

	// fill builds the root in w.root() and says how its processes start.
	fill(ctx context.Context, w *work, say func(sandbox.Progress)) (config, error)

	// Close lets go of what resolve opened.
	Close() error
}

// config is what a root says of its processes.
type config struct {
	env     map[string]string
	workdir string // absolute, or "" for the default
	user    string // name or uid, or "" for the default
}

const sourceHint = `say where the root comes from: "distribution:bookworm", "distribution:bookworm+code", "distribution:bookworm+s3fs", "distribution:bookworm+mcp", "oci:<image reference>", "oci-archive:<path on the server>" or "docker-archive:<path on the server>"`

// parseSource reads a build request's From.
// Registries are shown login, if it is not nil and theirs.
func (s *Store) parseSource(from string, login *sandbox.Login) (source, error) {
	kind, rest, ok := strings.Cut(from, ":")
	if !ok || rest == "" {
		return nil, invalid(sourceHint, "%.200q names no source", from)
	}
	switch kind {
	case "distribution":
		return s.parseRelease(from, rest)
	case "oci":
		return parseReference(rest, login, s.caps)
	case "oci-archive", "docker-archive":
		if err := sandbox.CheckPath(rest); err != nil {
			return nil, err
		}
		return archiveSource{kind: kind, path: rest, caps: s.caps}, nil
	}
	return nil, invalid(sourceHint, "%.40q is no kind of source", kind)
}

// parseRelease reads the name of a distribution's release, and what is to be added to it.
func (s *Store) parseRelease(from, rest string) (source, error) {
	from, mcp := strings.CutSuffix(from, withMCP)
	rest, s3fs := strings.CutSuffix(strings.TrimSuffix(rest, withMCP), withS3FS)
	suite, code := strings.CutSuffix(rest, withCode)
	d, err := parseDistribution(suite, s.mirror)
	if err != nil {
		return nil, err
	}
	var src source = d
	if code {
		if src, err = parseCode(s, d); err != nil {
			return nil, err
		}
	}
	if s3fs {
		if src, err = parseS3FS(s, strings.TrimSuffix(from, withS3FS), src); err != nil {
			return nil, err
		}
	}
	if mcp {
		return parseMCP(s, from, src)
	}
	return src, nil
}

// keyOf hashes what goes into a build.
func keyOf(parts ...any) string {
	b, err := json.Marshal(append([]any{builderVersion, runtime.GOARCH}, parts...))
	if err != nil {
		panic(err) // callers pass strings and lists of them
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
