package gvisor_test

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/guestapi"
)

// dialer is a program that reports what a connection from inside brings.
const dialer = `python3 - <<'E'
import socket, sys
def dial(host, port, send):
    s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET)
    s.settimeout(10)
    try:
        s.connect((host, port))
    except OSError as e:
        return 'refused'
    try:
        s.sendall(send)
        got = s.recv(100)
    except OSError as e:
        got = b''
    return 'got %d bytes' % len(got)
for host, port in [TARGETS]:
    print(host, port, dial(host, port, SEND))
E`

func TestAProcessInsideGetsNothingFromTheGuest(t *testing.T) {
	d := newDriver(t, t.TempDir())
	b := create(t, d, newSpec(t))
	for _, user := range []string{"user", "root"} {
		for _, send := range []string{
			`b'GET / HTTP/1.1\r\nHost: x\r\n\r\n'`,
			`b'berth/1\n' + b'\0' * 32 + b'GET / HTTP/1.1\r\nHost: x\r\n\r\n'`,
			`b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'`,
		} {
			line := strings.NewReplacer("TARGETS", "('10.200.0.2', 1), ('127.0.0.1', 1)", "SEND", send).Replace(dialer)
			for _, got := range strings.Split(b.mustSh(t, user, line), "\n") {
				if !strings.HasSuffix(got, "refused") && !strings.HasSuffix(got, "got 0 bytes") {
					t.Errorf("%s sends %s: %s", user, send, got)
				}
			}
		}
	}
	// The secret is in no place where a process inside could look for it.
	for _, line := range []string{"cat /proc/1/environ", "cat /proc/1/cmdline", "cat /proc/1/fd/0"} {
		if out, _ := b.sh(t, "root", line); strings.Contains(out, "secret") {
			t.Errorf("%s shows %q", line, out)
		}
	}
}

func TestASandboxReachesNothing(t *testing.T) {
	d := newDriver(t, t.TempDir())
	// A server on the host's loopback, which no address from inside must reach.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	reached := make(chan string, 16)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			reached <- c.RemoteAddr().String()
			c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	b := create(t, d, newSpec(t))
	var targets []string
	for _, host := range []string{"127.0.0.1", "10.200.0.1", "10.200.0.3", "192.0.2.1", "169.254.169.254", "10.0.0.1", "::1", "::ffff:127.0.0.1", "fd00:ec2::254"} {
		targets = append(targets, "('"+host+"', "+port+")")
	}
	line := strings.NewReplacer("TARGETS", strings.Join(targets, ", "), "SEND", "b'x'").Replace(dialer)
	for _, got := range strings.Split(b.mustSh(t, "root", line), "\n") {
		if !strings.HasSuffix(got, "refused") {
			t.Errorf("from inside: %s", got)
		}
	}
	if out, exit := b.sh(t, "user", "getent hosts example.com"); exit.Code == 0 {
		t.Errorf("a name was resolved: %s", out)
	}
	select {
	case from := <-reached:
		t.Errorf("the host's loopback was reached, from %s", from)
	default:
	}
}

func TestLoopbackWorksInside(t *testing.T) {
	d := newDriver(t, t.TempDir())
	b := create(t, d, newSpec(t))
	for _, host := range []string{"127.0.0.1", "localhost", "::1", "10.200.0.2"} {
		b.mustSh(t, "user", `timeout 60 python3 - <<'E'
import socket, threading
host = "`+host+`"
s = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
threading.Thread(target=lambda: s.accept()[0].sendall(b"hello")).start()
assert socket.create_connection((host, s.getsockname()[1])).recv(5) == b"hello"
E`)
	}
}

func TestTwoSandboxesHaveOneAddressAndDoNotMeet(t *testing.T) {
	d := newDriver(t, t.TempDir())
	a, b := create(t, d, newSpec(t)), create(t, d, newSpec(t))
	a.mustSh(t, "user", "setsid python3 -m http.server 8000 >/dev/null 2>&1 & for i in $(seq 100); do (echo > /dev/tcp/10.200.0.2/8000) 2>/dev/null && exit; sleep 0.1; done; exit 1")
	if out, exit := b.sh(t, "user", "curl -sS -m 5 http://10.200.0.2:8000/"); exit.Code == 0 {
		t.Errorf("one sandbox reached the other: %s", out)
	}
}

// TestAWrongSecretOpensNothing dials as the gateway does, with a wrong secret.
func TestAWrongSecretOpensNothing(t *testing.T) {
	d := newDriver(t, t.TempDir())
	b := create(t, d, newSpec(t))
	for _, send := range []string{strings.Repeat("x", guestapi.PrefaceLen), "GET / HTTP/1.1\r\nHost: x\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n\r\n"} {
		c, err := d.DialRaw(t.Context(), b.ID())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(20 * time.Second))
		c.Write([]byte(send))
		if line, err := bufio.NewReader(c).ReadString('\n'); err == nil || line != "" {
			t.Errorf("a wrong preface was answered with %q, %v", line, err)
		}
		c.Close()
	}
	b.mustSh(t, "user", "true")
}
