package mcpgateway

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const testToken = "a-token-of-the-test"

// locked is a log that is read while it is written.
type locked struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// place is a folder in which the catalogue's "memory" is the child of one name and
// "time" that of another.
func place(t *testing.T, first, second string) (*Place, *locked) {
	t.Helper()
	p := &Place{Root: t.TempDir()}
	log := &locked{}
	p.Log = log
	if err := os.MkdirAll(p.home(), 0o755); err != nil {
		t.Fatal(err)
	}
	for program, name := range map[string]string{inNode + "/mcp-server-memory": first, inPython + "/mcp-server-time": second} {
		path := filepath.Join(p.Root, program)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		script := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s\n", childVariable, name, os.Args[0])
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p, log
}

// begin starts a gateway and serves it.
func begin(t *testing.T, p *Place, config string) *httptest.Server {
	t.Helper()
	g, err := New(p, []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	if err := g.Start(t.Context(), 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	h, err := g.Handler(testToken)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// bearer shows a token with every request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func connect(t *testing.T, s *httptest.Server, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: s.URL + Path, HTTPClient: &http.Client{Transport: bearer(testToken)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func call(ctx context.Context, c *mcp.ClientSession, tool, say string) (string, error) {
	r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"text": say}})
	if err != nil {
		return "", err
	}
	if r.IsError || len(r.Content) != 1 {
		return "", fmt.Errorf("%s: %+v", tool, r)
	}
	return r.Content[0].(*mcp.TextContent).Text, nil
}

func must(t *testing.T, c *mcp.ClientSession, tool, say string) string {
	t.Helper()
	s, err := call(t.Context(), c, tool, say)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func toolNames(t *testing.T, c *mcp.ClientSession) []string {
	t.Helper()
	r, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range r.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

func TestServersAreShownAsOne(t *testing.T) {
	p, log := place(t, "a", "b")
	c := connect(t, begin(t, p, `{"memory": {}, "time": {}}`), nil)

	want := []string{"die", "environment", "grow", "leave", "memory_echo", "only_a", "only_b", "time_echo", "wait"}
	if got := toolNames(t, c); !slices.Equal(got, want) {
		t.Errorf("tools %v, want %v", got, want)
	}
	for tool, want := range map[string]string{"memory_echo": "a: hey", "time_echo": "b: hey"} {
		if got := must(t, c, tool, "hey"); got != want {
			t.Errorf("%s says %q, want %q", tool, got, want)
		}
	}
	if _, err := call(t.Context(), c, "echo", "hey"); err == nil {
		t.Error("a name of two servers' is one's")
	}
	prompt, err := c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "greet", Arguments: map[string]string{"who": "all"}})
	if err != nil || prompt.Messages[0].Content.(*mcp.TextContent).Text != "greet all" {
		t.Errorf("the prompt says %+v, %v", prompt, err)
	}
	for _, uri := range []string{"note://one", "note://all/two"} {
		r, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		if err != nil || r.Contents[0].Text != "it is "+uri {
			t.Errorf("%s is %+v, %v", uri, r, err)
		}
	}
	if !strings.Contains(log.String(), "this line is no message") {
		t.Error("a line that is no message is not in the log")
	}
}

func TestNobodyComesInWithoutTheToken(t *testing.T) {
	p, _ := place(t, "a", "b")
	s := begin(t, p, `{"time": {}}`)
	for _, shown := range []string{"", "Bearer", "Bearer " + testToken + "x", "Basic " + testToken, testToken, "Bearer " + testToken[1:]} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+Path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", shown)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != http.StatusUnauthorized || a.Header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("with %q: %s, %v", shown, a.Status, a.Header)
		}
	}
	if g, err := New(p, []byte(`{"time": {}}`)); err != nil {
		t.Error(err)
	} else if _, err := g.Handler(""); err == nil {
		t.Error("an empty token is taken")
	}
}

func TestServersDoNotGetTheToken(t *testing.T) {
	t.Setenv(TokenVariable, "a-secret")
	t.Setenv("BERTH_TEST_OTHER", "kept")
	p, _ := place(t, "a", "b")
	env := must(t, connect(t, begin(t, p, `{"memory": {}}`), nil), "environment", "")
	if strings.Contains(env, "a-secret") || !strings.Contains(env, "BERTH_TEST_OTHER=kept") || !strings.Contains(env, "MEMORY_FILE_PATH="+p.home()) {
		t.Errorf("its environment is %s", env)
	}
}

func TestServerThatEndsIsStartedAgain(t *testing.T) {
	p, log := place(t, "a", "b")
	c := connect(t, begin(t, p, `{"memory": {}, "time": {}}`), nil)
	before := must(t, c, "only_a", "")
	if _, err := call(t.Context(), c, "die", ""); err == nil || !strings.Contains(err.Error(), "server memory ended in the middle of it") {
		t.Errorf("a call in whose middle the server ended: %v", err)
	}
	if got := must(t, c, "only_b", ""); got == "" {
		t.Error("the other server is gone too")
	}
	until(t, "the server answers again", func() bool {
		after, err := call(t.Context(), c, "only_a", "")
		return err == nil && after != before
	})
	if text := log.String(); !strings.Contains(text, "exit status 9") || !strings.Contains(text, "I was told to") {
		t.Errorf("the log does not say why it ended: %s", text)
	}
}

func TestStartSaysWhoCannotBeStarted(t *testing.T) {
	p, _ := place(t, "broken", "b")
	g, err := New(p, []byte(`{"memory": {}, "time": {}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	err = g.Start(t.Context(), 2*time.Minute)
	if err == nil || !strings.Contains(err.Error(), "server memory") || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no key was given") {
		t.Errorf("the error is %v", err)
	}
}

func TestStartHasALimit(t *testing.T) {
	p, _ := place(t, "a", "b")
	silent := filepath.Join(p.Root, inNode, "mcp-server-memory")
	if err := os.WriteFile(silent, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	g, err := New(p, []byte(`{"memory": {}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := g.Start(t.Context(), 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("the error is %v", err)
	}
}

func TestCloseEndsServersAndWhatTheyStarted(t *testing.T) {
	p, _ := place(t, "a", "b")
	g, err := New(p, []byte(`{"memory": {}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context(), 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	h, err := g.Handler(testToken)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	c := connect(t, s, nil)
	own, left := must(t, c, "only_a", ""), must(t, c, "leave", "")
	hangs := make(chan error, 1)
	go func() { _, err := call(t.Context(), c, "wait", ""); hangs <- err }()
	g.Close()
	for _, pid := range []string{own, left} {
		until(t, "process "+pid+" has ended", func() bool { return !alive(t, pid) })
	}
	if err := <-hangs; err == nil {
		t.Error("a call of a gateway that ended has a result")
	}
	c.Close()
	s.Close()
}

func TestProgressIsPassedOn(t *testing.T) {
	p, _ := place(t, "a", "b")
	heard := make(chan *mcp.ProgressNotificationParams, 1)
	c := connect(t, begin(t, p, `{"memory": {}}`), &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { heard <- r.Params }})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		params := &mcp.CallToolParams{Name: "wait"}
		params.SetProgressToken("mine")
		_, err := c.CallTool(ctx, params)
		ended <- err
	}()
	select {
	case got := <-heard:
		if got.ProgressToken != "mine" || got.Message != "half" || got.Progress != 1 || got.Total != 2 {
			t.Errorf("the progress is %+v", got)
		}
	case <-time.After(time.Minute):
		t.Error("no progress was told")
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a call that was given up has a result")
	}
}

func TestNewToolsAreShown(t *testing.T) {
	p, _ := place(t, "a", "b")
	changed := make(chan struct{}, 16)
	c := connect(t, begin(t, p, `{"memory": {}, "time": {}}`), &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} }})
	must(t, c, "grow", "")
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Error("nobody told that there are other tools")
	}
	until(t, "the new tool is shown", func() bool { return slices.Contains(toolNames(t, c), "grown") })
	if got := must(t, c, "grown", ""); got != "yes" {
		t.Errorf("it says %q", got)
	}
}

// TestOwnServer is a server with a repository: it is cloned, its installation runs in
// it, and so does the server.
func TestOwnServer(t *testing.T) {
	p, _ := place(t, "a", "b")
	sources := t.TempDir()
	for _, line := range []string{"init -q -b main owner/name", "-C owner/name -c user.name=t -c user.email=t@t commit -q --allow-empty -m first"} {
		cmd := exec.CommandContext(t.Context(), "git", strings.Fields(line)...)
		cmd.Dir = sources
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", line, err, out)
		}
	}
	p.Sources = "file://" + sources + "/"
	config := fmt.Sprintf(`{"github/owner/name": {"installCmd": "test -d .git && echo $GREETING >installed", "runCmd": "GREETING=$(cat installed) exec %s", "envs": {%q: "a", "GREETING": "hello"}}}`,
		os.Args[0], childVariable)
	c := connect(t, begin(t, p, config), nil)
	if env := must(t, c, "environment", ""); !strings.Contains(env, "GREETING=hello") {
		t.Errorf("its environment is %s", env)
	}
	if got := must(t, c, "echo", "alone"); got != "a: alone" {
		t.Errorf("a tool of one server alone says %q", got)
	}
}

func TestInstallationThatFailsIsTold(t *testing.T) {
	p, _ := place(t, "a", "b")
	p.Sources = "file://" + t.TempDir() + "/"
	g, err := New(p, []byte(`{"github/owner/none": {"runCmd": "true"}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	err = g.Start(t.Context(), 2*time.Minute)
	if err == nil || !strings.Contains(err.Error(), "server github/owner/none: install it: git") {
		t.Errorf("the error is %v", err)
	}
}
