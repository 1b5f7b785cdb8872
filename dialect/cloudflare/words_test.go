package cloudflare

import (
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/berth-dev/berth/sandbox"
)

func TestNames(t *testing.T) {
	n := &names{}
	seen := map[string]bool{}
	for _, id := range []string{"a", "sandbox-x", "..", "-x", strings.Repeat("x", 61), strings.Repeat("x", 62), "ä", "a b", "cf-a", "cf.a", "../../x", "\n"} {
		name := n.of(id)
		if err := sandbox.CheckSessionName(name); err != nil || seen[name] || name != SessionName(id) {
			t.Errorf("%q: %q, %v", id, name, err)
		}
		seen[name] = true
		if got, ok := n.id(name); !ok || got != id {
			t.Errorf("%q: %q, %v", id, got, ok)
		}
	}
	if _, ok := n.id("main"); ok {
		t.Error("a name of somebody else's is one of ours")
	}
	if len(n.old) != len(n.all) {
		t.Error("what is remembered and what is to be forgotten differ")
	}
}

func TestRepoName(t *testing.T) {
	for address, want := range map[string]string{"https://x.y/a/b.git": "b", "https://x.y/a/b/": "b", "git@x.y:a/b.git": "b", "git@x.y:b": "b", "file:///srv/made": "made",
		"https://x.y/": "repository", "https://x.y/..": "repository", "https://u:p@x.y/a/b?c=d": "b"} {
		if got := repoName(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	if got := hide("https://user:secret@x.y/a"); strings.Contains(got, "secret") {
		t.Error(got)
	}
	if got := hideIn("fatal: https://user:secret@x.y/a", "https://user:secret@x.y/a"); strings.Contains(got, "secret") {
		t.Error(got)
	}
}

func TestMIME(t *testing.T) {
	for _, one := range []struct {
		name, head, want string
		binary           bool
	}{
		{"a.json", "\x00", "application/json;charset=utf-8", false},
		{"a.TXT", "\x00", "text/plain;charset=utf-8", false},
		{"a.PNG", "", "image/png", true},
		{"a", "", "text/plain", false},
		{"a", "text ä", "text/plain", false},
		{"a", "text \xc3", "text/plain", false},
		{"a", "\xff\xfe\x00", "application/octet-stream", true},
		{"a", "\x89PNG\r\n\x1a\n", "image/png", true},
		{"a", "a\x00b", "application/octet-stream", true},
	} {
		if got := mimeOf(one.name, []byte(one.head)); got != one.want || isBinary(got) != one.binary {
			t.Errorf("%+v: %s", one, got)
		}
	}
}

// FuzzText cuts text into parts anywhere: together they are the whole.
func FuzzText(f *testing.F) {
	f.Add("aä€😀b", 2)
	f.Add("\xff\xc3", 1)
	f.Fuzz(func(t *testing.T, s string, size int) {
		if size < 1 {
			return
		}
		x, got := newText(), ""
		for b := []byte(s); len(b) > 0; {
			n := min(size, len(b))
			got += x.take(sandbox.Stdout, b[:n])
			b = b[n:]
		}
		if err := x.rest(func(_ sandbox.Stream, part string) error { got += part; return nil }); err != nil {
			t.Fatal(err)
		}
		if !utf8.ValidString(got) || utf8.ValidString(s) && got != s {
			t.Errorf("%q became %q", s, got)
		}
	})
}

// FuzzQuote asks a shell what it makes of a quoted word.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "it's", "$HOME `id` \\ \n \"", "'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsRune(s, 0) || len(s) > 1<<10 {
			return
		}
		out, err := exec.CommandContext(t.Context(), "bash", "-c", "printf %s "+quote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q became %q, %v", s, out, err)
		}
	})
}
