package cloudflare

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/big"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/berth-dev/berth/sandbox"
)

// window is how long changes of one path are put together.
const window = 75 * time.Millisecond

// skipped is what nobody wants to watch who does not say what.
var skipped = []string{".git", "node_modules", ".DS_Store"}

// check settles what is watched.
func (b *box) checkWatch(ctx context.Context, r *watchRequest) (sandbox.WatchRequest, error) {
	w := sandbox.WatchRequest{Recursive: r.Recursive == nil || *r.Recursive, Include: r.Include, Exclude: r.Exclude, Window: window}
	if len(r.Include) > 0 && len(r.Exclude) > 0 {
		return w, invalid("include and exclude cannot be used together")
	}
	if len(r.Include) == 0 && r.Exclude == nil {
		w.Exclude = skipped
	}
	p, err := b.resolve(ctx, r.SessionID, r.Path)
	if err != nil {
		return w, err
	}
	w.Path = p
	if err := w.Check(); err != nil {
		return w, err
	}
	_, err = b.engine.Stat(ctx, b.id, p, true)
	return w, fileFault("watch.start", p, err)
}

// watch tells what changes beneath a path.
func (b *box) watch(ctx context.Context, r watchRequest, out stream) error {
	q, err := b.checkWatch(ctx, &r)
	if err != nil {
		return err
	}
	w, err := b.engine.Watch(ctx, b.id, q)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = w.Close() })
	defer func() { stop(); _ = w.Close() }()
	id := "watch-" + strings.ToLower(rand.Text())
	for {
		e, err := w.Recv()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case e.Type == sandbox.WatchReady:
			err = out.send("watching", watchEvent{Type: "watching", Path: q.Path, WatchID: id})
		case e.Type == sandbox.WatchOverflow:
			err = out.send("error", watchEvent{Type: "error", Error: "events were missed: " + e.Reason})
		default:
			err = b.tellChange(ctx, e, out)
		}
		if err != nil {
			return err
		}
	}
}

// changeTypes are the words for changes that have one path.
var changeTypes = map[sandbox.WatchType]string{sandbox.WatchCreate: "create", sandbox.WatchModify: "modify",
	sandbox.WatchRemove: "delete", sandbox.WatchAttrib: "attrib"}

// tellChange sends one change, which may be more than one event.
func (b *box) tellChange(ctx context.Context, e sandbox.WatchEvent, out stream) error {
	dir := e.Entry == sandbox.TypeDir
	at := e.Time
	if at.IsZero() {
		at = time.Now()
	}
	send := func(kind, p string) error {
		return out.send("event", watchEvent{Type: "event", EventType: kind, Path: valid([]byte(p)), IsDir: &dir, Timestamp: stamp(at)})
	}
	if e.Type == sandbox.WatchRename {
		if err := send("move_from", e.From); err != nil {
			return err
		}
		return send("move_to", e.Path)
	}
	if err := send(changeTypes[e.Type], e.Path); err != nil || e.Type != sandbox.WatchCreate || dir {
		return err
	}
	// What was written at once is told with the making; these clients wait to hear of
	// it too.
	if fi, err := b.engine.Stat(ctx, b.id, e.Path, false); err == nil && fi.Type == sandbox.TypeFile && fi.Size > 0 {
		return send("modify", e.Path)
	}
	return nil
}

// version is the state of what lies beneath a path. It is computed from the files
// each time, so it holds over pauses, forks and restarts.
var version = regexp.MustCompile(`^watch-([0-9]{1,20})-([0-9]{1,78}):0$`)

// scanTime bounds one look at all files beneath a path.
const scanTime = 2 * time.Minute

// checkChanges says whether something has changed since a version.
func (b *box) checkChanges(ctx context.Context, r watchRequest) (any, error) {
	q, err := b.checkWatch(ctx, &r)
	if err != nil {
		return nil, err
	}
	what, err := json.Marshal([]any{q.Path, q.Recursive, q.Include, q.Exclude})
	if err != nil {
		return nil, sandbox.Errorf("check changes", sandbox.Internal, "%w", err)
	}
	whole := sha256.Sum256(what)
	about := binary.BigEndian.Uint64(whole[:])
	sum, err := b.scan(ctx, q)
	if err != nil {
		return nil, err
	}
	a := changesAnswer{Success: true, Status: "unchanged", Version: fmt.Sprintf("watch-%d-%d:0", about, sum), Timestamp: now()}
	if r.Since == "" || r.Since == a.Version {
		return a, nil
	}
	m := version.FindStringSubmatch(r.Since)
	if m == nil || m[1] != strconv.FormatUint(about, 10) {
		a.Status, a.Reason = "resync", "expired" // a version of something else
	} else {
		a.Status = "changed"
	}
	return a, nil
}

// scan sums up what lies beneath a path: names, kinds, modes, owners, and of all but
// folders what changes when they do. Times of folders change with what is left out.
func (b *box) scan(ctx context.Context, q sandbox.WatchRequest) (*big.Int, error) {
	fi, err := b.engine.Stat(ctx, b.id, q.Path, true)
	if err != nil {
		return nil, fileFault("watch.check", q.Path, err)
	}
	dir, what := q.Path, "."
	if fi.Type != sandbox.TypeDir {
		dir, what = path.Dir(q.Path), "./"+path.Base(q.Path)
	}
	argv := []string{"find", "-P", what}
	if !q.Recursive {
		argv = append(argv, "-maxdepth", "1")
	}
	for _, p := range q.Exclude {
		if simple.MatchString(p) { // the rest is left out here
			argv = append(argv, "(", "-name", p, "-prune", ")", "-o")
		}
	}
	argv = append(argv, "(", "-type", "d", "-printf", `%P\0d %m %U %G\0`, ")", "-o", "-printf", `%P\0%y %m %U %G %s %T@ %C@ %i %l\0`)
	events, err := b.begin(ctx, sandbox.Command{Argv: argv, User: user, Timeout: scanTime, Lossless: true}, dir)
	if err != nil {
		return nil, err
	}
	out, err := collect(events, maxOutput)
	switch {
	case err != nil:
		return nil, err
	case out.exit.TimedOut:
		return nil, &fault{code: filesystemError, text: "look at " + q.Path + ": there is too much beneath it"}
	case out.exit.Code != 0 && len(out.stdout) == 0:
		return nil, &fault{code: filesystemError, text: "look at " + q.Path + ": " + trimmed(out.stderr)}
	}
	fields := strings.Split(string(out.stdout), "\x00")
	var all []string
	for i := 0; i+1 < len(fields); i += 2 {
		if counts(q, fields[i]) {
			all = append(all, fields[i]+"\x00"+fields[i+1]+"\x00")
		}
	}
	slices.Sort(all)
	sum := sha256.New()
	for _, one := range all {
		sum.Write([]byte(one))
	}
	return new(big.Int).SetBytes(sum.Sum(nil)), nil
}

// simple is a pattern that find takes as it is.
var simple = regexp.MustCompile(`^[A-Za-z0-9._*-]+$`)

// counts reports whether an entry beneath a watched path is among what is watched.
func counts(q sandbox.WatchRequest, rel string) bool {
	if rel == "" {
		return true
	}
	for _, p := range q.Exclude {
		for part := rel; part != "." && part != "/"; part = path.Dir(part) {
			if matches(p, part) {
				return false
			}
		}
	}
	return len(q.Include) == 0 || slices.ContainsFunc(q.Include, func(p string) bool { return matches(p, rel) })
}

// matches reports whether a pattern fits a path: one without a slash fits its name.
func matches(pattern, rel string) bool {
	if !strings.Contains(pattern, "/") {
		rel = path.Base(rel)
	}
	return doublestar.MatchUnvalidated(strings.Trim(pattern, "/"), rel)
}
