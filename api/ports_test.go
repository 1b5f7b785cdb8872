package api_test

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/served"
	"github.com/berth-dev/berth/tunnel"
)

// echoPort answers each connection, once it has been sent all, with all of it.
func echoPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if all, err := io.ReadAll(c); err == nil {
					c.Write(all)
				}
			}()
		}
	}()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

func TestShare(t *testing.T) {
	v := visit(t)
	box := v.create("")
	id := strings.TrimPrefix(box, "/v1/sandboxes/")
	s := into[sandbox.Share](t, v.do("POST", box+"/ports/8080/share", "", 200))
	if s.Public || s.Base != "http://8080-"+id+".berth.test/" || s.URL != s.Base+"?berth_token="+url.QueryEscape(s.Token) || s.Expires.IsZero() {
		t.Errorf("%+v", s)
	}
	s = into[sandbox.Share](t, v.do("POST", box+"/ports/8080/share", `{"public":true,"ttl_seconds":60,"host_header":"localhost:8080"}`, 200))
	if !s.Public || s.Token != "" || s.URL != s.Base || s.PublicUntil.IsZero() || s.HostHeader != "localhost:8080" {
		t.Errorf("%+v", s)
	}
	ports := into[struct{ Ports []sandbox.Port }](t, v.do("GET", box+"/ports", "", 200)).Ports
	if len(ports) != 1 || ports[0].Port != 8080 || !ports[0].Public || ports[0].Listening || ports[0].URL != s.Base {
		t.Errorf("%+v", ports)
	}
	for port := 1000; port < 1000+sandbox.MaxSharedPorts-1; port++ {
		v.do("POST", box+"/ports/"+strconv.Itoa(port)+"/share", `{"public":true}`, 200)
	}
	v.do("POST", box+"/ports/9/share", `{"public":true}`, 429)
	v.do("POST", box+"/ports/9/share", ``, 200)
	for _, bad := range []string{`{"public":true,"once":true}`, `{"ttl_seconds":-1}`, `{"ttl_seconds":2592001}`, `{"host_header":"a b"}`, `{"host_header":"x\r\ny: z"}`, `{"host":"x"}`} {
		v.do("POST", box+"/ports/8080/share", bad, 400)
	}
	for _, port := range []string{"0", "1", "65536", "-1", "x", "8080x"} {
		v.do("POST", box+"/ports/"+port+"/share", "", 400)
	}
	v.do("POST", "/v1/sandboxes/aaaaaaaaaaaaaaaaaaaa/ports/80/share", "", 404)
	v.do("DELETE", box, "", 204)
	v.do("POST", box+"/ports/8080/share", "", 404)
}

func TestTunnel(t *testing.T) {
	v := visit(t)
	box := v.create("")
	port := echoPort(t)
	v.do("GET", box+"/ports/"+port+"/tunnel", "", 400)
	dial := func(box, port string) (*websocket.Conn, *http.Response, error) {
		return websocket.Dial(t.Context(), v.s.URL+box+"/ports/"+port+"/tunnel", &websocket.DialOptions{
			HTTPHeader: http.Header{"Authorization": {"Bearer " + served.Key}}, Subprotocols: []string{tunnel.Protocol}})
	}
	for where, status := range map[string]int{box + " 9": 503, box + " 1": 400, "/v1/sandboxes/aaaaaaaaaaaaaaaaaaaa " + port: 404} {
		box, port, _ := strings.Cut(where, " ")
		if _, resp, err := dial(box, port); err == nil || resp.StatusCode != status {
			t.Errorf("%s: %v %v", where, resp, err)
		}
	}
	ws, _, err := dial(box, port)
	if err != nil {
		t.Fatal(err)
	}
	c := tunnel.New(ws)
	defer c.Close()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(c); err != nil || string(all) != "hello" {
		t.Errorf("%q %v", all, err)
	}
}

// TestTunnelThroughProxy: a client that reaches the server through a proxy alone
// reaches ports too.
func TestTunnelThroughProxy(t *testing.T) {
	v := visit(t)
	box := strings.TrimPrefix(v.create(""), "/v1/sandboxes/")
	port, _ := strconv.Atoi(echoPort(t))
	seen := make(chan string, 8)
	to, _ := url.Parse(connectProxy(t, seen))
	c := client.New(v.s.URL, served.Key, client.WithHTTPClient(&http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(to)}}))
	conn, err := c.Dial(t.Context(), box, port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "through")
	conn.(*tunnel.Conn).CloseWrite()
	if all, err := io.ReadAll(conn); err != nil || string(all) != "through" {
		t.Errorf("%q %v", all, err)
	}
	if len(seen) == 0 {
		t.Error("the proxy was not asked")
	}
}

func TestDomains(t *testing.T) {
	v := visit(t)
	box := strings.TrimPrefix(v.create(""), "/v1/sandboxes/")
	add := func(name string, status int) []byte {
		return v.do("POST", "/v1/domains", `{"name":"`+name+`","sandbox":"`+box+`","port":8080}`, status)
	}
	d := into[sandbox.Domain](t, add("App.Example.com.", 200))
	if d.Name != "app.example.com" || !d.Verified.IsZero() || d.Proof.TXTName != "_berth-challenge.app.example.com" || len(d.Proof.TXTValue) < 20 {
		t.Errorf("%+v", d)
	}
	if again := into[sandbox.Domain](t, add("app.example.com", 200)); again != d {
		t.Errorf("added again it is %+v", again)
	}
	if all := into[struct{ Domains []sandbox.Domain }](t, v.do("GET", "/v1/domains", "", 200)).Domains; len(all) != 1 || all[0] != d {
		t.Errorf("%+v", all)
	}
	v.do("GET", "/v1/domains/app.example.com", "", 200)
	v.do("POST", "/v1/domains/app.example.com/verify", "", 403)
	for _, bad := range []string{"example", "-a.example.com", "a..example.com", "*.example.com", "1.2.3.4", "bücher.example", "berth.test", "x.berth.test", "a_b.example.com"} {
		add(bad, 400)
	}
	v.do("DELETE", "/v1/domains/app.example.com", "", 204)
	v.do("GET", "/v1/domains/app.example.com", "", 404)
	v.do("DELETE", "/v1/domains/app.example.com", "", 404)
}
