package mcpgateway

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// line is a message of the protocol as it stands.
type line struct {
	Version string          `json:"jsonrpc"`
	ID      any             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// asking is a server that asks its client for all that a server may ask for, whatever
// the client has said that it can, and says what it was told.
func asking() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	answer := func(id any, result string) {
		out.Encode(line{Version: "2.0", ID: id, Result: json.RawMessage(result)})
	}
	for {
		var l line
		if in.Decode(&l) != nil {
			return
		}
		switch l.Method {
		case "initialize":
			answer(l.ID, `{"protocolVersion":"`+spoken+`","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"asking","version":"1"}}`)
		case "tools/list":
			answer(l.ID, `{"tools":[{"name":"ask","inputSchema":{"type":"object"}}]}`)
		case "tools/call":
			var told []string
			for i, ask := range []struct{ method, params string }{
				{"sampling/createMessage", `{"messages":[{"role":"user","content":{"type":"text","text":"hello"}}],"maxTokens":5}`},
				{"elicitation/create", `{"message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`},
				{"roots/list", `{}`},
				{"no/such", `{}`},
			} {
				out.Encode(line{Version: "2.0", ID: fmt.Sprint("ask-", i), Method: ask.method, Params: json.RawMessage(ask.params)})
				var a line
				if in.Decode(&a) != nil || a.ID != fmt.Sprint("ask-", i) {
					return
				}
				if a.Error != nil {
					told = append(told, fmt.Sprintf("%s: error %d", ask.method, a.Error.Code))
				} else {
					told = append(told, fmt.Sprintf("%s: %s", ask.method, a.Result))
				}
			}
			text, _ := json.Marshal(strings.Join(told, "\n"))
			answer(l.ID, `{"content":[{"type":"text","text":`+string(text)+`}]}`)
		default: // it has no prompts and no resources, whatever it has said
			if l.ID != nil {
				out.Encode(map[string]any{"jsonrpc": "2.0", "id": l.ID, "error": map[string]any{"code": -32601, "message": "Method not found"}})
			}
		}
	}
}

// TestAServerThatAsksIsAnswered: nobody is behind the gateway whom a server could ask.
func TestAServerThatAsksIsAnswered(t *testing.T) {
	p, _ := place(t, "a", "asking")
	c := connect(t, begin(t, p, `{"memory": {}, "time": {}}`), nil)
	told := strings.Split(must(t, c, "ask", ""), "\n")
	if len(told) != 4 {
		t.Fatalf("it was told %q", told)
	}
	for i, want := range []string{"sampling/createMessage: error -", "elicitation/create: error -", `roots/list: {"roots":[]`, "no/such: error -32601"} {
		if !strings.HasPrefix(told[i], want) {
			t.Errorf("%q, want %q", told[i], want)
		}
	}
	if got := must(t, c, "echo", "still here"); got != "a: still here" {
		t.Errorf("the other server says %q", got)
	}
}
