package mcpgateway

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestPlans(t *testing.T) {
	plans, err := parse([]byte(`{
		"gitlab": {"personalAccessToken": "glpat", "url": ""},
		"filesystem": {"paths": ["/home/user", "/workspace"]},
		"firecrawl": {"apiKey": "k", "retryMax": 5}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []plan{
		{name: "filesystem", argv: []string{"node/node_modules/.bin/mcp-server-filesystem", "/home/user", "/workspace"}},
		{name: "firecrawl", argv: []string{"servers/firecrawl-mcp@3.26.0/node_modules/.bin/firecrawl-mcp"}, env: []string{"FIRECRAWL_API_KEY=k", "FIRECRAWL_RETRY_MAX_ATTEMPTS=5"}},
		{name: "gitlab", argv: []string{"servers/@modelcontextprotocol_server-gitlab@2025.4.25/node_modules/.bin/mcp-server-gitlab"}, env: []string{"GITLAB_PERSONAL_ACCESS_TOKEN=glpat"}},
	} {
		got := plans[i]
		if got.name != want.name || !slices.Equal(got.argv, want.argv) || !slices.Equal(got.env, want.env) {
			t.Errorf("plan %d is %+v, want %+v", i, got, want)
		}
	}
}

func TestConfigurationsThatAreNone(t *testing.T) {
	for config, want := range map[string]string{
		``:                                 "read the configuration",
		`[]`:                               "read the configuration",
		`{}`:                               "names no server",
		`{"teapot": {}}`:                   "catalogue",
		`{"exa": {}}`:                      "apiKey is missing",
		`{"exa": {"apiKey": ""}}`:          "apiKey is missing",
		`{"exa": {"apiKey": {}}}`:          "apiKey: it is to be",
		`{"exa": {"apiKey": "a\u0000b"}}`:  "NUL",
		`{"exa": {"other": "x"}}`:          `takes no "other"`,
		`{"exa": 3}`:                       "server exa: read its configuration",
		`{"filesystem": {"paths": [1]}}`:   "list of texts",
		`{"github/a": {"runCmd": "x"}}`:    "github/OWNER/NAME",
		`{"github/a/..": {"runCmd": "x"}}`: "github/OWNER/NAME",
		`{"github/-a/b": {"runCmd": "x"}}`: "github/OWNER/NAME",
		`{"github/a/b": {}}`:               "runCmd is missing",
		`{"github/a/b": {"runcmds": "x"}}`: "read its configuration",
		`{"github/a/b": {"runCmd": "x", "envs": {"A=B": "c"}}}`: "no name of a variable",
	} {
		if _, err := parse([]byte(config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

// TestCatalogue holds every recipe to its form.
func TestCatalogue(t *testing.T) {
	for name, r := range catalogue {
		ways := 0
		for _, w := range []string{r.npm, r.pypi, r.kind} {
			if w != "" {
				ways++
			}
		}
		if ways != 1 || r.program == "" {
			t.Errorf("%s is had in %d ways and started as %q", name, ways, r.program)
		}
		if r.npm != "" && !strings.Contains(r.npm[1:], "@") || r.pypi != "" && !strings.Contains(r.pypi, "==") {
			t.Errorf("%s has no version", name)
		}
		for _, key := range r.needs {
			if !r.takes(key) {
				t.Errorf("%s needs %s and does not take it", name, key)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"filesystem": {"paths": ["/a"]}, "github/a/b": {"runCmd": "x", "envs": {"A": "b"}}}`))
	f.Add([]byte(`{"exa": {"apiKey": 1e9}}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		plans, err := parse(config)
		if err != nil {
			return
		}
		for _, p := range plans {
			if len(p.argv) == 0 || strings.Contains(p.need.repository, "..") && strings.HasSuffix(p.need.repository, "/..") {
				t.Errorf("%+v", p)
			}
			for _, v := range p.env {
				if strings.ContainsRune(v, 0) && p.need.repository == "" {
					t.Errorf("%q holds a NUL", v)
				}
			}
		}
	})
}

func TestMessages(t *testing.T) {
	var log strings.Builder
	b, err := io.ReadAll(newMessages(strings.NewReader("banner\n{\"a\":1}\r\n\n  {\"b\":2}\n> more\n{\"c\":3}"), &log))
	if err != nil || string(b) != "{\"a\":1}\r\n  {\"b\":2}\n{\"c\":3}" || log.String() != "banner\n> more\n" {
		t.Errorf("messages %q, log %q, %v", b, log.String(), err)
	}
	long := io.MultiReader(strings.NewReader("{"), io.LimitReader(endless{}, maxMessage))
	if _, err := io.Copy(io.Discard, newMessages(long, io.Discard)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a message that is too long ends with %v", err)
	}
}

// endless is a line without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func FuzzMessages(f *testing.F) {
	f.Add("banner\n{\"a\":1}\n\x00\n{")
	f.Fuzz(func(t *testing.T, said string) {
		var log strings.Builder
		b, err := io.ReadAll(newMessages(strings.NewReader(said), &log))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(string(b), "\n") {
			if line != "" && !strings.HasPrefix(strings.TrimLeft(line, " \t"), "{") {
				t.Errorf("%q is no message", line)
			}
		}
	})
}

func TestLogBeginsAnew(t *testing.T) {
	path := t.TempDir() + "/gateway.log"
	l, err := OpenLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 3 {
		if _, err := l.Write(make([]byte, maxLog/2+1)); err != nil {
			t.Fatal(err)
		}
	}
	if l.size != maxLog/2+1 {
		t.Errorf("its file has %d bytes", l.size)
	}
}
