package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// syncEvery bounds what the loss of power can take.
const syncEvery = time.Second

// tidyEvery is how often files are looked at for their age.
const tidyEvery = 10 * time.Minute

// position is a place in the log: a segment and an offset in it.
type position struct{ segment, offset int64 }

func (p position) String() string { return fmt.Sprintf("%010d-%010d", p.segment, p.offset) }

func (p position) before(o position) bool {
	return p.segment < o.segment || p.segment == o.segment && p.offset < o.offset
}

func parsePosition(s string) (position, error) {
	a, b, ok := strings.Cut(s, "-")
	segment, aerr := strconv.ParseInt(a, 10, 64)
	offset, berr := strconv.ParseInt(b, 10, 64)
	p := position{segment, offset}
	if !ok || aerr != nil || berr != nil || segment < 0 || offset < 0 || p.String() != s {
		return p, &sandbox.Error{Op: "check audit query", Kind: sandbox.Invalid, Err: fmt.Errorf("%.40q is not a cursor", s),
			Hint: "after takes the cursor of an entry, or next of a page"}
	}
	return p, nil
}

// writer is the segment that is being written. Only the writing goroutine uses it.
type writer struct {
	file  *os.File
	dirty bool
}

func (l *Log) path(segment int64) string {
	return filepath.Join(l.config.Dir, fmt.Sprintf("%010d.jsonl", segment))
}

// openLast finds the segments and takes up the last one.
func (l *Log) openLast() error {
	entries, err := os.ReadDir(l.config.Dir)
	if err != nil {
		return err
	}
	l.sizes = map[int64]int64{}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".jsonl")
		n, err := strconv.ParseInt(name, 10, 64)
		if !ok || err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		l.sizes[n] = info.Size()
		l.last.segment = max(l.last.segment, n)
	}
	if len(l.sizes) == 0 {
		l.last.segment = 1
	}
	f, err := os.OpenFile(l.path(l.last.segment), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if l.last.offset, err = wholeLines(f); err != nil {
		f.Close()
		return err
	}
	l.sizes[l.last.segment] = l.last.offset
	l.writer = &writer{file: f}
	return nil
}

// wholeLines cuts a file after its last line and returns its size.
func wholeLines(f *os.File) (int64, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	b := make([]byte, 64<<10)
	for end := size; end > 0; {
		n := min(end, int64(len(b)))
		if _, err := f.ReadAt(b[:n], end-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(b[:n], '\n'); i >= 0 {
			end = end - n + int64(i) + 1
			return end, f.Truncate(end)
		}
		end -= n
	}
	return 0, f.Truncate(0)
}

// write takes entries from the queue until the log is closed and the queue empty.
func (l *Log) write() {
	defer close(l.done)
	defer func() {
		l.sync()
		l.writer.file.Close()
	}()
	sync := time.NewTicker(syncEvery)
	defer sync.Stop()
	l.tidy()
	tidy := time.NewTicker(tidyEvery)
	defer tidy.Stop()
	for {
		select {
		case e := <-l.queue:
			l.append(l.batch(e))
		case <-sync.C:
			l.append(nil) // tells of what was dropped
			l.sync()
		case <-tidy.C:
			l.tidy()
		case <-l.closed:
			for len(l.queue) > 0 {
				l.append(l.batch(<-l.queue))
			}
			l.append(nil)
			return
		}
	}
}

// batch takes what else waits, within reason: it goes to one segment.
func (l *Log) batch(first sandbox.AuditEntry) []sandbox.AuditEntry {
	some := []sandbox.AuditEntry{first}
	for most := min(512, int(l.config.Segment>>10)); len(some) < most; {
		select {
		case e := <-l.queue:
			some = append(some, e)
			continue
		default:
		}
		break
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range some {
		if l.waiting[e.Sandbox]--; l.waiting[e.Sandbox] == 0 {
			delete(l.waiting, e.Sandbox)
		}
	}
	return some
}

// append writes entries, and what was dropped before them. If it cannot, they are
// counted as dropped themselves.
func (l *Log) append(some []sandbox.AuditEntry) {
	some = append(l.losses(), some...)
	if len(some) == 0 {
		return
	}
	err := l.appendAll(some)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = err
	if err != nil {
		for _, e := range some {
			l.lose(e, max(1, e.Count))
		}
	}
}

// losses are the entries about those that were dropped.
func (l *Log) losses() []sandbox.AuditEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var told []sandbox.AuditEntry
	for id, d := range l.dropped {
		told = append(told, sandbox.AuditEntry{Time: d.since, Sandbox: id, Account: d.account, Kind: sandbox.AuditDropped, Count: d.count,
			Reason: "more came than could be written"})
	}
	clear(l.dropped)
	return told
}

// appendAll writes all of some, or nothing.
func (l *Log) appendAll(some []sandbox.AuditEntry) error {
	var b bytes.Buffer
	encode := json.NewEncoder(&b)
	encode.SetEscapeHTML(false)
	for i := range some {
		some[i].Cursor = ""
		if err := encode.Encode(&some[i]); err != nil {
			return err
		}
	}
	if l.last.offset > 0 && l.last.offset+int64(b.Len()) > l.config.Segment {
		if err := l.next(); err != nil {
			return err
		}
	}
	if _, err := l.writer.file.WriteAt(b.Bytes(), l.last.offset); err != nil {
		return errors.Join(err, l.writer.file.Truncate(l.last.offset))
	}
	l.writer.dirty = true
	l.at.Lock()
	defer l.at.Unlock()
	l.last.offset += int64(b.Len())
	l.sizes[l.last.segment] = l.last.offset
	close(l.grown)
	l.grown = make(chan struct{})
	return nil
}

// next begins a segment, and makes room for it.
func (l *Log) next() error {
	f, err := os.OpenFile(l.path(l.last.segment+1), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	l.sync()
	l.writer.file.Close()
	l.writer = &writer{file: f}
	l.at.Lock()
	l.last = position{l.last.segment + 1, 0}
	l.sizes[l.last.segment] = 0
	l.at.Unlock()
	l.tidy()
	return nil
}

func (l *Log) sync() {
	if !l.writer.dirty {
		return
	}
	if err := unix.Fdatasync(int(l.writer.file.Fd())); err != nil {
		l.mu.Lock()
		l.broken = err
		l.mu.Unlock()
		return
	}
	l.writer.dirty = false
}

// tidy removes the oldest segments while there is too much, or what is too old.
// The one that is being written stays.
func (l *Log) tidy() {
	l.at.Lock()
	defer l.at.Unlock()
	var total int64
	var all []int64
	for n, size := range l.sizes {
		total += size
		all = append(all, n)
	}
	slices.Sort(all)
	oldest := l.config.Now().Add(-l.config.KeepTime)
	for _, n := range all {
		if n == l.last.segment {
			return
		}
		info, err := os.Stat(l.path(n))
		if err == nil && total <= l.config.Keep-l.config.Segment && !info.ModTime().Before(oldest) {
			return
		}
		if err := os.Remove(l.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.mu.Lock()
			l.broken = err
			l.mu.Unlock()
			return
		}
		total -= l.sizes[n]
		delete(l.sizes, n)
	}
}
