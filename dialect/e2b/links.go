package e2b

import (
	"context"
	"errors"
	"path"

	"github.com/berth-dev/berth/sandbox"
)

// maxHops is how many links one path may lead through, as in Linux.
const maxHops = 40

var errTooManyLinks = errors.New("too many links")

// links finds where the links of one sandbox lead. What it has learnt serves for one
// request.
type links struct {
	engine Engine
	id     string
	known  map[string]ending
}

// ending is a path without links, and what is there.
type ending struct {
	path string
	info sandbox.FileInfo
}

func (f *filesystem) links(t *target) *links {
	return &links{engine: f.engine, id: t.id, known: map[string]ending{}}
}

// end follows an absolute path through every link on its way.
func (l *links) end(ctx context.Context, p string) (ending, error) {
	hops := 0
	return l.follow(ctx, path.Clean(p), &hops)
}

func (l *links) follow(ctx context.Context, p string, hops *int) (ending, error) {
	if p == "/" {
		return ending{path: p, info: sandbox.FileInfo{Name: "/", Path: p, Type: sandbox.TypeDir, Mode: 0o755}}, nil
	}
	if at, ok := l.known[p]; ok {
		return at, nil
	}
	above, err := l.follow(ctx, path.Dir(p), hops)
	if err != nil {
		return above, err
	}
	at := ending{path: path.Join(above.path, path.Base(p))}
	if at.info, err = l.engine.Stat(ctx, l.id, at.path, false); err != nil {
		return at, err
	}
	if at.info.Type == sandbox.TypeSymlink {
		if *hops++; *hops > maxHops {
			return at, errTooManyLinks
		}
		if at, err = l.follow(ctx, targetPath(at.info), hops); err != nil {
			return at, err
		}
	}
	l.known[p] = at
	return at, nil
}

// targetPath is where a link itself points, as an absolute path.
func targetPath(link sandbox.FileInfo) string {
	if path.IsAbs(link.Target) {
		return path.Clean(link.Target)
	}
	return path.Join(path.Dir(link.Path), link.Target)
}
