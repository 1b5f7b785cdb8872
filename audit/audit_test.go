package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

const (
	one = sandbox.ID("aaaaaaaaaaaaaaaaaaaa")
	two = sandbox.ID("bbbbbbbbbbbbbbbbbbbb")
)

func open(t testing.TB, c Config) *Log {
	t.Helper()
	l, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// all reads every entry that q selects, page by page.
func all(t testing.TB, l *Log, q sandbox.AuditQuery) (entries []sandbox.AuditEntry) {
	t.Helper()
	for q.Limit = 7; ; {
		page, err := l.Query(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, page.Entries...)
		if len(page.Entries) < q.Limit {
			return entries
		}
		q.After = page.Next
	}
}

// settled waits until n entries can be read.
func settled(t testing.TB, l *Log, n int) []sandbox.AuditEntry {
	t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		grown := l.Grown()
		if got := all(t, l, sandbox.AuditQuery{}); len(got) >= n {
			return got
		}
		select {
		case <-grown:
		case <-timeout:
			t.Fatalf("%d entries, want %d", len(all(t, l, sandbox.AuditQuery{})), n)
		}
	}
}

func entry(id sandbox.ID, n int, v sandbox.Verdict) sandbox.AuditEntry {
	return sandbox.AuditEntry{Time: time.Unix(int64(n), 0).UTC(), Sandbox: id, Account: "acc-" + string(id[:1]), Kind: sandbox.AuditConnection,
		Verdict: v, Host: fmt.Sprintf("host%d.example", n), Port: 443}
}

func TestEntriesComeBack(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir})
	for n := range 40 {
		v := sandbox.VerdictAllowed
		if n%4 == 0 {
			v = sandbox.VerdictDenied
		}
		l.Note(entry([]sandbox.ID{one, two}[n%2], n, v))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, Config{Dir: dir})
	got := all(t, l, sandbox.AuditQuery{})
	if len(got) != 40 {
		t.Fatalf("%d entries, want 40", len(got))
	}
	for n, e := range got {
		if e.Host != fmt.Sprintf("host%d.example", n) || n > 0 && e.Cursor <= got[n-1].Cursor {
			t.Errorf("entry %d is %+v", n, e)
		}
	}
	for what, c := range map[string]struct {
		q sandbox.AuditQuery
		n int
	}{
		"of one":        {sandbox.AuditQuery{Sandbox: string(one)}, 20},
		"of an account": {sandbox.AuditQuery{Account: "acc-b"}, 20},
		"of another":    {sandbox.AuditQuery{Account: "acc-b", Sandbox: string(one)}, 0},
		"denied":        {sandbox.AuditQuery{Denied: true}, 10},
		"since":         {sandbox.AuditQuery{Since: time.Unix(30, 0)}, 10},
		"by kind":       {sandbox.AuditQuery{Kinds: []sandbox.AuditKind{sandbox.AuditDNS}}, 0},
		"after":         {sandbox.AuditQuery{After: got[29].Cursor}, 10},
	} {
		if n := len(all(t, l, c.q)); n != c.n {
			t.Errorf("%s: %d entries, want %d", what, n, c.n)
		}
	}
}

func TestQueriesThatCannotBe(t *testing.T) {
	l := open(t, Config{Dir: t.TempDir()})
	for _, q := range []sandbox.AuditQuery{{After: "x"}, {After: "1-2"}, {After: "0000000001--000000001"}, {Limit: -1}, {Limit: 5000}, {Kinds: []sandbox.AuditKind{"x"}}} {
		if _, err := l.Query(t.Context(), q); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%+v: %v", q, err)
		}
	}
	// One of a log that is no more serves: what comes next is seen.
	page, err := l.Query(t.Context(), sandbox.AuditQuery{After: "0000000099-0000000042"})
	if err != nil {
		t.Fatal(err)
	}
	l.Note(entry(one, 1, sandbox.VerdictAllowed))
	settled(t, l, 1)
	if got := all(t, l, sandbox.AuditQuery{After: page.Next}); len(got) != 1 {
		t.Errorf("%d entries after the future, want 1", len(got))
	}
}

// TestACutLine opens a log whose last line a crash has cut, at every byte.
func TestACutLine(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir})
	l.Note(entry(one, 1, sandbox.VerdictAllowed))
	l.Note(entry(one, 2, sandbox.VerdictAllowed))
	l.Close()
	path := filepath.Join(dir, "0000000001.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := strings.IndexByte(string(whole), '\n') + 1
	for cut := 0; cut < len(whole); cut += 5 {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, Config{Dir: dir})
		want := 0
		if cut >= first {
			want = 1
		}
		if got := all(t, l, sandbox.AuditQuery{}); len(got) != want {
			t.Fatalf("cut at %d: %d entries, want %d", cut, len(got), want)
		}
		l.Note(entry(one, 3, sandbox.VerdictAllowed))
		if got := settled(t, l, want+1); got[want].Host != "host3.example" {
			t.Fatalf("cut at %d: %+v", cut, got)
		}
		l.Close()
	}
}

// TestAFloodIsCounted fills the queue while nothing is written: what is dropped is
// told, and another sandbox has its share.
func TestAFloodIsCounted(t *testing.T) {
	l := open(t, Config{Dir: t.TempDir(), Queue: 64})
	l.at.Lock() // the writer stops at its first batch
	const many = 5000
	for n := range many {
		l.Note(entry(one, n, sandbox.VerdictDenied))
	}
	for n := range 5 {
		l.Note(entry(two, n, sandbox.VerdictAllowed))
	}
	if lost, _ := l.Lost(); lost == 0 || lost > many {
		t.Errorf("%d are counted as dropped", lost)
	}
	l.at.Unlock()
	timeout := time.After(2 * time.Minute)
	for {
		grown := l.Grown()
		var ones, twos int
		var dropped int64
		for _, e := range all(t, l, sandbox.AuditQuery{}) {
			switch {
			case e.Kind == sandbox.AuditDropped && e.Sandbox == one && e.Account == "acc-a":
				dropped += e.Count
			case e.Sandbox == one:
				ones++
			case e.Sandbox == two:
				twos++
			}
		}
		if int64(ones)+dropped == many && twos == 5 {
			return
		}
		select {
		case <-grown:
		case <-timeout:
			t.Fatalf("%d and %d dropped of %d; %d of the other's 5", ones, dropped, many, twos)
		}
	}
}

func TestOldSegmentsGo(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir, Segment: 4 << 10, Keep: 16 << 10})
	first := entry(one, 0, sandbox.VerdictAllowed)
	l.Note(first)
	cursor := settled(t, l, 1)[0].Cursor
	for n := range 400 {
		l.Note(entry(one, n, sandbox.VerdictAllowed))
		if n%20 == 0 {
			time.Sleep(time.Millisecond) // several batches
		}
	}
	l.Close()
	var size int64
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > 40<<10 || len(files) < 2 {
		t.Errorf("%d files of %d bytes are kept", len(files), size)
	}
	l = open(t, Config{Dir: dir, Segment: 4 << 10, Keep: 16 << 10})
	page, err := l.Query(t.Context(), sandbox.AuditQuery{After: cursor})
	if err != nil || !page.Missed {
		t.Errorf("what was removed is not told: %+v, %v", page.Missed, err)
	}
	got := all(t, l, sandbox.AuditQuery{})
	if len(got) == 0 || got[len(got)-1].Host != "host399.example" {
		t.Errorf("the newest is %+v", got[len(got)-1:])
	}
}

func TestAgeEndsASegment(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	l := open(t, Config{Dir: dir, Segment: 1 << 10, KeepTime: time.Hour})
	for n := range 30 {
		l.Note(entry(one, n, sandbox.VerdictAllowed))
	}
	settled(t, l, 1)
	l.Close()
	l = open(t, Config{Dir: dir, Segment: 1 << 10, KeepTime: time.Hour, Now: func() time.Time { return now.Add(2 * time.Hour) }})
	l.Close()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("%d files are kept, %v; want the last alone", len(files), err)
	}
}

// TestAFullDisk loses entries while nothing can be written, and tells how many.
func TestAFullDisk(t *testing.T) {
	l := open(t, Config{Dir: t.TempDir()})
	l.Note(entry(one, 1, sandbox.VerdictAllowed))
	settled(t, l, 1)
	l.writer.file.Close() // every write fails, as on a full disk
	for n := range 10 {
		l.Note(entry(one, n, sandbox.VerdictAllowed))
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		if lost, cause := l.Lost(); lost == 10 && cause != nil {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d are counted as lost, for %v", lost, cause)
		}
	}
	if err := l.Close(); err == nil {
		t.Error("the log closed as if all was written")
	}
}

func TestManyWriteAndRead(t *testing.T) {
	l := open(t, Config{Dir: t.TempDir(), Segment: 16 << 10, Queue: 1 << 14})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for n := range 300 {
				l.Note(entry(sandbox.ID(strings.Repeat(string(rune('a'+w)), 20)), n, sandbox.VerdictAllowed))
			}
		})
		wg.Go(func() { all(t, l, sandbox.AuditQuery{Denied: true}) })
	}
	wg.Wait()
	settled(t, l, 1200)
}

func FuzzCursor(f *testing.F) {
	f.Add("0000000001-0000000042")
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := parsePosition(s); err == nil && (p.String() != s || p.segment < 0 || p.offset < 0) {
			t.Errorf("%q is read as %v", s, p)
		}
	})
}

func BenchmarkNote(b *testing.B) {
	l := open(b, Config{Dir: b.TempDir()})
	e := entry(one, 1, sandbox.VerdictAllowed)
	for b.Loop() {
		l.Note(e)
	}
}
