package mcpgateway

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// childVariable makes the test's own program a server of that name.
const childVariable = "BERTH_TEST_MCP_CHILD"

func TestMain(m *testing.M) {
	name := os.Getenv(childVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	if name == "asking" {
		asking()
		return
	}
	if strings.HasPrefix(name, "broken") {
		fmt.Fprintln(os.Stderr, "no key was given")
		os.Exit(3)
	}
	if err := speaker(name).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}

type text struct {
	Text string `json:"text,omitempty"`
}

func said(format string, args ...any) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}, nil, nil
}

// speaker is a server that shows how the gateway passes things on.
func speaker(name string) *mcp.Server {
	fmt.Println("> this line is no message") // as npm and others do
	s := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "says it again"}, func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
		return said("%s: %s", name, in.Text)
	})
	mcp.AddTool(s, &mcp.Tool{Name: "only_" + name}, func(context.Context, *mcp.CallToolRequest, text) (*mcp.CallToolResult, any, error) {
		return said("%d", os.Getpid())
	})
	if name != "a" {
		return s
	}
	mcp.AddTool(s, &mcp.Tool{Name: "die"}, func(context.Context, *mcp.CallToolRequest, text) (*mcp.CallToolResult, any, error) {
		fmt.Fprintln(os.Stderr, "I was told to")
		os.Exit(9)
		return nil, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "environment"}, func(context.Context, *mcp.CallToolRequest, text) (*mcp.CallToolResult, any, error) {
		return said("%s", strings.Join(os.Environ(), "\n"))
	})
	mcp.AddTool(s, &mcp.Tool{Name: "leave"}, func(context.Context, *mcp.CallToolRequest, text) (*mcp.CallToolResult, any, error) {
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			return nil, nil, err
		}
		return said("%s", strconv.Itoa(c.Process.Pid))
	})
	mcp.AddTool(s, &mcp.Tool{Name: "grow"}, func(context.Context, *mcp.CallToolRequest, text) (*mcp.CallToolResult, any, error) {
		mcp.AddTool(s, &mcp.Tool{Name: "grown"}, func(context.Context, *mcp.CallToolRequest, text) (*mcp.CallToolResult, any, error) {
			return said("yes")
		})
		return said("soon")
	})
	mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(ctx context.Context, r *mcp.CallToolRequest, _ text) (*mcp.CallToolResult, any, error) {
		err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1, Total: 2, Message: "half"})
		if err != nil {
			return nil, nil, err
		}
		<-ctx.Done()
		return nil, nil, ctx.Err()
	})
	s.AddPrompt(&mcp.Prompt{Name: "greet", Arguments: []*mcp.PromptArgument{{Name: "who"}}}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "greet " + r.Params.Arguments["who"]}}}}, nil
	})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "it is " + r.Params.URI}}}, nil
	}
	s.AddResource(&mcp.Resource{URI: "note://one", Name: "one"}, read)
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "note://all/{name}", Name: "all"}, read)
	return s
}

// alive reports whether there is a process of that number that has not ended.
func alive(t *testing.T, pid string) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(state, "Z")
}

// until waits for what comes true in a moment, however slow the machine.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 1200 {
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("never came true: %s", what)
}
