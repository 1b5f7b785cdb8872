package e2b

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

func TestCodeStream(t *testing.T) {
	var out bytes.Buffer
	s := &codeStream{w: &out, flush: func() error { return nil }}
	at := time.Unix(1_000_000, 5).UTC()
	for _, e := range []sandbox.CodeEvent{
		{Type: sandbox.CodeStarted, Run: "r1"},
		{Type: sandbox.CodeStdout, Text: "ä€😀\n", Time: at},
		{Type: sandbox.CodeStderr, Text: "w", Time: at},
		{Type: sandbox.CodeShown, Result: &sandbox.CodeResult{Main: true, Text: "'it''s'", JSON: json.RawMessage(`{"a":1}`)}},
		{Type: sandbox.CodeRaised, Error: &sandbox.CodeError{Name: "ValueError", Traceback: []string{"a", "b"}}},
		{Type: sandbox.CodeRaised, Error: &sandbox.CodeError{Value: "127"}}, // as Bash tells one
		{Type: sandbox.CodeEnded, End: &sandbox.CodeEnd{Status: sandbox.CodeDied, Count: 3, Reason: "out of memory"}},
	} {
		last, err := s.event(e)
		if err != nil || last != (e.Type == sandbox.CodeEnded) {
			t.Fatalf("%s: %v, %v", e.Type, last, err)
		}
	}
	const want = `{"type":"stdout","text":"\u00e4\u20ac\ud83d\ude00\n","timestamp":"1970-01-12T13:46:40.000000005Z"}
{"type":"stderr","text":"w","timestamp":"1970-01-12T13:46:40.000000005Z"}
{"type":"result","text":"it''s","json":{"a":1},"is_main_result":true}
{"type":"error","name":"ValueError","value":"","traceback":"a\nb"}
{"type":"error","name":"","value":"127","traceback":""}
{"type":"number_of_executions","execution_count":3}
{"type":"error","name":"UnexpectedEndOfExecution","value":"The execution ended before it was finished: out of memory","traceback":""}
{"type":"end_of_execution"}
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	broken := &codeStream{w: &out, flush: func() error { return errors.New("gone") }}
	if err := broken.line(codeLine{Type: "keepalive"}); err == nil {
		t.Error("a client that has gone was not noticed")
	}
}

func TestUnquoted(t *testing.T) {
	for in, want := range map[string]string{"'a'": "a", `"it's"`: "it's", "'": "'", "": "", "'a\"": "'a\"", "42": "42"} {
		if got := unquoted(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// FuzzASCII: what is escaped says the same.
func FuzzASCII(f *testing.F) {
	f.Add("plain")
	f.Add("ä€😀\u2028")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		escaped := ascii(b)
		var before, after string
		if err := errors.Join(json.Unmarshal(b, &before), json.Unmarshal(escaped, &after)); err != nil || before != after {
			t.Errorf("%q became %q: %v", before, after, err)
		}
		if strings.ContainsFunc(string(escaped), func(c rune) bool { return c > 0x7e }) {
			t.Errorf("%q is not ASCII", escaped)
		}
	})
}
