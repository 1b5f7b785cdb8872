package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
	"github.com/berth-dev/berth/screen"
	"github.com/berth-dev/berth/test/served"
)

// socket is a client of a terminal.
type socket struct {
	t       *testing.T
	ctx     context.Context
	conn    *websocket.Conn
	screen  *screen.Screen
	notices []wire.TerminalNotice
	seeding int64
	at      int64
}

func dial(t *testing.T, s *served.Server, path string, header http.Header) (*socket, *http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	o := &websocket.DialOptions{HTTPHeader: header}
	if p := header.Get("Sec-Websocket-Protocol"); p != "" {
		o.HTTPHeader, o.Subprotocols = header.Clone(), strings.Split(p, ", ")
		o.HTTPHeader.Del("Sec-Websocket-Protocol")
	}
	conn, resp, err := websocket.Dial(ctx, s.URL+path, o)
	if err != nil {
		return nil, resp, err
	}
	t.Cleanup(func() { conn.CloseNow() })
	conn.SetReadLimit(-1)
	return &socket{t: t, ctx: ctx, conn: conn, screen: screen.New(80, 24)}, resp, nil
}

func bearer() http.Header { return http.Header{"Authorization": {"Bearer " + served.Key}} }

// join is a dial that must succeed.
func join(t *testing.T, s *served.Server, path string) *socket {
	t.Helper()
	c, _, err := dial(t, s, path, bearer())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// next takes one message; false means that the connection is over.
func (c *socket) next() bool {
	c.t.Helper()
	kind, b, err := c.conn.Read(c.ctx)
	var closed websocket.CloseError
	switch {
	case errors.As(err, &closed):
		return false
	case err != nil:
		c.t.Fatalf("read: %v; the screen:\n%s", err, strings.Join(c.screen.Text(), "\n"))
	case kind == websocket.MessageBinary:
		c.screen.Write(b)
		if c.seeding > 0 {
			c.seeding -= int64(len(b))
		} else {
			c.at += int64(len(b))
		}
		return true
	}
	var n wire.TerminalNotice
	if err := json.Unmarshal(b, &n); err != nil {
		c.t.Fatal(err)
	}
	c.notices = append(c.notices, n)
	switch {
	case n.Seed != nil:
		c.seeding, c.at = n.Seed.Bytes, n.Seed.Offset
		c.screen.Resize(n.Seed.Cols, n.Seed.Rows)
	case n.Resized != nil:
		c.screen.Resize(n.Resized.Cols, n.Resized.Rows)
	}
	return true
}

func (c *socket) until(what string, is func() bool) {
	c.t.Helper()
	for !is() {
		if !c.next() {
			c.t.Fatalf("over before %s; the screen:\n%s\nnotices %+v", what, strings.Join(c.screen.Text(), "\n"), c.notices)
		}
	}
}

func (c *socket) shows(text string) {
	c.t.Helper()
	c.until(fmt.Sprintf("it shows %q", text), func() bool { return strings.Contains(strings.Join(c.screen.Text(), "\n"), text) })
}

func (c *socket) last() wire.TerminalNotice {
	if len(c.notices) == 0 {
		return wire.TerminalNotice{}
	}
	return c.notices[len(c.notices)-1]
}

func (c *socket) send(kind websocket.MessageType, text string) {
	c.t.Helper()
	if err := c.conn.Write(c.ctx, kind, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

const plainShell = "command=exec+env+PS1='%3E+'+sh+-i"

func TestTerminalSocket(t *testing.T) {
	v := visit(t)
	box := v.create("")
	c := join(t, v.s, box+"/terminals/work?cols=90&rows=30&env.GREETING=hello&"+plainShell)
	c.shows(">")
	first := c.notices[0].Attached
	if first == nil || first.Name != "work" || first.Cols != 90 || c.notices[1].Seed == nil {
		t.Fatalf("notices: %+v", c.notices)
	}
	c.send(websocket.MessageBinary, "stty size; echo $GREETING\r")
	c.shows("30 90\nhello")
	c.send(websocket.MessageText, `{"resize":{"cols":70,"rows":20}}`)
	c.until("it is resized", func() bool { r := c.last().Resized; return r != nil && r.Cols == 70 && r.Rows == 20 })
	c.send(websocket.MessageBinary, "sleep 1000\r")
	c.shows("sleep 1000")
	c.send(websocket.MessageText, `{"signal":"SIGINT"}`)
	c.send(websocket.MessageBinary, "echo code:$?\r")
	// The signal may have come before the sleep: then it ended nothing.
	c.send(websocket.MessageBinary, "\x03\recho 'and th''en'\r")
	c.shows("and then")

	list := into[wire.Terminals](t, v.do("GET", box+"/terminals", "", 200)).Terminals
	if len(list) != 1 || list[0].Clients != 1 || list[0].ID != first.ID {
		t.Errorf("list: %+v", list)
	}
	// Gone and back: what came meanwhile follows, without a seed.
	at := c.at
	c.conn.CloseNow()
	v.do("POST", box+"/terminals/work/input", "echo 'while aw''ay'\r", 204)
	back := join(t, v.s, fmt.Sprintf("%s/terminals/%s?offset=%d", box, first.ID, at))
	back.shows("while away")
	if len(back.notices) != 1 {
		t.Errorf("back: %+v", back.notices)
	}
	// Another sees the same, and both see the end.
	other := join(t, v.s, box+"/terminals/work")
	other.shows("while away")
	v.do("POST", box+"/terminals/work/input", "exit 9\r", 204)
	for _, c := range []*socket{back, other} {
		c.until("the exit", func() bool { return c.last().Exit != nil })
		if c.last().Exit.Code != 9 || c.next() {
			t.Errorf("exit: %+v", c.last())
		}
	}
	if got := into[sandbox.Terminal](t, v.do("GET", box+"/terminals/work", "", 200)); got.Exit == nil || got.Exit.Code != 9 {
		t.Errorf("after the exit: %+v", got)
	}
}

func TestTerminalRoutes(t *testing.T) {
	v := visit(t)
	box := v.create("")
	opened := into[sandbox.Terminal](t, v.do("POST", box+"/terminals", `{"argv":["cat"],"cols":100,"rows":40}`, 201))
	if opened.Name != "main" || opened.Cols != 100 || opened.Exit != nil {
		t.Errorf("opened: %+v", opened)
	}
	if again := into[sandbox.Terminal](t, v.do("POST", box+"/terminals", `{}`, 200)); again.ID != opened.ID {
		t.Errorf("again: %+v", again)
	}
	v.do("POST", box+"/terminals", `{"new":true,"name":"main"}`, 409)
	fresh := into[sandbox.Terminal](t, v.do("POST", box+"/terminals", `{"new":true,"argv":["cat"]}`, 201))
	if fresh.Name == "main" || fresh.ID == opened.ID {
		t.Errorf("fresh: %+v", fresh)
	}
	v.do("POST", box+"/terminals/main/resize", `{"cols":120,"rows":50}`, 204)
	for _, bad := range []string{`{"cols":0,"rows":0}`, `{"cols":65535,"rows":65535}`, `{"cols":-1,"rows":5}`, `{"cols":80}`} {
		v.do("POST", box+"/terminals/main/resize", bad, 400)
	}
	v.do("POST", box+"/terminals/main/signal", `{"signal":"SIGNOTHING"}`, 400)
	v.do("POST", box+"/terminals/main/signal", `{"signal":""}`, 400)
	v.do("POST", box+"/terminals", `{"name":"a/b"}`, 400)
	v.do("POST", box+"/terminals", `{"name":"t7"}`, 400)
	v.do("POST", box+"/terminals", `{"argv":["nonesuch-program"]}`, 200) // main lives: nothing is started
	v.do("POST", box+"/terminals", `{"name":"x","argv":["nonesuch-program"]}`, 404)
	v.do("GET", box+"/terminals/nobody", "", 404)
	v.do("DELETE", box+"/terminals/nobody", "", 404)
	if got := into[sandbox.Terminal](t, v.do("GET", box+"/terminals/main", "", 200)); got.Cols != 120 || got.Rows != 50 {
		t.Errorf("resized: %+v", got)
	}
	v.do("DELETE", box+"/terminals/main", "", 204)
	v.do("GET", box+"/terminals/main", "", 404)
	if left := into[wire.Terminals](t, v.do("GET", box+"/terminals", "", 200)).Terminals; len(left) != 1 || left[0].ID != fresh.ID {
		t.Errorf("left: %+v", left)
	}
}

func TestTerminalSocketRefusals(t *testing.T) {
	v := visit(t)
	box := v.create("")
	page := http.Header{"Sec-Websocket-Protocol": {"berth.v1, " + served.Key}, "Origin": {v.s.URL}}
	c, resp, err := dial(t, v.s, box+"/terminals/page?"+plainShell, page)
	if err != nil || c.conn.Subprotocol() != wire.TerminalProtocol || strings.Contains(fmt.Sprint(resp.Header), served.Key) {
		t.Fatalf("a page: %v %v", err, resp)
	}
	c.shows(">")
	for name, bad := range map[string]struct {
		path   string
		header http.Header
		status int
	}{
		"no key":          {"/terminals/x", nil, 401},
		"a wrong key":     {"/terminals/x", http.Header{"Sec-Websocket-Protocol": {"berth.v1, berth_0"}}, 401},
		"another site":    {"/terminals/x", http.Header{"Sec-Websocket-Protocol": {"berth.v1, " + served.Key}, "Origin": {"http://elsewhere.test"}}, 403},
		"no size":         {"/terminals/x?cols=0&rows=10", bearer(), 400},
		"a huge size":     {"/terminals/x?cols=65535&rows=65535", bearer(), 400},
		"half a size":     {"/terminals/x?cols=10", bearer(), 400},
		"a bad name":      {"/terminals/a%2fb", bearer(), 400},
		"no such id":      {"/terminals/t99", bearer(), 404},
		"not to be made":  {"/terminals/x?create=false", bearer(), 404},
		"an odd offset":   {"/terminals/page?offset=-1", bearer(), 400},
		"a future offset": {"/terminals/page?offset=99999999", bearer(), 400},
		"unknown":         {"/terminals/x?mood=fine", bearer(), 400},
		"one that lives":  {"/terminals/page?new=true", bearer(), 409},
	} {
		if _, resp, err := dial(t, v.s, box+bad.path, bad.header); err == nil || resp == nil || resp.StatusCode != bad.status {
			t.Errorf("%s: %v, want %d", name, err, bad.status)
		}
	}
	for _, bad := range []string{"", "{", `{}`, `{"resize":{"cols":0,"rows":0}}`, `{"signal":"SIGNOTHING"}`, strings.Repeat("x", wire.MaxTerminalControl+1)} {
		c := join(t, v.s, box+"/terminals/page")
		c.send(websocket.MessageText, bad)
		c.until("an error", func() bool { return c.last().Error != nil })
		if c.last().Error.Code != sandbox.Invalid || c.next() {
			t.Errorf("%.40q: %+v", bad, c.last().Error)
		}
	}
	// The server that closes says so; the terminal's own end was not it.
	c = join(t, v.s, box+"/terminals/page")
	c.shows(">")
	v.s.API.Close()
	c.until("an error", func() bool { return c.last().Error != nil })
	if c.last().Error.Code != sandbox.Unavailable {
		t.Errorf("closing: %+v", c.last().Error)
	}
}

// TestTerminalPaste: more than a program takes at once arrives whole, and what it
// does not take keeps the client waiting, not the server.
func TestTerminalPaste(t *testing.T) {
	v := visit(t)
	box := v.create("")
	const size = 3 << 20
	c := join(t, v.s, box+"/terminals/paste?command=stty+raw+-echo%3Becho+ready%3Bhead+-c+3145728|wc+-c")
	c.shows("ready")
	c.send(websocket.MessageBinary, strings.Repeat("0123456789abcdef", size/16))
	c.shows("3145728")

	deaf := join(t, v.s, box+"/terminals/deaf?command=stty+raw+-echo%3Becho+ready%3Bsleep+1000")
	deaf.shows("ready")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for deaf.conn.Write(deaf.ctx, websocket.MessageBinary, make([]byte, 1<<20)) == nil {
		}
	}()
	v.do("DELETE", box+"/terminals/deaf", "", 204)
	deaf.until("the exit", func() bool { return deaf.last().Exit != nil })
	deaf.conn.CloseNow()
	<-gone
}
