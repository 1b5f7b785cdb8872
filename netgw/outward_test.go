package netgw

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

func TestDialPublicReachesNoMoreThanASandbox(t *testing.T) {
	var dialled []string
	g, err := New(Config{Allow: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}, Dial: func(_ context.Context, _, address string) (net.Conn, error) {
		dialled = append(dialled, address)
		c, _ := net.Pipe()
		return c, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"127.0.0.1:80", "localhost:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "169.254.169.254:80", "10.8.0.1:443", "192.168.1.1:80", "[fd00:ec2::254]:80", "0.0.0.0:80"} {
		if _, err := g.DialPublic(t.Context(), "tcp", to); sandbox.KindOf(err) != sandbox.Forbidden {
			t.Errorf("%s: %v", to, err)
		}
	}
	for _, to := range []string{"10.9.0.1:443", "93.184.216.34:443"} {
		c, err := g.DialPublic(t.Context(), "tcp", to)
		if err != nil {
			t.Errorf("%s: %v", to, err)
			continue
		}
		c.Close()
	}
	if len(dialled) != 2 {
		t.Errorf("dialled %v", dialled)
	}
}
