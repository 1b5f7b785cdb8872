package guestclient

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

// Bounds on what is taken over from the guest.
const (
	maxName = 255     // bytes of a name of a user, a signal, a version
	maxText = 1024    // bytes of an error's text
	maxArgs = 2 << 20 // bytes of a process's arguments
)

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// broken is the error of a guest that does not keep to the contract.
func broken(op, format string, args ...any) error {
	e := sandbox.Errorf(op, sandbox.Internal, "the guest breaks the contract: %w", fmt.Errorf(format, args...))
	e.Hint = "the sandbox's guest is damaged or was tampered with: make a new sandbox"
	return e
}

// text is s in at most size bytes of valid UTF-8 without control characters, so
// that it can be shown anywhere.
func text(s string, size int) string {
	if len(s) > size {
		s = s[:size]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		if len(s) > 0 && s[len(s)-1] >= utf8.RuneSelf {
			s = s[:len(s)-1]
		}
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

var processID = regexp.MustCompile(`^[a-z0-9]{1,32}$`)

// process takes a description over.
func process(p *guestv1.Process) (sandbox.Process, error) {
	if !processID.MatchString(p.GetId()) {
		return sandbox.Process{}, errorf("process id %.40q", p.GetId())
	}
	if p.Session != "" && !sessionName.MatchString(p.Session) {
		return sandbox.Process{}, errorf("process %s of session %.80q", p.Id, p.Session)
	}
	if p.Pid < 0 || p.Pid == 0 && p.Session == "" { // a session's command may wait
		return sandbox.Process{}, errorf("process %s has pid %d", p.Id, p.Pid)
	}
	out := sandbox.Process{Session: p.Session, Usage: processUsage(p.Usage), ID: p.Id,
		Written: sandbox.Offsets{Stdout: max(p.StdoutBytes, 0), Stderr: max(p.StderrBytes, 0)}, Name: text(p.Name, maxName), PID: int(p.Pid), Argv: []string{},
		Cwd: limit(string(p.Cwd), sandbox.MaxPathBytes), User: text(p.User, maxName), Started: time.Unix(0, p.StartedUnixNano)}
	left := maxArgs
	for _, a := range p.Argv {
		if len(out.Argv) >= sandbox.MaxArgs || left <= 0 {
			break
		}
		out.Argv = append(out.Argv, limit(string(a), left))
		left -= len(a)
	}
	if p.Exit != nil {
		e := exit(p.Exit)
		out.Exit, out.Ended = &e, time.Unix(0, p.EndedUnixNano)
	}
	return out, nil
}

// exit takes over how a process ended.
func exit(e *guestv1.Exit) sandbox.Exit {
	return sandbox.Exit{Code: int(min(max(e.GetCode(), 0), 255)), Signal: text(e.GetSignal(), 32),
		TimedOut: e.GetTimedOut(), Error: text(e.GetError(), maxText),
		Restarted: text(e.GetRestarted(), maxText)}
}

// limit cuts bytes that may be anything.
func limit(s string, size int) string { return s[:min(len(s), size)] }

var fileTypes = map[string]sandbox.FileType{
	"file": sandbox.TypeFile, "dir": sandbox.TypeDir, "symlink": sandbox.TypeSymlink, "other": sandbox.TypeOther}

// fileInfo takes a description over.
func fileInfo(f *guestv1.FileInfo) (sandbox.FileInfo, error) {
	p := string(f.GetPath())
	if err := sandbox.CheckPath(p); err != nil {
		return sandbox.FileInfo{}, errorf("file info: %w", err)
	}
	t, ok := fileTypes[f.Type]
	if !ok || f.Size < 0 {
		return sandbox.FileInfo{}, errorf("file info: type %.40q, size %d", f.Type, f.Size)
	}
	return sandbox.FileInfo{Name: p[strings.LastIndexByte(p, '/')+1:], Path: p, Type: t, Size: f.Size, Mode: f.Mode & 0o7777,
		UID: f.Uid, GID: f.Gid, Owner: text(f.Owner, maxName), Group: text(f.Group, maxName),
		Modified: time.Unix(0, f.ModifiedUnixNano), Target: limit(string(f.Target), sandbox.MaxPathBytes), Attributed: f.Attributed}, nil
}

// advance adds n bytes to an offset without overflow.
func advance(at, n int64) (int64, error) {
	if n < 0 || at > math.MaxInt64-n {
		return at, errorf("offset %d grows by %d", at, n)
	}
	return at + n, nil
}
