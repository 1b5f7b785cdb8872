// Package direct drives the in-sandbox server with the published clients, without
// workerd between: the RPC package against the protocol, and the sandbox client against
// a real server.
package direct

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/dialect/cloudflare/capnweb"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

const nodeOptions = "NODE_OPTIONS=--import=./hook.mjs --experimental-websocket --no-warnings"

// patience bounds every wait of these tests.
const patience = 2 * time.Minute

// TestRPC holds the protocol to the published package, in two versions.
func TestRPC(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(16 << 20)
		if err := capnweb.Serve(r.Context(), frames{c}, object(), capnweb.Limits{}); err != nil {
			t.Errorf("a published client broke the protocol: %v", err)
		}
	}))
	defer s.Close()
	rig.Node(t, ".", []string{"RPC_URL=" + strings.Replace(s.URL, "http", "ws", 1), nodeOptions}, "rpc.test.mjs")
}

type frames struct{ *websocket.Conn }

func (f frames) Receive(ctx context.Context) ([]byte, error) {
	_, b, err := f.Read(ctx)
	return b, err
}

func (f frames) Send(ctx context.Context, b []byte) error {
	return f.Write(ctx, websocket.MessageText, b)
}

// object is what the clients call.
func object() capnweb.Object {
	left := make(chan struct{})
	return capnweb.Object{
		"values": capnweb.Object{
			"echo": capnweb.Method(func(_ context.Context, args []any) (any, error) { return args[0], nil }),
			"fail": capnweb.Method(func(context.Context, []any) (any, error) {
				return nil, &capnweb.Error{Message: "no such file", Properties: map[string]any{"code": "FILE_NOT_FOUND", "details": map[string]any{"path": "/x"}}}
			}),
			"maker": capnweb.Method(func(context.Context, []any) (any, error) {
				made := capnweb.Method(func(_ context.Context, args []any) (any, error) { return "made " + args[0].(string), nil })
				return map[string]any{"call": made}, nil
			}),
			"callback": capnweb.Method(callback),
		},
		"streams": capnweb.Object{
			"down": capnweb.Method(func(_ context.Context, args []any) (any, error) {
				return capnweb.Source(func(_ context.Context, w io.Writer) error {
					_, err := io.Copy(w, content(args))
					return err
				}), nil
			}),
			"sum": capnweb.Method(func(_ context.Context, args []any) (any, error) {
				sum := sha256.New()
				_, err := io.Copy(sum, content(args))
				return hex.EncodeToString(sum.Sum(nil)), err
			}),
			"broken": capnweb.Method(func(context.Context, []any) (any, error) {
				return capnweb.Source(func(context.Context, io.Writer) error { return errors.New("disk") }), nil
			}),
			"endless": capnweb.Method(func(context.Context, []any) (any, error) {
				return capnweb.Source(func(_ context.Context, w io.Writer) error {
					defer close(left)
					for {
						if _, err := w.Write(make([]byte, 1000)); err != nil {
							return err
						}
					}
				}), nil
			}),
			"left": capnweb.Method(func(ctx context.Context, _ []any) (any, error) {
				select {
				case <-left:
					return nil, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(patience):
					return nil, errors.New("the stream goes on")
				}
			}),
			"up": capnweb.Method(func(_ context.Context, args []any) (any, error) {
				n, err := io.Copy(io.Discard, args[0].(*capnweb.Readable))
				return n, err
			}),
		},
	}
}

func content(args []any) io.Reader {
	return io.LimitReader(&counter{}, int64(args[0].(float64)))
}

// counter gives bytes that count up.
type counter struct{ n byte }

func (c *counter) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = c.n
		c.n++
	}
	return len(b), nil
}

// callback calls a function three times, and a method of an object.
func callback(ctx context.Context, args []any) (any, error) {
	call, target := args[0].(*capnweb.Stub), args[1].(*capnweb.Stub)
	var all []any
	for i := range 3 {
		v, err := call.Call(ctx, nil, i)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	v, err := target.Call(ctx, []string{"add"}, 3, 4)
	return append(all, v), err
}

// TestClients drives every client class of the published package, over HTTP and over
// the WebSocket, and the RPC as they do, against a real server.
func TestClients(t *testing.T) {
	s := rig.Start(t)
	run(t, s, "base", sandbox.Limits{}, "clients.test.mjs", "session.test.mjs")
}

// TestContexts runs code, the same ways.
func TestContexts(t *testing.T) {
	s := rig.Start(t)
	s.CodeTemplate(t)
	run(t, s, sandbox.CodeTemplate, sandbox.Limits{MemoryBytes: 2 << 30}, "contexts.test.mjs")
}

// run runs test files on a new sandbox.
func run(t *testing.T, s *rig.Server, template string, limits sandbox.Limits, files ...string) {
	t.Helper()
	one, err := s.Create(t.Context(), sandbox.CreateRequest{Template: template, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	rig.Node(t, ".", []string{"BOX_URL=" + s.URL + "/cloudflare/sandboxes/" + string(one.ID), "BOX_KEY=" + s.Key, nodeOptions}, files...)
}
