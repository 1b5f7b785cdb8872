package mcpgateway

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	maxLine  = 4 << 10 // bytes of a line that is kept
	keepTail = 8       // lines that an error tells
	maxLog   = 8 << 20 // bytes of a log's file; there are two at most
)

// lineLog writes the lines of what a process says to a log, after its name and the
// time. Lines that are too long are cut.
type lineLog struct {
	to   io.Writer
	name string

	mu   sync.Mutex
	line []byte
	tail []string // the newest ones
}

func (l *lineLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			l.add(b)
			break
		}
		l.add(b[:i])
		l.flush()
		b = b[i+1:]
	}
	return n, nil
}

func (l *lineLog) add(b []byte) {
	l.line = append(l.line, b[:min(len(b), maxLine-len(l.line))]...)
}

// last is the newest lines, one that has no end yet among them.
func (l *lineLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	return strings.Join(l.tail, "\n")
}

func (l *lineLog) flush() {
	line := string(bytes.ToValidUTF8(bytes.TrimRight(l.line, "\r"), []byte("?")))
	l.line = l.line[:0]
	if line == "" {
		return
	}
	if len(l.tail) == keepTail {
		l.tail = append(l.tail[:0], l.tail[1:]...)
	}
	l.tail = append(l.tail, line)
	say(l.to, l.name, "%s", line)
}

// say writes one line to a log. One that cannot be written is lost: the gateway is
// more than its log.
func say(to io.Writer, name, format string, args ...any) {
	fmt.Fprintf(to, "%s %s: %s\n", time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), name, fmt.Sprintf(format, args...))
}

// Log is a file that is begun anew when it is full; the one before stays, with ".1"
// after its name.
type Log struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int64
}

// OpenLog opens the log for writing at its end.
func OpenLog(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Log{path: path, file: f, size: info.Size()}, nil
}

func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(b)) > maxLog {
		if err := l.turn(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(b)
	l.size += int64(n)
	return n, err
}

// turn begins a new file.
func (l *Log) turn() error {
	if err := os.Rename(l.path, l.path+".1"); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	l.file.Close() // what was written to it stays
	l.file, l.size = f, 0
	return nil
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
