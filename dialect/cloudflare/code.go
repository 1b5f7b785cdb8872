package cloudflare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/berth-dev/berth/dialect/cloudflare/capnweb"
	"github.com/berth-dev/berth/sandbox"
)

// contextRequest asks for a context; the two names of its variables are those of the
// two ways to ask.
type contextRequest struct {
	Language string      `json:"language"`
	Cwd      string      `json:"cwd"`
	Env      environment `json:"env_vars"`
	EnvVars  environment `json:"envVars"`
}

type contextAnswer struct {
	Success   bool   `json:"success"`
	ContextID string `json:"contextId"`
	Language  string `json:"language,omitempty"`
	Cwd       string `json:"cwd,omitempty"`
	Timestamp string `json:"timestamp"`
}

type contextInfo struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

type contextList struct {
	Success   bool          `json:"success"`
	Contexts  []contextInfo `json:"contexts"`
	Timestamp string        `json:"timestamp"`
}

type codeRequest struct {
	ContextID string      `json:"context_id"`
	Code      string      `json:"code"`
	Language  string      `json:"language"`
	TimeoutMs float64     `json:"timeout_ms"`
	Env       environment `json:"env_vars"`
}

// codeEvent is one thing that code did.
type codeEvent struct {
	Type      string   `json:"type"`                // "stdout", "stderr", "result", "error" or "execution_complete"
	Timestamp int64    `json:"timestamp,omitempty"` // milliseconds since 1970
	Name      string   `json:"ename,omitempty"`
	Value     string   `json:"evalue,omitempty"`
	Traceback []string `json:"traceback,omitempty"`
	Count     *int64   `json:"execution_count,omitempty"`
	codeResult
}

// codeResult is something that code showed, or wrote.
type codeResult struct {
	Text       string          `json:"text,omitempty"`
	HTML       string          `json:"html,omitempty"`
	PNG        string          `json:"png,omitempty"`
	JPEG       string          `json:"jpeg,omitempty"`
	SVG        string          `json:"svg,omitempty"`
	LaTeX      string          `json:"latex,omitempty"`
	Markdown   string          `json:"markdown,omitempty"`
	JavaScript string          `json:"javascript,omitempty"`
	JSON       json.RawMessage `json:"json,omitempty"`
	Chart      *chart          `json:"chart,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
	Metadata   map[string]any  `json:"metadata,omitempty"`
}

type chart struct {
	Type    string          `json:"type"`
	Title   string          `json:"title,omitempty"`
	Data    json.RawMessage `json:"data"`
	Library string          `json:"library"`
	Image   string          `json:"image,omitempty"`
}

// chartTypes are those that these clients know.
var chartTypes = map[string]bool{"line": true, "bar": true, "scatter": true, "pie": true, "histogram": true, "heatmap": true}

// resultOf is what code showed in these clients' words.
func resultOf(r *sandbox.CodeResult) codeResult {
	out := codeResult{Text: r.Text, HTML: r.HTML, PNG: r.PNG, JPEG: r.JPEG, SVG: r.SVG, LaTeX: r.LaTeX, Markdown: r.Markdown,
		JavaScript: r.JavaScript, JSON: r.JSON, Data: r.Data, Metadata: map[string]any{}}
	if len(r.Chart) > 0 {
		var known struct{ Type, Title string }
		_ = json.Unmarshal(r.Chart, &known) // what is not known is "unknown"
		if !chartTypes[known.Type] {
			known.Type = "unknown"
		}
		out.Chart = &chart{Type: known.Type, Title: known.Title, Data: r.Chart, Library: "matplotlib", Image: r.PNG}
	}
	return out
}

// codeFault puts an error of code in these clients' words.
func codeFault(language, id string, err error) error {
	var already *fault
	if err == nil || errors.As(err, &already) {
		return err
	}
	switch kind := sandbox.KindOf(err); {
	case kind == sandbox.NotFound && id != "":
		return &fault{code: contextNotFound, text: "Context not found: " + bounded(id), context: map[string]any{"contextId": bounded(id)}, err: err}
	case kind == sandbox.Unsupported:
		c := noJavaScript
		if language = sandbox.Language(language); language == "" || language == sandbox.DefaultLanguage {
			c = noPython
		}
		return &fault{code: c, text: err.Error(), err: err}
	case kind == sandbox.Exhausted || kind == sandbox.Timeout:
		return &fault{code: notReady, text: err.Error(), context: map[string]any{"retryAfter": 1}, err: err}
	}
	return err
}

// PoolVariable says in an image how many interpreters of Python wait there; NoPool is
// said by those that are to have none.
const (
	PoolVariable = "PYTHON_POOL_MIN_SIZE"
	NoPool       = "0"
)

// speaks refuses Python where the image is a variant without it.
func (b *box) speaks(ctx context.Context, language string) error {
	if language = sandbox.Language(language); language != "" && language != sandbox.DefaultLanguage {
		return nil
	}
	s, err := b.engine.Get(ctx, b.id)
	if err != nil {
		return err
	}
	t, err := b.engine.Template(ctx, s.Template)
	if sandbox.KindOf(err) == sandbox.NotFound { // the sandbox outlives it, and nobody knows
		return nil
	}
	if err != nil || t.Env[PoolVariable] != NoPool {
		return err
	}
	return &fault{code: noPython, text: "Python interpreter not available: take the image whose tag ends in -python",
		err: &sandbox.Error{Kind: sandbox.Unsupported, Err: errNoPython, Hint: "FROM docker.io/cloudflare/sandbox:" + ClientVersion + "-python"}}
}

var errNoPython = errors.New("the image has no interpreter for Python")

// newContext makes a context; its kernel is ready then.
func (b *box) newContext(ctx context.Context, r contextRequest) (c sandbox.CodeContext, err error) {
	o := sandbox.CodeOptions{Language: r.Language, Env: r.Env, User: user}
	if len(r.EnvVars) > 0 {
		o.Env = r.EnvVars
	}
	if err := checkEnv(o.Env); err != nil {
		return c, err
	}
	if r.Cwd == "" {
		r.Cwd = defaultDir
	}
	if o.Cwd, err = b.resolve(ctx, "", r.Cwd); err != nil {
		return c, err
	}
	if err := b.speaks(ctx, r.Language); err != nil {
		return c, err
	}
	c, err = b.engine.CreateCodeContext(ctx, b.id, o)
	if o.Cwd == defaultDir && noFolder(err) {
		o.Cwd = fallbackDir
		c, err = b.engine.CreateCodeContext(ctx, b.id, o)
	}
	return c, codeFault(r.Language, "", err)
}

func (b *box) createContext(ctx context.Context, r contextRequest) (any, error) {
	c, err := b.newContext(ctx, r)
	return contextAnswer{Success: true, ContextID: c.ID, Language: c.Language, Cwd: c.Cwd, Timestamp: stamp(c.Created)}, err
}

func (b *box) listContexts(ctx context.Context) (any, error) {
	all, err := b.engine.CodeContexts(ctx, b.id)
	out := contextList{Success: true, Contexts: []contextInfo{}, Timestamp: now()}
	for _, c := range all {
		out.Contexts = append(out.Contexts, contextInfo{c.ID, c.Language, c.Cwd})
	}
	return out, err
}

func (b *box) deleteContext(ctx context.Context, id string) (any, error) {
	err := sandbox.CheckCodeContext(id)
	if err == nil {
		err = b.engine.RemoveCodeContext(ctx, b.id, id)
	} else {
		err = sandbox.Errorf("find context", sandbox.NotFound, "%w", err)
	}
	return contextAnswer{Success: true, ContextID: id, Timestamp: now()}, codeFault("", id, err)
}

// codeHealth says that code can run; a kernel is started when it is needed.
func (b *box) codeHealth(context.Context) (any, error) {
	return pingAnswer{Success: true, Status: "healthy", Message: "ready", Timestamp: now()}, nil
}

// run runs code and gives what it does.
func (b *box) run(ctx context.Context, r codeRequest, take func(sandbox.CodeEvent) error) error {
	limit, err := timeout(r.TimeoutMs)
	if err != nil {
		return err
	}
	if r.Code == "" {
		return invalid("code is required")
	}
	q := sandbox.CodeRun{Code: r.Code, Context: r.ContextID, Env: r.Env, Timeout: min(limit, sandbox.MaxCodeTimeout)}
	if q.Context == "" {
		q.Language = orElse(r.Language, sandbox.DefaultLanguage)
		if err := b.speaks(ctx, q.Language); err != nil {
			return err
		}
	} else if sandbox.CheckCodeContext(q.Context) != nil {
		return codeFault("", q.Context, sandbox.Errorf("find context", sandbox.NotFound, "no such context"))
	}
	events, err := b.engine.RunCode(ctx, b.id, q)
	if err != nil {
		return codeFault(q.Language, q.Context, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = events.Close() })
	defer func() { stop(); _ = events.Close() }()
	for {
		e, err := events.Recv()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return codeFault(q.Language, q.Context, err)
		}
		if err := take(e); err != nil {
			return err
		}
	}
}

// endings says of a run that neither ended well nor raised an error what happened.
func endings(e *sandbox.CodeEnd, r *codeRequest) (name, value string, ok bool) {
	switch e.Status {
	case sandbox.CodeTimedOut:
		return "TimeoutError", fmt.Sprintf("Execution timed out after %dms", int64(r.TimeoutMs)), true
	case sandbox.CodeDied:
		return "KernelDied", orElse(e.Reason, "the kernel ended"), true
	case sandbox.CodeInterrupted, sandbox.CodeCancelled:
		return "KeyboardInterrupt", orElse(e.Reason, "the execution was "+string(e.Status)), true
	}
	return "", "", false
}

// runCode runs code and tells what it does.
func (b *box) runCode(ctx context.Context, r codeRequest, out stream) error {
	raised := false
	return b.run(ctx, r, func(e sandbox.CodeEvent) error {
		at := e.Time.UnixMilli()
		switch e.Type {
		case sandbox.CodeStdout, sandbox.CodeStderr:
			return out.send(string(e.Type), codeEvent{Type: string(e.Type), Timestamp: at, codeResult: codeResult{Text: e.Text}})
		case sandbox.CodeShown:
			return out.send("result", codeEvent{Type: "result", Timestamp: at, codeResult: resultOf(e.Result)})
		case sandbox.CodeRaised:
			raised = true
			return out.send("error", codeEvent{Type: "error", Name: e.Error.Name, Value: e.Error.Value, Traceback: e.Error.Traceback, Timestamp: at})
		case sandbox.CodeEnded:
			if name, value, ok := endings(e.End, &r); ok && !raised {
				if err := out.send("error", codeEvent{Type: "error", Name: name, Value: value, Traceback: []string{}, Timestamp: at}); err != nil {
					return err
				}
			}
			return out.send("execution_complete", codeEvent{Type: "execution_complete", Count: &e.End.Count, Timestamp: at})
		}
		return nil
	})
}

// interpreter is the part of the RPC that runs code.
func (p *peer) interpreter() capnweb.Object {
	describe := func(c sandbox.CodeContext) map[string]any {
		return map[string]any{"id": c.ID, "language": c.Language, "cwd": c.Cwd, "createdAt": capnweb.Date{Time: c.Created}, "lastUsed": capnweb.Date{Time: c.Used}}
	}
	return capnweb.Object{
		"createCodeContext": method(p, func(b *box, ctx context.Context, r contextRequest) (any, error) {
			c, err := b.newContext(ctx, r)
			return describe(c), err
		}, rest),
		"listCodeContexts": p.method(func(ctx context.Context, _ []any) (any, error) {
			all, err := p.engine.CodeContexts(ctx, p.id)
			out := []any{}
			for _, c := range all {
				out = append(out, describe(c))
			}
			return out, err
		}),
		"deleteCodeContext": p.method(func(ctx context.Context, args []any) (any, error) {
			id, err := word(args, 0)
			if err == nil {
				_, err = p.deleteContext(ctx, id)
			}
			return capnweb.Undefined{}, err
		}),
		"streamCode":    told(p, (*box).runCode, "context_id", "code", "language"),
		"runCodeStream": p.method(p.runCalling),
	}
}

// runCalling runs code, and calls the client's functions with what it does.
func (p *peer) runCalling(ctx context.Context, args []any) (any, error) {
	calls := map[string]*capnweb.Stub{}
	if len(args) > 3 {
		all, _ := args[3].(map[string]any)
		for name, v := range all {
			if stub, ok := v.(*capnweb.Stub); ok {
				calls[name] = stub
			}
		}
		args = append(args[:3:3], args[4:]...)
	}
	var r codeRequest
	if err := gather(args, []string{"context_id", "code", "language", "timeout_ms"}, &r); err != nil {
		return nil, err
	}
	call := func(name string, v any) error {
		stub := calls[name]
		if stub == nil {
			return nil
		}
		_, err := stub.Call(ctx, nil, v)
		return err
	}
	raised := false
	err := p.run(ctx, r, func(e sandbox.CodeEvent) error {
		switch e.Type {
		case sandbox.CodeStdout:
			return call("onStdout", map[string]any{"text": e.Text, "timestamp": e.Time.UnixMilli()})
		case sandbox.CodeStderr:
			return call("onStderr", map[string]any{"text": e.Text, "timestamp": e.Time.UnixMilli()})
		case sandbox.CodeShown:
			return call("onResult", resultOf(e.Result))
		case sandbox.CodeRaised:
			raised = true
			return call("onError", map[string]any{"name": e.Error.Name, "message": e.Error.Value, "traceback": e.Error.Traceback})
		case sandbox.CodeEnded:
			if name, value, ok := endings(e.End, &r); ok && !raised {
				return call("onError", map[string]any{"name": name, "message": value, "traceback": []string{}})
			}
		}
		return nil
	})
	return capnweb.Undefined{}, err
}
