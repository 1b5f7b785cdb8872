package guestclient_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// carrying is a machine whose way past the link a test watches.
type carrying struct {
	driver.Machine
	dial func(context.Context) (net.Conn, error)
	out  int // ways that were not given back
	used bool
}

func (c *carrying) Dial(ctx context.Context) (net.Conn, error) { return c.dial(ctx) }
func (c *carrying) Carry() (driver.Carriage, bool)             { c.out++; return c, true }
func (c *carrying) Close() error                               { c.out--; return nil }
func (c *carrying) Fill(context.Context, int, io.Reader) (int64, error) {
	c.used = true
	return 0, errors.New("nothing is to be carried")
}
func (c *carrying) Drain(context.Context, int, int64, int64, io.Writer) (int64, error) {
	c.used = true
	return 0, errors.New("nothing is to be carried")
}

// TestHostileCarry: a guest that lends what cannot be carries nothing, and every way
// is given back.
func TestHostileCarry(t *testing.T) {
	for _, told := range []string{"", "x", "7", "7 0", "-1 0 10", "7 5 10", "7 0 0", "7 0 -1", "7 0 11", "99999999999 0 10", "7 0 99999999999999999999"} {
		m := &carrying{}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				w.Header().Set("Berth-Carry", strings.Repeat("9", 30))
				w.WriteHeader(http.StatusEarlyHints)
				io.Copy(io.Discard, r.Body)
			} else if told != "" {
				w.Header().Set("Berth-Carry", told)
			}
			w.Header().Set("Berth-File-Info", `{"path":"L3c=","type":"file"}`)
			io.WriteString(w, `{"path":"L3c=","type":"file"}`)
		})}
		go s.Serve(l)
		m.dial = func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
		}
		c := guestclient.Of(m)
		body, _, err := c.ReadFile(t.Context(), "/w", sandbox.ReadRange{Length: 10})
		if told == "" {
			do(t, err)
			do(t, body.Close())
		} else {
			wantKind(t, told, err, sandbox.Internal)
		}
		_, err = c.WriteFile(t.Context(), "/w", sandbox.WriteOptions{}, strings.NewReader(strings.Repeat("x", 1<<20)))
		do(t, err)
		if m.out != 0 || m.used {
			t.Errorf("%q: %d ways are out, used: %v", told, m.out, m.used)
		}
		c.Close()
		s.Close()
	}
}
