package guest

import (
	"path"
	"strings"
	"syscall"
	"testing"
)

func TestSignals(t *testing.T) {
	for s, want := range map[string]syscall.Signal{
		"SIGTERM": 15, "TERM": 15, "term": 15, "sigkill": 9, "9": 9, "64": 64, "SIGUSR1": 10, "winch": 28} {
		if got, err := parseSignal(s); err != nil || got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "0", "65", "-9", "SIG", "SIGSIGTERM", "NOTHING", strings.Repeat("9", 100), "9 ", "TERM\x00"} {
		if got, err := parseSignal(s); err == nil || codeOf(err) != invalid {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}

func FuzzSignal(f *testing.F) {
	for _, s := range []string{"SIGTERM", "9", "-1", "sIgKill", "ſigterm", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseSignal(s); (err == nil) != (n >= 1 && n <= lastSignal) {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	})
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"/", "/a/../../b", "a", "", "/a\x00b", "//x//", "/" + strings.Repeat("x", 5000), "/\xff", "/../../etc/passwd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := cleanPath(s)
		if err != nil {
			if codeOf(err) != invalid {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		if got[0] != '/' || got != path.Clean(got) || strings.Contains(got, "\x00") || strings.Contains(got+"/", "/../") {
			t.Errorf("%q became %q", s, got)
		}
		if b := beneath(got); b == "" || b[0] == '/' {
			t.Errorf("%q is %q beneath a root", got, b)
		}
	})
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("1 (init) S 0 1 1 0 -1"))
	f.Add([]byte("42 (a) b) (c) Z 1 42 42 0"))
	f.Add([]byte("7 ()"))
	f.Add([]byte(")("))
	f.Fuzz(func(t *testing.T, line []byte) {
		if p, ok := parseStat(line); ok && p.pid < 1 {
			t.Errorf("%q: %+v", line, p)
		}
	})
}

func TestStat(t *testing.T) {
	p, ok := parseStat([]byte("42 (evil) R 1 1 1) Z 7 42 40 0 -1 4194560"))
	if !ok || p != (processStat{pid: 42, parent: 7, session: 40, dead: true}) {
		t.Errorf("%+v %v", p, ok)
	}
}

func FuzzAccounts(f *testing.F) {
	f.Add("user:x:1000:1000:,,,:/home/user:/bin/bash")
	f.Add("user:x:99999999999:0:::")
	f.Add("staff:x:50:a,b")
	f.Add(":::")
	f.Fuzz(func(t *testing.T, line string) {
		if a, ok := parsePasswd(line); ok && (a.name == "" || a.home == "" || a.shell == "") {
			t.Errorf("%q: %+v", line, a)
		}
		if g, ok := parseGroup(line); ok && g.name == "" {
			t.Errorf("%q: %+v", line, g)
		}
	})
}
