package cloudflare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/sandbox"
)

const (
	maxMessage  = 64 << 20 // bytes of one message of a client
	maxRequests = 128      // under way on one WebSocket
	pingEvery   = 20 * time.Second
	pongTime    = 40 * time.Second
)

// accept takes a WebSocket. Pages of any site may ask: what counts is the key.
func accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return nil, &fault{code: validationFailed, status: http.StatusUpgradeRequired, text: "this path takes WebSockets alone"}
	}
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return nil, nil // Accept has answered
	}
	c.SetReadLimit(maxMessage)
	return c, nil
}

// alive pings a client until ctx ends, and says when it has gone without a word.
func alive(ctx context.Context, c *websocket.Conn) error {
	bell := time.NewTicker(pingEvery)
	defer bell.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-bell.C:
		}
		pong, cancel := context.WithTimeout(ctx, pongTime)
		err := c.Ping(pong)
		cancel()
		if err != nil && ctx.Err() == nil {
			return errGone
		}
	}
}

// message is what passes on the WebSocket, in either direction.
type message struct {
	Type    string            `json:"type"`
	ID      string            `json:"id,omitempty"`
	Method  string            `json:"method,omitempty"`
	Path    string            `json:"path,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    json.RawMessage   `json:"body,omitempty"`
	Status  int               `json:"status,omitempty"`
	Done    bool              `json:"done,omitempty"`
	Event   string            `json:"event,omitempty"`
	Data    *string           `json:"data,omitempty"`

	Code    code           `json:"code,omitempty"`
	Message string         `json:"message,omitempty"`
	Context map[string]any `json:"context,omitempty"`
}

// socket carries requests of one client.
type socket struct {
	*Server
	box  *box
	conn *websocket.Conn
	ctx  context.Context // ends with the connection

	write sync.Mutex // of messages
	mu    sync.Mutex
	all   map[string]context.CancelFunc // by the requests' ids
	under sync.WaitGroup
}

// serveSocket serves requests that come as messages.
func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) error {
	conn, err := accept(w, r)
	if conn == nil {
		return err
	}
	defer conn.CloseNow()
	ctx, cancel := context.WithCancelCause(r.Context())
	k := &socket{Server: s, box: boxOf(ctx), conn: conn, ctx: ctx, all: map[string]context.CancelFunc{}}
	defer k.under.Wait()
	defer cancel(nil)
	k.under.Go(func() { cancel(alive(ctx, conn)) })
	stop := context.AfterFunc(ctx, func() { _ = conn.Close(websocket.StatusGoingAway, "") })
	defer stop()
	for {
		kind, b, err := conn.Read(context.WithoutCancel(ctx)) // ends with the connection
		if err != nil {
			return nil
		}
		if err := k.take(kind, b); err != nil {
			return nil
		}
	}
}

// take does what a message says.
func (k *socket) take(kind websocket.MessageType, b []byte) error {
	var m message
	if err := json.Unmarshal(b, &m); kind != websocket.MessageText || err != nil {
		return k.refuse("", invalid("the message is no JSON"))
	}
	switch m.Type {
	case "cancel":
		k.mu.Lock()
		cancel := k.all[m.ID]
		k.mu.Unlock()
		if cancel != nil {
			cancel()
		}
		return nil
	case "request":
		return k.begin(&m)
	}
	return k.refuse(m.ID, invalid("unknown message type"))
}

// begin serves a request beside the others.
func (k *socket) begin(m *message) error {
	if m.ID == "" || len(m.ID) > maxID {
		return k.refuse("", invalid("a request needs an id"))
	}
	u, err := url.ParseRequestURI(m.Path)
	if err != nil || u.Host != "" || !strings.HasPrefix(u.Path, "/") || u.Path == "/ws" || u.Path == "/api/ws" || u.Path == "/rpc" || u.Path == "/ws/pty" {
		return k.refuse(m.ID, invalid("the path cannot be asked for"))
	}
	ctx, cancel := context.WithCancel(k.ctx)
	k.mu.Lock()
	full, again := len(k.all) >= maxRequests, k.all[m.ID] != nil
	if !full && !again {
		k.all[m.ID] = cancel
	}
	k.mu.Unlock()
	if full || again {
		cancel()
		return k.refuse(m.ID, &sandbox.Error{Op: "serve", Kind: sandbox.Exhausted, Err: errors.New("too many requests at once, or two of one id"), Hint: "wait for some to end"})
	}
	k.under.Go(func() {
		defer func() {
			cancel()
			k.mu.Lock()
			delete(k.all, m.ID)
			k.mu.Unlock()
		}()
		k.serve(ctx, m, u)
	})
	return nil
}

func (k *socket) serve(ctx context.Context, m *message, u *url.URL) {
	r, err := http.NewRequestWithContext(ctx, orElse(m.Method, http.MethodGet), "http://localhost"+u.RequestURI(), bytes.NewReader(m.Body))
	if err != nil {
		_ = k.refuse(m.ID, invalid("the request cannot be read"))
		return
	}
	a := &socketAnswer{socket: k, id: m.ID, header: http.Header{}}
	k.routes.ServeHTTP(a, r)
	a.end()
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// refuse answers with an error outside of any response.
func (k *socket) refuse(id string, err error) error {
	b := k.bodyOf(err)
	return k.send(message{Type: "error", ID: id, Code: b.Code, Message: b.Message, Status: b.Status, Context: b.Context})
}

func (k *socket) send(m message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return sandbox.Errorf("encode message", sandbox.Internal, "%w", err)
	}
	k.write.Lock()
	defer k.write.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), writeTime)
	defer cancel()
	if k.conn.Write(ctx, websocket.MessageText, b) != nil {
		return errGone
	}
	return nil
}

// socketAnswer is an answer as messages: a stream's events as they come, any other
// as one.
type socketAnswer struct {
	*socket
	id     string
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *socketAnswer) Header() http.Header { return a.header }

func (a *socketAnswer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *socketAnswer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// events makes it an eventSink.
func (a *socketAnswer) events() stream { return (*socketStream)(a) }

type socketStream socketAnswer

func (s *socketStream) send(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return sandbox.Errorf("encode event", sandbox.Internal, "%w", err)
	}
	data := string(b)
	return s.socket.send(message{Type: "stream", ID: s.id, Event: name, Data: &data})
}

// end sends what was answered, or that a stream has ended.
func (a *socketAnswer) end() {
	a.WriteHeader(http.StatusOK)
	m := message{Type: "response", ID: a.id, Status: a.status, Done: true}
	if b := a.body.Bytes(); json.Valid(b) {
		m.Body = b
	} else if len(b) > 0 {
		m.Body, _ = json.Marshal(string(b)) // of text: never fails
	}
	_ = a.socket.send(m) // a client that has gone is not told
}

var _ io.Writer = (*socketAnswer)(nil)
