package cloudflare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/dialect/cloudflare/capnweb"
	"github.com/berth-dev/berth/sandbox"
)

// serveRPC serves the operations as methods of one object.
func (s *Server) serveRPC(w http.ResponseWriter, r *http.Request) error {
	conn, err := accept(w, r)
	if conn == nil {
		return err
	}
	defer conn.CloseNow()
	ctx, cancel := context.WithCancelCause(r.Context())
	p := &peer{box: boxOf(ctx)}
	defer p.streams.Wait()
	p.streams.Go(func() { cancel(alive(ctx, conn)) })
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close(websocket.StatusGoingAway, "") })
	defer stop()
	if err := capnweb.Serve(ctx, &frames{conn}, p.main(), capnweb.Limits{}); err != nil {
		s.log.Info("cut off a client", "error", err)
		_ = conn.Close(websocket.StatusPolicyViolation, "bad RPC message")
	}
	return nil
}

// frames carries RPC messages on a WebSocket.
type frames struct{ conn *websocket.Conn }

// Receive ends with the connection, which whoever owns it closes when ctx ends.
func (f *frames) Receive(ctx context.Context) ([]byte, error) {
	kind, b, err := f.conn.Read(context.WithoutCancel(ctx))
	if err == nil && kind != websocket.MessageText {
		err = errors.New("a message is not text")
	}
	return b, err
}

func (f *frames) Send(ctx context.Context, b []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	return f.conn.Write(ctx, websocket.MessageText, b)
}

// peer is one client of the RPC.
type peer struct {
	*box
	streams sync.WaitGroup // that are being told
}

// rest names the argument whose fields are a request's own.
const rest = "..."

// main is the object that clients call: the surface as one table.
func (p *peer) main() capnweb.Object {
	type object = capnweb.Object
	return object{
		"commands": object{
			"execute":       method(p, (*box).execute, "command", "sessionId", rest),
			"executeStream": told(p, (*box).executeStream, "command", "sessionId", rest),
		},
		"files": object{
			"readFile":        p.method(p.readAny),
			"readFileStream":  told(p, (*box).readStream, "path", "sessionId"),
			"writeFile":       method(p, (*box).writeFile, "path", "content", "sessionId", rest),
			"writeFileStream": p.method(p.writeStream),
			"deleteFile":      method(p, (*box).deleteFile, "path", "sessionId"),
			"renameFile":      method(p, (*box).renameFile, "oldPath", "newPath", "sessionId"),
			"moveFile":        method(p, (*box).moveFile, "sourcePath", "destinationPath", "sessionId"),
			"mkdir":           method(p, (*box).mkdir, "path", "sessionId", rest),
			"listFiles":       method(p, (*box).listFiles, "path", "sessionId", "options"),
			"exists":          method(p, (*box).exists, "path", "sessionId"),
		},
		"processes": object{
			"startProcess":      method(p, (*box).startProcess, "command", "sessionId", rest),
			"listProcesses":     p.asked((*box).listProcesses),
			"getProcess":        p.named((*box).getProcess),
			"killProcess":       p.named((*box).killProcess),
			"killAllProcesses":  p.asked((*box).killAll),
			"getProcessLogs":    p.named((*box).processLogs),
			"streamProcessLogs": told(p, (*box).streamLogs, "processId"),
		},
		"ports": object{"watchPort": told(p, (*box).watchPort, rest)},
		"git":   object{"checkout": method(p, (*box).checkout, "repoUrl", "sessionId", rest)},
		"watch": object{
			"watch":        told(p, (*box).watch, rest),
			"checkChanges": method(p, (*box).checkChanges, rest),
		},
		"utils": object{
			"ping":          p.method(func(context.Context, []any) (any, error) { return "healthy", nil }),
			"getVersion":    p.method(func(context.Context, []any) (any, error) { return ClientVersion, nil }),
			"getCommands":   p.method(func(context.Context, []any) (any, error) { return []any{}, nil }),
			"createSession": method(p, (*box).createSession, rest),
			"deleteSession": method(p, (*box).deleteSession, "sessionId"),
			"listSessions": p.method(func(ctx context.Context, _ []any) (any, error) {
				ids, err := p.sessionIDs(ctx)
				return map[string]any{"sessions": ids}, err
			}),
		},
		"backup": object{
			"createArchive":  method(p, (*box).createArchive, "dir", "archivePath", "sessionId", rest),
			"restoreArchive": method(p, (*box).restoreArchive, "dir", "archivePath", "sessionId"),
			"uploadParts":    method(p, (*box).uploadParts, rest),
		},
		"interpreter": p.interpreter(),
		"tunnels":     p.tunnels(),
	}
}

// method puts a method's errors in these clients' words.
func (p *peer) method(do capnweb.Method) capnweb.Method {
	return func(ctx context.Context, args []any) (any, error) {
		v, err := do(ctx, args)
		if err != nil {
			return nil, p.failure(err)
		}
		return v, nil
	}
}

// failure is an error with what clients make their own of.
func (p *peer) failure(err error) error {
	b := p.bodyOf(err)
	e := &capnweb.Error{Message: b.Message, Properties: map[string]any{"code": string(b.Code), "details": b.Context, "httpStatus": b.Status}}
	if b.Operation != "" {
		e.Properties["operation"] = b.Operation
	}
	if b.Suggestion != "" {
		e.Properties["suggestion"] = b.Suggestion
	}
	return e
}

// method is an operation whose request has its arguments as fields of these names.
func method[R any](p *peer, do func(*box, context.Context, R) (any, error), names ...string) capnweb.Method {
	return p.method(func(ctx context.Context, args []any) (any, error) {
		var r R
		if err := gather(args, names, &r); err != nil {
			return nil, err
		}
		return do(p.box, ctx, r)
	})
}

func (p *peer) asked(do func(*box, context.Context) (any, error)) capnweb.Method {
	return p.method(func(ctx context.Context, _ []any) (any, error) { return do(p.box, ctx) })
}

func (p *peer) named(do func(*box, context.Context, string) (any, error)) capnweb.Method {
	return p.method(func(ctx context.Context, args []any) (any, error) {
		id, err := word(args, 0)
		if err != nil {
			return nil, err
		}
		return do(p.box, ctx, id)
	})
}

// word is an argument that is text.
func word(args []any, i int) (string, error) {
	if i < len(args) {
		if s, ok := args[i].(string); ok {
			return s, nil
		}
	}
	return "", invalid(fmt.Sprintf("argument %d must be text", i+1))
}

// gather makes a request of a call's arguments.
func gather(args []any, names []string, r any) error {
	fields := map[string]any{}
	for i, name := range names {
		if i >= len(args) {
			break
		}
		v := defined(args[i])
		switch all, ok := v.(map[string]any); {
		case v == nil:
		case name != rest:
			fields[name] = v
		case !ok:
			return invalid(fmt.Sprintf("argument %d must be an object", i+1))
		default:
			maps.Copy(fields, all)
		}
	}
	b, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(b, r)
	}
	if err != nil {
		return &fault{code: validationFailed, text: "Invalid arguments: " + err.Error(), err: err}
	}
	return nil
}

// defined leaves out what is undefined.
func defined(v any) any {
	switch v := v.(type) {
	case capnweb.Undefined:
		return nil
	case map[string]any:
		for name, one := range v {
			if one = defined(one); one == nil {
				delete(v, name)
			} else {
				v[name] = one
			}
		}
	case []any:
		for i := range v {
			v[i] = defined(v[i])
		}
	}
	return v
}

// told is an operation that answers with events, as a method that returns a stream.
func told[R any](p *peer, do func(*box, context.Context, R, stream) error, names ...string) capnweb.Method {
	return p.method(func(ctx context.Context, args []any) (any, error) {
		var r R
		if err := gather(args, names, &r); err != nil {
			return nil, err
		}
		return p.tell(ctx, func(ctx context.Context, out stream) error { return do(p.box, ctx, r, out) })
	})
}

// tell runs a stream, and returns what the client reads once it has begun.
func (p *peer) tell(ctx context.Context, run streaming) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	in, w := io.Pipe()
	out := &piped{w: w, begun: make(chan struct{})}
	ended := make(chan error, 1)
	p.streams.Go(func() {
		err := run(ctx, out)
		if err != nil && out.any && !errors.Is(err, errGone) {
			_ = out.send("error", errorEvent{Type: "error", Error: p.bodyOf(err).Message, Timestamp: now()})
		}
		ended <- err
		_ = w.Close()
	})
	stop := context.AfterFunc(ctx, func() { _ = in.CloseWithError(errGone) })
	select {
	case <-out.begun:
	case err := <-ended:
		if !out.any {
			stop()
			cancel()
			if err == nil {
				err = &fault{code: streamStartError, text: "the stream ended before it began"}
			}
			return nil, err
		}
	}
	return capnweb.Source(func(session context.Context, to io.Writer) error {
		defer cancel()
		defer stop()
		cut := context.AfterFunc(session, cancel)
		defer cut()
		_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{in}, make([]byte, 64<<10))
		return err
	}), nil
}

// piped writes events as bytes.
type piped struct {
	w     *io.PipeWriter
	begun chan struct{}
	any   bool
}

func (o *piped) send(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return sandbox.Errorf("encode event", sandbox.Internal, "%w", err)
	}
	if !o.any {
		o.any = true
		close(o.begun)
	}
	if _, err := o.w.Write(frame(name, b)); err != nil {
		return errGone
	}
	return nil
}

// readAny reads a file, as text or, if no encoding is asked for, as a stream.
func (p *peer) readAny(ctx context.Context, args []any) (any, error) {
	var r pathRequest
	if err := gather(args, []string{"path", "sessionId", rest}, &r); err != nil {
		return nil, err
	}
	if r.Encoding != "none" {
		return p.readFile(ctx, r)
	}
	path, err := p.resolve(ctx, r.SessionID, r.Path)
	if err != nil {
		return nil, err
	}
	body, fi, mime, err := p.openFile(ctx, path)
	if err != nil {
		return nil, err
	}
	content := func(_ context.Context, w io.Writer) error {
		_, err := io.CopyBuffer(struct{ io.Writer }{w}, body, make([]byte, 64<<10))
		return errors.Join(err, body.Close())
	}
	return map[string]any{"success": true, "path": r.Path, "content": capnweb.Source(content), "size": fi.Size, "mimeType": mime, "timestamp": now()}, nil
}

// writeStream writes a file of any size, and makes the folders above it that are not there.
// It takes the old one's place when all of it is there.
func (p *peer) writeStream(ctx context.Context, args []any) (any, error) {
	var r pathRequest
	if len(args) < 2 {
		return nil, invalid("a path and a stream are needed")
	}
	body, ok := args[1].(*capnweb.Readable)
	if !ok {
		return nil, invalid("argument 2 must be a stream")
	}
	if err := gather(append([]any{args[0]}, args[2:]...), []string{"path", "sessionId"}, &r); err != nil {
		return nil, err
	}
	path, err := p.resolve(ctx, r.SessionID, r.Path)
	if err != nil {
		return nil, err
	}
	fi, err := p.engine.WriteFile(ctx, p.id, path, sandbox.WriteOptions{User: user, Parents: true}, body)
	var theirs *capnweb.Error
	switch {
	case errors.As(err, &theirs):
		return nil, &fault{code: unknownError, text: theirs.Message, op: "file.write", context: map[string]any{"path": path}, err: err}
	case err != nil:
		return nil, fileFault("file.write", path, err)
	}
	return pathAnswer{Success: true, Path: r.Path, Bytes: &fi.Size, Timestamp: now()}, nil
}

// streamLogs is processEvents for a request.
func (b *box) streamLogs(ctx context.Context, r startRequest, out stream) error {
	return b.processEvents(ctx, r.ProcessID, out)
}

// tunnels has no tunnels: they need the vendor's network.
func (p *peer) tunnels() capnweb.Object {
	none := p.method(func(context.Context, []any) (any, error) {
		return nil, &fault{code: internalError, status: http.StatusNotImplemented, text: "cloudflared is not available in this sandbox", op: "tunnel.run",
			err: &sandbox.Error{Kind: sandbox.Unsupported, Err: errors.New("no tunnels"), Hint: "expose the port: previews need no tunnel"}}
	})
	return capnweb.Object{
		"runQuickTunnel": none, "runNamedTunnel": none, "ensureTunnelRun": none,
		"listTunnels":   p.method(func(context.Context, []any) (any, error) { return []any{}, nil }),
		"stopTunnelRun": p.method(func(context.Context, []any) (any, error) { return map[string]any{"stopped": false}, nil }),
		"destroyTunnel": p.method(func(_ context.Context, args []any) (any, error) {
			id, err := word(args, 0)
			return map[string]any{"success": true, "id": id}, err
		}),
	}
}
