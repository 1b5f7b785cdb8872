package edge_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/edge"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/served"
)

var _ edge.Engine = (*engine.Engine)(nil)

const domain = "berth.test"

// house is a server with an edge. Its driver's machines share the ports of the
// host: what listens in the test listens in each of them.
type house struct {
	t    *testing.T
	s    *served.Server
	edge *edge.Edge
	http *httptest.Server
	ctx  context.Context // of the operator
}

func open(t *testing.T, c edge.Config) *house {
	t.Helper()
	s := served.Start(t)
	c.Engine, c.Domain, c.Next, c.Logger = s.Engine, domain, s.API, s.Log.Logger()
	h := &house{t: t, s: s, edge: edge.New(c), ctx: sandbox.WithCaller(t.Context(), sandbox.Operator())}
	h.http = httptest.NewUnstartedServer(h.edge)
	h.http.Config.Protocols = new(http.Protocols)
	h.http.Config.Protocols.SetHTTP1(true)
	h.http.Config.Protocols.SetUnencryptedHTTP2(true)
	h.http.Start()
	t.Cleanup(func() { h.edge.Close(); h.http.Close() })
	return h
}

// create makes a sandbox.
func (h *house) create() sandbox.ID {
	h.t.Helper()
	b, err := h.s.Engine.Create(h.ctx, sandbox.CreateRequest{})
	if err != nil {
		h.t.Fatal(err)
	}
	return b.ID
}

func (h *house) share(id sandbox.ID, port int, r sandbox.ShareRequest) sandbox.Share {
	h.t.Helper()
	s, err := h.s.Engine.Share(h.ctx, string(id), port, r)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func (h *house) publish(id sandbox.ID, port int) {
	yes := true
	h.share(id, port, sandbox.ShareRequest{Public: &yes})
}

// inside starts a server and returns its port.
func inside(t *testing.T, handler http.HandlerFunc) int {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// client reaches every host at the edge, and follows nothing.
func (h *house) client() *http.Client {
	to := h.http.Listener.Addr().String()
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", to)
		}, DisableCompression: true},
	}
}

// get asks for a page of a preview; headers are pairs.
func (h *house) get(id sandbox.ID, port int, path string, headers ...string) (*http.Response, string) {
	h.t.Helper()
	return h.do(http.MethodGet, id, port, path, nil, headers...)
}

func (h *house) do(method string, id sandbox.ID, port int, path string, body io.Reader, headers ...string) (*http.Response, string) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, "http://"+edge.Host(id, port, domain)+path, body)
	if err != nil {
		h.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := h.client().Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp, string(b)
}

// want fails the test unless the status is as wanted.
func (h *house) want(what string, status int, resp *http.Response, body string) {
	h.t.Helper()
	if resp.StatusCode != status {
		h.t.Errorf("%s: %s, want %d: %.300s", what, resp.Status, status, body)
	}
}

// TestStrangers: who may not come cannot tell what is not there from what is.
func TestStrangers(t *testing.T) {
	h := open(t, edge.Config{})
	port := inside(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "secret") })
	id, other := h.create(), h.create()
	h.share(id, port, sandbox.ShareRequest{Revoke: true})
	foreign := h.share(other, port, sandbox.ShareRequest{}).Token
	wrongPort := h.share(id, port-1, sandbox.ShareRequest{}).Token
	unknown := sandbox.ID("aaaaaaaaaaaaaaaaaaaa")
	first, page := h.get(unknown, port, "/", "Accept", "text/html")
	h.want("an unknown sandbox", 404, first, page)
	for what, headers := range map[string][]string{
		"nothing":                 nil,
		"another sandbox's token": {sandbox.HeaderToken, foreign},
		"another port's token":    {sandbox.HeaderToken, wrongPort},
		"another's bearer token":  {"Authorization", "Bearer " + foreign},
		"another's cookie":        {"Cookie", "berth-pass=" + foreign},
		"the administrator's key": {"Authorization", "Bearer " + served.Key},
		"nonsense":                {sandbox.HeaderToken, "bpt_!!"},
	} {
		resp, body := h.get(id, port, "/", append(headers, "Accept", "text/html")...)
		h.want(what, 404, resp, body)
		if body != page || len(resp.Header) != len(first.Header) {
			t.Errorf("with %s the page differs: %q %v", what, body, resp.Header)
		}
	}
	for _, host := range []string{"0-" + string(id), "1-" + string(id), "65535-" + string(id)} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+host+"."+domain+"/", nil)
		resp, err := h.client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 404 {
			t.Errorf("%s: %s", host, resp.Status)
		}
	}
}

// TestTokens: each way to show a token opens the port, and the server inside sees
// none of them, nor a key of the API's.
func TestTokens(t *testing.T) {
	h := open(t, edge.Config{})
	port := inside(t, func(w http.ResponseWriter, r *http.Request) {
		r.Header.Write(w)
		io.WriteString(w, "uri="+r.RequestURI+" host="+r.Host+"\n")
	})
	id := h.create()
	token := h.share(id, port, sandbox.ShareRequest{}).Token
	for what, c := range map[string]struct {
		path    string
		headers []string
	}{
		"header": {"/p?a=1&b=%2F&a=2", []string{sandbox.HeaderToken, token, "Authorization", "Basic dTpw", "Cookie", "app=1"}},
		"bearer": {"/p?a=1&b=%2F&a=2", []string{"Authorization", "bearer " + token}},
		"query":  {"/p?a=1&berth_token=" + token + "&b=%2F&a=2", []string{"Cookie", "app=1; berth-pass=x; other=2"}},
		"key":    {"/p?a=1&b=%2F&a=2", []string{sandbox.HeaderToken, token, "Authorization", "Bearer " + served.Key}},
	} {
		resp, body := h.get(id, port, c.path, c.headers...)
		h.want(what, 200, resp, body)
		if strings.Contains(body, "bpt_") || strings.Contains(body, "berth_") || strings.Contains(body, "berth-pass") {
			t.Errorf("%s: the server inside sees\n%s", what, body)
		}
		if !strings.Contains(body, "uri=/p?a=1&b=%2F&a=2 host="+edge.Host(id, port, domain)) {
			t.Errorf("%s: the request was changed:\n%s", what, body)
		}
	}
	_, body := h.get(id, port, "/", sandbox.HeaderToken, token, "Authorization", "Basic dTpw", "Cookie", "app=1; berth-pass=x", "X-Forwarded-For", "6.6.6.6")
	for _, want := range []string{"Authorization: Basic dTpw", "Cookie: app=1\r\n", "X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Proto: http", "X-Forwarded-Host: " + edge.Host(id, port, domain)} {
		if !strings.Contains(body, want) {
			t.Errorf("the server inside does not see %q:\n%s", want, body)
		}
	}
}

// TestCookies: a browser gets a cookie for the token, which opens that port of
// that sandbox, to its own pages alone, until it is revoked.
func TestCookies(t *testing.T) {
	h := open(t, edge.Config{})
	port := inside(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
	id, other := h.create(), h.create()
	token := h.share(id, port, sandbox.ShareRequest{TTLSeconds: 600}).Token
	resp, body := h.get(id, port, "//evil.example/x?q=1&berth_token="+token, "Accept", "text/html")
	h.want("the exchange", 303, resp, body)
	if l := resp.Header.Get("Location"); l != "/evil.example/x?q=1" {
		t.Errorf("it leads to %q", l)
	}
	cookies := resp.Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteLaxMode || cookies[0].Domain != "" || cookies[0].Expires.After(time.Now().Add(11*time.Minute)) {
		t.Fatalf("cookies %+v", cookies)
	}
	cookie := "berth-pass=stale; " + cookies[0].Name + "=" + cookies[0].Value
	origin := "http://" + edge.Host(id, port, domain)
	for _, c := range []struct {
		what    string
		status  int
		id      sandbox.ID
		headers []string
	}{
		{"its own", 200, id, nil},
		{"its own page", 200, id, []string{"Origin", origin, "Sec-Fetch-Site", "same-origin"}},
		{"a link from elsewhere", 200, id, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}},
		{"another sandbox", 404, other, nil},
		{"a page of another sandbox", 404, id, []string{"Origin", "http://" + edge.Host(other, port, domain)}},
		{"an image in such a page", 404, id, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"}},
		{"a page without a name", 404, id, []string{"Origin", "null"}},
	} {
		resp, body := h.get(c.id, port, "/", append(c.headers, "Cookie", cookie)...)
		h.want(c.what, c.status, resp, body)
	}
	resp, body = h.get(id, port, "/", sandbox.HeaderToken, cookies[0].Value)
	h.want("a cookie in a header", 404, resp, body)
	resp, body = h.get(id, port, "/", "Cookie", "berth-pass="+token)
	h.want("a token in a cookie", 404, resp, body)
	fresh := h.share(id, port, sandbox.ShareRequest{Revoke: true}).Token
	resp, body = h.get(id, port, "/", "Cookie", cookie)
	h.want("a revoked cookie", 404, resp, body)
	resp, body = h.get(id, port, "/", sandbox.HeaderToken, token)
	h.want("a revoked token", 404, resp, body)
	resp, body = h.get(id, port, "/", sandbox.HeaderToken, fresh)
	h.want("a token of after", 200, resp, body)
}

// TestOnce: a link that serves once serves one browser, and no program.
func TestOnce(t *testing.T) {
	h := open(t, edge.Config{})
	port := inside(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
	id := h.create()
	link := "/?berth_token=" + url.QueryEscape(h.share(id, port, sandbox.ShareRequest{Once: true}).Token)
	resp, body := h.get(id, port, link)
	h.want("a program", 404, resp, body)
	won := make(chan int, 8)
	for range cap(won) {
		go func() {
			resp, _ := h.get(id, port, link, "Accept", "text/html")
			won <- resp.StatusCode
		}()
	}
	opened := 0
	for range cap(won) {
		if status := <-won; status == 303 {
			opened++
		} else if status != 404 {
			t.Errorf("status %d", status)
		}
	}
	if opened != 1 {
		t.Errorf("it opened %d times", opened)
	}
}

// TestPublic: a port is public from the moment when that is said, until it is not.
func TestPublic(t *testing.T) {
	h := open(t, edge.Config{})
	port := inside(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello "+r.Host) })
	id := h.create()
	yes, no := true, false
	for range 3 {
		if s := h.share(id, port, sandbox.ShareRequest{Public: &yes}); !s.Public || s.Token != "" {
			t.Errorf("public: %+v", s)
		}
		resp, body := h.get(id, port, "/")
		h.want("public", 200, resp, body)
		h.share(id, port, sandbox.ShareRequest{Public: &no})
		resp, body = h.get(id, port, "/")
		h.want("private", 404, resp, body)
	}
	local := "localhost:3000"
	h.share(id, port, sandbox.ShareRequest{Public: &yes, HostHeader: &local})
	if _, body := h.get(id, port, "/"); body != "hello "+local {
		t.Errorf("the server is told it is %q", body)
	}
	if err := h.s.Engine.Remove(h.ctx, string(id)); err != nil {
		t.Fatal(err)
	}
	resp, body := h.get(id, port, "/")
	h.want("a removed sandbox", 404, resp, body)
}

// TestOtherHosts: what is no preview is for the next door.
func TestOtherHosts(t *testing.T) {
	h := open(t, edge.Config{})
	for _, host := range []string{domain, "api." + domain, "127.0.0.1", "localhost:80"} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+host+"/healthz", nil)
		resp, err := h.client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s: %s", host, resp.Status)
		}
	}
}
