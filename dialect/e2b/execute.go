package e2b

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/berth-dev/berth/sandbox"
)

// executeBody asks for code to be run.
type executeBody struct {
	Code     string            `json:"code"`
	Context  string            `json:"context_id"`
	Language string            `json:"language"`
	Env      map[string]string `json:"env_vars"`
}

// codeLine is one line of what a run gives.
type codeLine struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	Timestamp string `json:"timestamp,omitempty"`

	Name      *string `json:"name,omitempty"`
	Value     *string `json:"value,omitempty"`
	Traceback *string `json:"traceback,omitempty"`

	Count int64 `json:"execution_count,omitempty"`
}

// codeResult is the line of something that was shown.
type codeResult struct {
	Type       string                     `json:"type"`
	Text       string                     `json:"text,omitempty"`
	HTML       string                     `json:"html,omitempty"`
	Markdown   string                     `json:"markdown,omitempty"`
	SVG        string                     `json:"svg,omitempty"`
	PNG        string                     `json:"png,omitempty"`
	JPEG       string                     `json:"jpeg,omitempty"`
	PDF        string                     `json:"pdf,omitempty"`
	LaTeX      string                     `json:"latex,omitempty"`
	JSON       json.RawMessage            `json:"json,omitempty"`
	JavaScript string                     `json:"javascript,omitempty"`
	Data       json.RawMessage            `json:"data,omitempty"`
	Chart      json.RawMessage            `json:"chart,omitempty"`
	Extra      map[string]json.RawMessage `json:"extra,omitempty"`
	Main       bool                       `json:"is_main_result"`
}

// codePing is how often a silent run says that it lives. Of some clients that have
// gone nothing else tells; the next run waits for that.
const codePing = time.Second

// execute runs code and streams what it does. A client that goes away interrupts it.
func (d *Dialect) execute(w http.ResponseWriter, r *http.Request) error {
	var body executeBody
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if body.Context != "" && body.Language != "" {
		return invalid("Only one of context_id or language can be provided")
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	events, err := d.run(ctx, &body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	out := &codeStream{w: w, flush: http.NewResponseController(w).Flush}
	err = pump(ctx, events.Recv, events.Close, codePing, out.event, func() error { return out.line(codeLine{Type: "keepalive"}) })
	if err != nil && ctx.Err() == nil {
		d.log.Debug("run of code", "sandbox", targetOf(ctx).id, "error", err)
		panic(http.ErrAbortHandler) // the answer has begun: the client must see that it is cut
	}
	return nil
}

// run begins a run in the context that is asked for; a default one may have to be
// begun before.
func (d *Dialect) run(ctx context.Context, body *executeBody) (sandbox.CodeEvents, error) {
	t, name := targetOf(ctx), body.Context
	language := name
	if name == "" {
		if language = sandbox.Language(body.Language); body.Language == "" {
			language = sandbox.DefaultLanguage
		}
		name = language
	}
	run := sandbox.CodeRun{Code: body.Code, Context: name, Env: body.Env}
	events, err := d.engine.RunCode(ctx, t.id, run)
	if sandbox.KindOf(err) != sandbox.NotFound {
		return events, err
	}
	if body.Context != "" && !slices.Contains(defaultLanguages, name) {
		return nil, noContext(name)
	}
	_, err = d.newContext(ctx, name, language, "")
	if err != nil && sandbox.KindOf(err) != sandbox.Conflict { // another call may have been faster
		return nil, err
	}
	return d.engine.RunCode(ctx, t.id, run)
}

// codeStream writes what a run does, a line of JSON each.
type codeStream struct {
	w     io.Writer
	flush func() error
}

// event writes one event, and reports whether it was the last.
func (s *codeStream) event(e sandbox.CodeEvent) (last bool, err error) {
	switch e.Type {
	case sandbox.CodeStdout, sandbox.CodeStderr:
		return false, s.line(codeLine{Type: string(e.Type), Text: e.Text, Timestamp: e.Time.UTC().Format(time.RFC3339Nano)})
	case sandbox.CodeShown:
		return false, s.line(resultOf(e.Result))
	case sandbox.CodeRaised:
		return false, s.line(raised(e.Error.Name, e.Error.Value, e.Error.Traceback))
	case sandbox.CodeEnded:
		return true, s.end(e.End)
	}
	return false, nil
}

func raised(name, value string, traceback []string) codeLine {
	text := strings.Join(traceback, "\n")
	return codeLine{Type: "error", Name: &name, Value: &value, Traceback: &text}
}

// end tells how a run ended. What its own events do not tell is told as an error. All
// of it goes out with the end of the answer.
func (s *codeStream) end(e *sandbox.CodeEnd) error {
	if e.Count > 0 {
		if err := s.write(codeLine{Type: "number_of_executions", Count: e.Count}); err != nil {
			return err
		}
	}
	if e.Status == sandbox.CodeDied || e.Status == sandbox.CodeCancelled {
		if err := s.write(raised("UnexpectedEndOfExecution", "The execution ended before it was finished: "+e.Reason, nil)); err != nil {
			return err
		}
	}
	return s.write(codeLine{Type: "end_of_execution"})
}

func resultOf(r *sandbox.CodeResult) codeResult {
	return codeResult{Type: "result", Text: unquoted(r.Text), HTML: r.HTML, Markdown: r.Markdown, SVG: r.SVG, PNG: r.PNG, JPEG: r.JPEG, PDF: r.PDF,
		LaTeX: r.LaTeX, JSON: r.JSON, JavaScript: r.JavaScript, Data: r.Data, Chart: r.Chart, Extra: r.Extra, Main: r.Main}
}

// unquoted takes the quotes off a value that is a string.
func unquoted(text string) string {
	for _, quote := range []string{"'", `"`} {
		if len(text) >= 2 && strings.HasPrefix(text, quote) && strings.HasSuffix(text, quote) {
			return text[1 : len(text)-1]
		}
	}
	return text
}

// line writes a line, and sends it.
func (s *codeStream) line(v any) error {
	if err := s.write(v); err != nil {
		return err
	}
	return s.flush()
}

func (s *codeStream) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = s.w.Write(append(ascii(b), '\n'))
	return err
}

// ascii escapes all else in JSON: these clients decode a stream piece by piece, and
// a character may lie on two.
func ascii(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for _, c := range string(b) {
		switch {
		case c < 0x80:
			out = append(out, byte(c))
		case c >= 0x10000:
			high, low := utf16.EncodeRune(c)
			out = escape(escape(out, high), low)
		default:
			out = escape(out, c)
		}
	}
	return out
}

func escape(out []byte, c rune) []byte {
	const digits = "0123456789abcdef"
	return append(out, '\\', 'u', digits[c>>12&15], digits[c>>8&15], digits[c>>4&15], digits[c&15])
}
