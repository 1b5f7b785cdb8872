package engine_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

func TestPublicAddresses(t *testing.T) {
	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "1.1.1.1": true,
		"127.0.0.1": false, "127.8.8.8": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false,
		"100.64.0.1": false, "0.0.0.0": false, "0.1.2.3": false, "224.0.0.1": false, "255.255.255.255": false, "240.0.0.1": false, "198.18.0.1": false,
		"::1": false, "::": false, "fe80::1": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false, "fec0::1": false,
		"::ffff:10.0.0.1": false, "::ffff:127.0.0.1": false, "::ffff:8.8.8.8": true, "::127.0.0.1": false,
		"64:ff9b::7f00:1": false, "64:ff9b:1::1": false, "2002:7f00:1::": false, "2001:0:7f00:1::": false,
	} {
		if got := engine.TakesWebhooks(netip.MustParseAddr(address), nil); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	allowed := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("::1/128")}
	for address, want := range map[string]bool{"10.1.2.3": true, "::ffff:10.1.2.3": true, "::1": true, "10.2.0.1": false, "127.0.0.1": false} {
		if got := engine.TakesWebhooks(netip.MustParseAddr(address), allowed); got != want {
			t.Errorf("%s, where some are allowed: %v", address, got)
		}
	}
}

// TestWebhooksStayOutside has a webhook sent to this machine, by its address and by
// a name that leads to it.
func TestWebhooksStayOutside(t *testing.T) {
	var got atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
	defer inside.Close()
	h := newHouse(t)
	byName := strings.Replace(inside.URL, "127.0.0.1", "localhost", 1)
	var hooks []sandbox.NewWebhook
	for _, url := range []string{inside.URL, byName} {
		w, err := h.CreateWebhook(operator(t), sandbox.WebhookRequest{URL: url, Events: []sandbox.ChangeType{"running"}})
		if err != nil {
			t.Fatal(err)
		}
		hooks = append(hooks, w)
	}
	h.create(t, sandbox.CreateRequest{})
	for _, w := range hooks {
		await(t, "a delivery to "+w.URL+" is refused", func() bool {
			one, err := h.Webhook(operator(t), w.ID)
			return err == nil && strings.Contains(one.LastError, "public addresses alone")
		})
	}
	if got.Load() != 0 {
		t.Errorf("%d deliveries came inside", got.Load())
	}
	h.SetWebhookRanges([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")})
	await(t, "both are delivered", func() bool { return got.Load() >= 2 })
}
