package edge_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/edge"
	"github.com/berth-dev/berth/sandbox"
)

// talker serves a WebSocket at /ws and a stream without an end, of no known kind,
// elsewhere.
func talker(t *testing.T) (port int) {
	return inside(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ws" {
			io.WriteString(w, "first line\n")
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			kind, b, err := c.Read(context.Background())
			if err != nil || c.Write(context.Background(), kind, b) != nil {
				return
			}
		}
	})
}

// guest is one who has come to a port, and stays.
type guest struct {
	t      *testing.T
	socket *websocket.Conn
	lines  *bufio.Reader
}

// settle opens a WebSocket and a stream, with a token or as anybody.
func (h *house) settle(id sandbox.ID, port int, token string) *guest {
	h.t.Helper()
	query := ""
	if token != "" {
		query = "?berth_token=" + token
	}
	g := &guest{t: h.t}
	var err error
	g.socket, _, err = websocket.Dial(h.t.Context(), "ws://"+edge.Host(id, port, domain)+"/ws"+query, &websocket.DialOptions{HTTPClient: h.client()})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { g.socket.CloseNow() })
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, "http://"+edge.Host(id, port, domain)+"/stream"+query, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	resp, err := h.client().Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { resp.Body.Close() })
	g.lines = bufio.NewReader(resp.Body)
	if line, err := g.lines.ReadString('\n'); err != nil || line != "first line\n" {
		h.t.Fatalf("%q %v", line, err)
	}
	g.stays("at the beginning")
	return g
}

func (g *guest) stays(when string) {
	g.t.Helper()
	if err := g.socket.Write(g.t.Context(), websocket.MessageText, []byte("still here")); err != nil {
		g.t.Fatalf("%s: %v", when, err)
	}
	if _, b, err := g.socket.Read(g.t.Context()); err != nil || string(b) != "still here" {
		g.t.Fatalf("%s: %q %v", when, b, err)
	}
}

// goes waits until both connections have ended.
func (g *guest) goes() {
	if _, b, err := g.socket.Read(g.t.Context()); err == nil {
		g.t.Errorf("the WebSocket says %q", b)
	}
	if line, err := g.lines.ReadString('\n'); err == nil {
		g.t.Errorf("the stream says %q", line)
	}
}

// TestRevoke: a change of who may come ends what those have open who may not any
// more, and nothing of others.
func TestRevoke(t *testing.T) {
	h := open(t, edge.Config{})
	port, other := talker(t), talker(t)
	id := h.create()
	yes, no := true, false

	token := h.share(id, port, sandbox.ShareRequest{}).Token
	holder := h.settle(id, port, token)
	elsewhere := h.settle(id, other, h.share(id, other, sandbox.ShareRequest{}).Token)
	h.share(id, port, sandbox.ShareRequest{Public: &yes})
	anybody := h.settle(id, port, "")
	holder.stays("once the port is public")

	h.share(id, port, sandbox.ShareRequest{Public: &no})
	anybody.goes()
	holder.stays("once the port is private again")

	renewed := h.share(id, port, sandbox.ShareRequest{Revoke: true}).Token
	holder.goes()
	h.settle(id, port, renewed)
	elsewhere.stays("at the end")
}
