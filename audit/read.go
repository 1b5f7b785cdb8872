package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/berth-dev/berth/sandbox"
)

// Query returns one page of entries, oldest first.
func (l *Log) Query(ctx context.Context, q sandbox.AuditQuery) (sandbox.AuditPage, error) {
	page, err := l.query(ctx, q)
	if err != nil {
		return page, &sandbox.Error{Op: "read audit", Err: err}
	}
	return page, nil
}

func (l *Log) query(ctx context.Context, q sandbox.AuditQuery) (sandbox.AuditPage, error) {
	page := sandbox.AuditPage{Entries: []sandbox.AuditEntry{}}
	if err := q.Check(); err != nil {
		return page, err
	}
	if q.Limit == 0 {
		q.Limit = sandbox.DefaultPage
	}
	var from position
	if q.After != "" {
		var err error
		if from, err = parsePosition(q.After); err != nil {
			return page, err
		}
	}
	leave, err := l.turn(ctx)
	if err != nil {
		return page, err
	}
	defer leave()
	segments, end := l.segments()
	if end.before(from) { // of another log, or of what a crash has taken
		from = end
	}
	page.Missed = q.After != "" && from.segment < segments[0]
	for _, n := range segments {
		if n < from.segment {
			continue
		}
		if n > from.segment {
			from = position{n, 0}
		}
		if q.After == "" && l.endedBefore(n, end, q) {
			continue
		}
		if from, err = l.scan(ctx, from, end, &q, &page); err != nil {
			return page, err
		}
		if len(page.Entries) == q.Limit {
			break
		}
	}
	page.Next = from.String()
	return page, nil
}

// segments are the numbers of those that there are, and the end of the last.
func (l *Log) segments() ([]int64, position) {
	l.at.Lock()
	defer l.at.Unlock()
	var all []int64
	for n := range l.sizes {
		all = append(all, n)
	}
	slices.Sort(all)
	return all, l.last
}

// endedBefore reports whether a segment was last written before the time asked
// for: an entry is written at its end, which is not before its time.
func (l *Log) endedBefore(n int64, end position, q sandbox.AuditQuery) bool {
	if q.Since.IsZero() || n == end.segment {
		return false
	}
	info, err := os.Stat(l.path(n))
	return err == nil && info.ModTime().Before(q.Since)
}

// scan adds the entries of one segment, and returns how far it came.
func (l *Log) scan(ctx context.Context, from, end position, q *sandbox.AuditQuery, page *sandbox.AuditPage) (position, error) {
	f, err := os.Open(l.path(from.segment))
	if errors.Is(err, fs.ErrNotExist) { // its time was over meanwhile
		return from, nil
	}
	if err != nil {
		return from, err
	}
	defer f.Close()
	if _, err := f.Seek(from.offset, io.SeekStart); err != nil {
		return from, err
	}
	lines := bufio.NewReaderSize(f, 256<<10)
	for n := 0; len(page.Entries) < q.Limit; n++ {
		if from.segment == end.segment && from.offset >= end.offset {
			return from, nil
		}
		if n%1024 == 0 && ctx.Err() != nil {
			return from, context.Cause(ctx)
		}
		line, err := lines.ReadSlice('\n')
		if err == io.EOF {
			return from, nil
		}
		if err != nil {
			return from, err
		}
		from.offset += int64(len(line))
		if !mayPick(q, line) {
			continue
		}
		var e sandbox.AuditEntry
		if err := json.Unmarshal(line, &e); err != nil {
			return from, sandbox.Errorf("decode entry "+from.String(), sandbox.Internal, "%w", err)
		}
		if e.Cursor = from.String(); picks(q, &e) {
			page.Entries = append(page.Entries, e)
		}
	}
	return from, nil
}

// mayPick is quick, and never wrong when it says no.
func mayPick(q *sandbox.AuditQuery, line []byte) bool {
	if q.Sandbox != "" && !bytes.Contains(line, []byte(q.Sandbox)) {
		return false
	}
	return !q.Denied || bytes.Contains(line, []byte(sandbox.VerdictDenied))
}

func picks(q *sandbox.AuditQuery, e *sandbox.AuditEntry) bool {
	return (q.Sandbox == "" || q.Sandbox == string(e.Sandbox)) &&
		(q.Account == "" || q.Account == e.Account) &&
		(!q.Denied || e.Verdict == sandbox.VerdictDenied) &&
		(q.Since.IsZero() || !e.Time.Before(q.Since)) &&
		(len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind))
}
