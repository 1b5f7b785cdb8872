package guest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// Bounds on one page of a listing.
const (
	maxEntries    = 10_000
	maxEntryBytes = 2 << 20 // of names; a page may end early for it
	maxDepth      = 1024
)

// listDir lists a folder in the order of paths, compared name by name, so that
// a folder is followed by what is in it. Links are listed, never entered.
func (g *Guest) listDir(ctx context.Context, r *guestv1.ListDirRequest) ([]*guestv1.FileInfo, bool, error) {
	return g.find(ctx, r, nil)
}

// find lists only what matches a pattern; no patterns match everything.
func (g *Guest) find(ctx context.Context, r *guestv1.ListDirRequest, match globs) ([]*guestv1.FileInfo, bool, error) {
	root, err := cleanPath(string(r.Path))
	if err != nil {
		return nil, false, err
	}
	if r.Depth < 0 || r.Depth > maxDepth || r.Limit < 0 || r.Limit > maxEntries {
		return nil, false, refuse(invalid, "depth takes 1 to 1024, limit 1 to 10000", "depth %d or limit %d is out of range", r.Depth, r.Limit)
	}
	l := &listing{g: g, ctx: ctx, names: &names{}, limit: int(r.Limit), root: root, match: match}
	if l.limit == 0 {
		l.limit = maxEntries
	}
	if len(r.After) > 0 {
		after, err := cleanPath(string(r.After))
		if err != nil {
			return nil, false, err
		}
		inside, ok := strings.CutPrefix(after, strings.TrimSuffix(root, "/")+"/")
		if !ok {
			return nil, false, refuse(invalid, "give the path of the last entry that you have", "%.200q does not lie in %.200q", after, root)
		}
		l.after = strings.Split(inside, "/")
	}
	err = l.folder(root, max(int(r.Depth), 1), l.after)
	if errors.Is(err, errFull) {
		return l.entries, true, nil
	}
	return l.entries, false, fromOS(err)
}

// errFull ends a walk whose page is full.
var errFull = errors.New("the page is full")

// listing is one page on its way.
type listing struct {
	g       *Guest
	ctx     context.Context
	names   *names
	limit   int
	root    string
	match   globs
	after   []string
	entries []*guestv1.FileInfo
	bytes   int
}

// folder adds what lies in dir. after is what remains of the cursor here: the
// name up to which all is known, and what is known beneath that name.
func (l *listing) folder(dir string, depth int, after []string) error {
	least := ""
	if len(after) > 0 {
		least = after[0]
	}
	for {
		page, more, err := l.smallest(dir, least)
		if err != nil {
			return err
		}
		for _, name := range page {
			if err := l.entry(dir, name, depth, after); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		least, after = page[len(page)-1]+"\x00", nil // the least name behind the last
	}
}

// entry adds one name of dir, unless the cursor has it, and what lies beneath.
func (l *listing) entry(dir, name string, depth int, after []string) error {
	known := len(after) > 0 && after[0] == name
	file := path.Join(dir, name)
	info, err := l.g.files.lstat(file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		return err
	}
	if !known && l.wanted(file) {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		if len(l.entries) >= l.limit || l.bytes > maxEntryBytes {
			return errFull
		}
		d := l.g.describe(file, info, l.names)
		l.entries = append(l.entries, d)
		l.bytes += len(d.Path) + len(d.Target) + len(d.Owner) + len(d.Group) + 64
	}
	if depth <= 1 || !info.IsDir() {
		return nil
	}
	var inside []string
	if known {
		inside = after[1:]
	}
	err = l.folder(file, depth-1, inside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// wanted reports whether a path is to be listed.
func (l *listing) wanted(file string) bool {
	return len(l.match) == 0 || l.match.match(strings.TrimPrefix(strings.TrimPrefix(file, l.root), "/"))
}

// smallest gives the first names of dir from least on, sorted, as many as a page
// may still take, and whether there are more. A folder of any size is read in
// pieces and never held whole.
func (l *listing) smallest(dir, least string) ([]string, bool, error) {
	f, err := l.g.files.open(dir, os.O_RDONLY, 0)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	want := l.limit - len(l.entries) + 2 // one known by the cursor, one that shows that there is more
	var names []string
	more := false
	for {
		if err := l.ctx.Err(); err != nil {
			return nil, false, err
		}
		piece, err := f.Readdirnames(1024)
		for _, n := range piece {
			if n >= least {
				names = append(names, n)
			}
		}
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return nil, false, err
		}
		if len(names) > 2*want || end {
			slices.Sort(names)
			if len(names) > want {
				names, more = slices.Clip(names[:want]), true
			}
		}
		if end {
			return names, more, nil
		}
	}
}
