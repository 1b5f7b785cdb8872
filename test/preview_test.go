package test

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/coder/websocket"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

// site is what runs in a sandbox: a page that echoes what it is sent, a stream of
// events and a WebSocket, on one port of the loopback alone.
const site = `
const http = require('http'), crypto = require('crypto');
const s = http.createServer((q, r) => {
  if (q.url === '/events') {
    r.writeHead(200, {'Content-Type': 'text/event-stream'});
    let n = 0; const t = setInterval(() => r.write('data: ' + n++ + '\n\n'), 50);
    q.on('close', () => clearInterval(t));
  } else if (q.method === 'POST') {
    r.writeHead(200); q.pipe(r);
  } else r.end('hello from ' + q.headers.host);
});
s.on('upgrade', (q, c) => {
  const key = crypto.createHash('sha1').update(q.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
  c.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ' + key + '\r\n\r\n');
  c.on('error', () => {});
  c.on('data', b => { // short messages, each whole
    while (b.length >= 6) {
      const n = b[1] & 127, mask = b.subarray(2, 6), data = b.subarray(6, 6 + n);
      for (let i = 0; i < data.length; i++) data[i] ^= mask[i % 4];
      c.write(Buffer.concat([Buffer.from([b[0], data.length]), data]));
      b = b.subarray(6 + n);
    }
  });
});
s.listen(0, '127.0.0.1', () => console.log('port ' + s.address().port));
`

// preview is the site, seen through its URL over TLS.
type preview struct {
	t     *testing.T
	id    string
	port  int
	share sandbox.Share
	http  *http.Client
}

// openSite starts the site in a new sandbox.
func openSite(t *testing.T, r *real) *preview {
	t.Helper()
	box, err := r.Create(t.Context(), sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	p := &preview{t: t, id: string(box.ID)}
	p.port = startSite(t, r, p.id, "site", site)
	if p.share, err = r.Share(t.Context(), p.id, p.port, sandbox.ShareRequest{}); err != nil {
		t.Fatal(err)
	}
	p.http = trusting(t, r.data, p.share.Base)
	return p
}

// trusting is a client that trusts the server's own authority, and finds every
// host at the server.
func trusting(t *testing.T, data, base string) *http.Client {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(data, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("ca.pem holds %q", ca)
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" {
		t.Fatalf("the preview is at %q, %v", base, err)
	}
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:"+u.Port())
		}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// startSite runs a script that says "port N" once it listens there.
func startSite(t *testing.T, r *real, id, name, script string) (port int) {
	t.Helper()
	ev, err := r.Exec(t.Context(), id, sandbox.Command{Argv: []string{"node", "-e", script}, Name: name, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	ev.Close()
	line, err := r.WaitLine(t.Context(), id, name, sandbox.LineWait{Regexp: "^port [0-9]+$"})
	if err != nil {
		t.Fatal(err)
	}
	if port, err = strconv.Atoi(strings.TrimPrefix(line.Text, "port ")); err != nil {
		t.Fatal(err)
	}
	return port
}

func (p *preview) request(method, path string, body io.Reader) *http.Request {
	p.t.Helper()
	q, err := http.NewRequestWithContext(p.t.Context(), method, strings.TrimSuffix(p.share.Base, "/")+path, body)
	if err != nil {
		p.t.Fatal(err)
	}
	q.Header.Set(sandbox.HeaderToken, p.share.Token)
	return q
}

func (p *preview) open(method, path string, body io.Reader) *http.Response {
	p.t.Helper()
	resp, err := p.http.Do(p.request(method, path, body))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		p.t.Fatalf("%s %s: %s: %s", method, path, resp.Status, b)
	}
	return resp
}

func (p *preview) hello(what string) {
	p.t.Helper()
	resp := p.open("GET", "/", nil)
	b, err := io.ReadAll(resp.Body)
	if u, _ := url.Parse(p.share.Base); err != nil || string(b) != "hello from "+u.Host || resp.ProtoMajor != 2 {
		p.t.Errorf("%s: %s %q %v", what, resp.Proto, b, err)
	}
}

// TestPreview: a site in a real sandbox is used through its URL, over HTTP/2 and
// TLS, and over a pause and a restart of the server.
func TestPreview(t *testing.T) {
	r := startReal(t, "--https-listen", "127.0.0.1:0")
	p := openSite(t, r)
	p.hello("at first")
	p.events()
	p.echo()
	p.large(r)
	p.grpc(r)
	if _, err := r.Pause(t.Context(), p.id); err != nil {
		t.Fatal(err)
	}
	p.hello("after a pause")
	p.echo()

	if err := r.stop(os.Kill); err != nil {
		t.Fatal(err)
	}
	r.again(t, "--https-listen", "127.0.0.1:0")
	again, err := r.Share(t.Context(), p.id, p.port, sandbox.ShareRequest{})
	if err != nil {
		t.Fatal(err)
	}
	p.share.Base, p.http = again.Base, trusting(t, r.data, again.Base)
	p.hello("after a restart of the server, with the token of before")
	p.tunnel(r.Client)
	p.told(r.Client)
}

// events arrive as they are sent: a proxy that holds them back would never end.
func (p *preview) events() {
	p.t.Helper()
	resp := p.open("GET", "/events", nil)
	defer resp.Body.Close()
	in := bufio.NewScanner(resp.Body)
	for n := 0; n < 5; {
		if !in.Scan() {
			p.t.Fatalf("the stream ended: %v", in.Err())
		}
		if in.Text() == fmt.Sprint("data: ", n) {
			n++
		}
	}
}

// echo sends messages over a WebSocket.
func (p *preview) echo() {
	p.t.Helper()
	q := p.request("GET", "/", nil)
	one := *p.http
	tr := p.http.Transport.(*http.Transport).Clone()
	tr.ForceAttemptHTTP2, tr.TLSClientConfig.NextProtos = false, []string{"http/1.1"}
	one.Transport = tr
	defer tr.CloseIdleConnections()
	c, _, err := websocket.Dial(p.t.Context(), q.URL.String(), &websocket.DialOptions{HTTPClient: &one, HTTPHeader: q.Header})
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.CloseNow()
	for i := range 50 {
		want := fmt.Sprint("message ", i)
		if err := c.Write(p.t.Context(), websocket.MessageText, []byte(want)); err != nil {
			p.t.Fatal(err)
		}
		if _, b, err := c.Read(p.t.Context()); err != nil || string(b) != want {
			p.t.Fatalf("message %d came back as %q, %v", i, b, err)
		}
	}
}

// large sends 100 MB there and back; the server holds none of it.
func (p *preview) large(r *real) {
	p.t.Helper()
	const size = 100 << 20
	block := make([]byte, 1<<20)
	rand.Read(block)
	in, out := io.Pipe()
	go func() {
		for range size / len(block) {
			if _, err := out.Write(block); err != nil {
				return
			}
		}
		out.Close()
	}()
	before := resident(p.t, r)
	resp := p.open("POST", "/", in)
	got := sha256.New()
	n, err := io.Copy(got, resp.Body)
	if err != nil || n != size {
		p.t.Fatalf("%d bytes came back of %d: %v", n, size, err)
	}
	want := sha256.New()
	for range size / len(block) {
		want.Write(block)
	}
	if string(got.Sum(nil)) != string(want.Sum(nil)) {
		p.t.Error("other bytes came back than were sent")
	}
	if after := resident(p.t, r); after > before+64<<20 {
		p.t.Errorf("the server grew from %d MiB to %d", before>>20, after>>20)
	}
}

// talker answers each message of a gRPC stream with the same.
const talker = `
const s = require('http2').createServer();
s.on('stream', (c, headers) => {
  c.respond({':status': 200, 'content-type': 'application/grpc', 'x-path': headers[':path']}, {waitForTrailers: true});
  c.on('wantTrailers', () => c.sendTrailers({'grpc-status': '0', 'grpc-message': 'done'}));
  c.pipe(c);
});
s.listen(0, '127.0.0.1', () => console.log('port ' + s.address().port));
`

// grpc has a client of gRPC talk with a server inside, both ways at once.
func (p *preview) grpc(r *real) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	port := startSite(p.t, r, p.id, "talker", talker)
	share, err := r.Share(ctx, p.id, port, sandbox.ShareRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	c := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](p.http, strings.TrimSuffix(share.Base, "/")+"/talk.Talk/Talk", connect.WithGRPC())
	stream := c.CallBidiStream(ctx)
	stream.RequestHeader().Set(sandbox.HeaderToken, share.Token)
	for _, text := range []string{"one", "two", strings.Repeat("three", 100_000)} {
		if err := stream.Send(wrapperspb.String(text)); err != nil {
			p.t.Fatal(err)
		}
		if got, err := stream.Receive(); err != nil || got.Value != text {
			p.t.Fatalf("of %d bytes of a message came back %v, %v", len(text), got, err)
		}
	}
	if err := stream.CloseRequest(); err != nil {
		p.t.Fatal(err)
	}
	if _, err := stream.Receive(); !errors.Is(err, io.EOF) || stream.ResponseHeader().Get("X-Path") != "/talk.Talk/Talk" {
		p.t.Errorf("the stream of gRPC ended with %v, headers %v", err, stream.ResponseHeader())
	}
	if err := stream.CloseResponse(); err != nil {
		p.t.Error(err)
	}
}

// resident is the most that the server ever had in memory, in bytes.
func resident(t *testing.T, r *real) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[0] == "VmHWM:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("the kernel does not tell")
	return 0
}

// tunnel speaks HTTP over a connection through the API.
func (p *preview) tunnel(c *client.Client) {
	p.t.Helper()
	conn, err := c.Dial(p.t.Context(), p.id, p.port)
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\nHost: tunnel\r\n\r\n"); err != nil {
		p.t.Fatal(err)
	}
	if half, ok := conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		p.t.Error("one side of it cannot be ended")
	}
	b, err := io.ReadAll(conn)
	if err != nil || !strings.HasSuffix(string(b), "hello from tunnel") {
		p.t.Errorf("%q %v", b, err)
	}
	_, err = c.Dial(p.t.Context(), p.id, 9)
	if sandbox.KindOf(err) != sandbox.Unavailable {
		p.t.Errorf("a port that nobody listens on: %v", err)
	}
}

// told waits for the journal to tell that the port was opened, once. It tells of other
// ports too.
func (p *preview) told(c *client.Client) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		page, err := c.Changes(p.t.Context(), sandbox.ChangeQuery{Sandbox: p.id, Types: []sandbox.ChangeType{sandbox.ChangePortOpened}})
		if err != nil {
			p.t.Fatal(err)
		}
		times := 0
		for _, e := range page.Events {
			if e.Port == p.port {
				times++
			}
		}
		if times == 1 {
			return
		}
		if times > 1 {
			p.t.Fatalf("it tells %+v", page.Events)
		}
	}
	p.t.Error(errors.New("the journal does not tell of the port"))
}
