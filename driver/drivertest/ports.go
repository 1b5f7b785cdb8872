package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// upperServer answers each connection, once it has been sent all or a NUL, with
// that in capital letters. It prints its port.
const upperServer = `
import socket, sys, threading
s = socket.create_server((sys.argv[1], 0))
print(s.getsockname()[1], flush=True)
def serve(c):
    got = b""
    while not got.endswith(b"\0"):
        part = c.recv(65536)
        if not part: break
        got += part
    c.sendall(got.rstrip(b"\0").upper())
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],)).start()
`

// serveUpper starts the server at an address and returns its port and process.
func serveUpper(t *testing.T, c *guestclient.Client, host string) (port uint16, process string) {
	t.Helper()
	process = background(t, c, sandbox.Command{Argv: []string{"python3", "-c", upperServer, host}})
	line, err := c.WaitLine(within(t), process, sandbox.LineWait{Regexp: "^[0-9]+$"})
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(line.Text, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(n), process
}

// askUpper sends a text, ends its side, and wants the answer whole. A connection
// through memory has no side of its own to end.
func askUpper(t *testing.T, conn net.Conn) {
	t.Helper()
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("from outside ", 50_000)
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(conn, text)
		if err == nil {
			err = errors.ErrUnsupported
			if half, ok := conn.(interface{ CloseWrite() error }); ok {
				err = half.CloseWrite()
			}
			if errors.Is(err, errors.ErrUnsupported) {
				_, err = conn.Write([]byte{0})
			}
		}
		sent <- err
	}()
	got, err := io.ReadAll(conn)
	if err := errors.Join(err, <-sent); err != nil || string(got) != strings.ToUpper(text) {
		t.Errorf("%d bytes came back of %d: %v", len(got), len(text), err)
	}
}

// testPorts: servers inside are listed, and reached from outside or through the
// guest, wherever they listen.
func testPorts(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	if all, err := c.Ports(within(t), true); err != nil || len(all) > 0 {
		t.Errorf("in a fresh machine %+v listens, %v", all, err)
	}
	if output(t, c, "command -v python3 || echo none") == "none\n" {
		t.Log("no python3 in the template: no server to reach")
		stop(t, m)
		return
	}
	open, _ := serveUpper(t, c, "0.0.0.0")
	local, process := serveUpper(t, c, "127.0.0.1")
	all, err := c.Ports(within(t), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{fmt.Sprint(open, " 0.0.0.0 python3"), fmt.Sprint(local, " 127.0.0.1 python3")} {
		if got := describePorts(all); !strings.Contains(got, want) {
			t.Errorf("%q is not among\n%s", want, got)
		}
	}
	for _, port := range []uint16{open, local} {
		conn, err := c.Tunnel(within(t), port)
		if err != nil {
			t.Fatal(err)
		}
		askUpper(t, conn)
	}
	testDirect(t, m, open)

	if _, err := c.Forget(within(t), process); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the port is closed", func() bool {
		all, err := c.Ports(within(t), false)
		return err == nil && !strings.Contains(describePorts(all), strconv.Itoa(int(local)))
	})
	if conn, err := c.Tunnel(within(t), local); !errors.Is(err, sandbox.ErrNotListening) {
		t.Errorf("a port that nobody listens on: %v %v", conn, err)
	}
	stop(t, m)
	_, err = c.Tunnel(within(t), open)
	wantKind(t, "a port of what has ended", err, sandbox.Unavailable)
}

// testDirect: of a machine that gives connections itself.
func testDirect(t *testing.T, m driver.Machine, open uint16) {
	direct, ok := m.(driver.Ports)
	if !ok {
		t.Log("this driver's ports are reached through the guest alone")
		return
	}
	conn, err := direct.DialPort(within(t), open)
	if err != nil {
		t.Fatal(err)
	}
	askUpper(t, conn)
	_, err = direct.DialPort(within(t), guestapi.Port)
	wantKind(t, "the guest's own port", err, sandbox.Forbidden)
	if _, err = direct.DialPort(within(t), 9); !errors.Is(err, sandbox.ErrNotListening) {
		t.Errorf("a port that nobody listens on: %v", err)
	}
	over, cancel := context.WithCancel(within(t))
	cancel()
	if _, err = direct.DialPort(over, open); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func describePorts(all []sandbox.Port) string {
	var b strings.Builder
	for _, p := range all {
		fmt.Fprintln(&b, p.Port, p.Address, p.Command)
	}
	return b.String()
}
