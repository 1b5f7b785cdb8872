package publicip_test

import (
	"net/netip"
	"testing"

	"github.com/berth-dev/berth/publicip"
)

func TestAddresses(t *testing.T) {
	for _, a := range []string{"1.1.1.1", "8.8.8.8", "11.0.0.1", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0",
		"192.0.1.1", "192.167.255.255", "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700::1111", "2a00::1", "2001:4860:4860::8888"} {
		if why := publicip.Not(netip.MustParseAddr(a)); why != "" || !publicip.Is(netip.MustParseAddr(a)) {
			t.Errorf("%s: %s", a, why)
		}
	}
	for _, a := range []string{"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.255", "169.254.169.254", "172.16.0.1",
		"172.31.255.255", "192.0.0.170", "192.168.1.1", "198.18.0.1", "198.19.255.255", "203.0.113.5", "224.0.0.1", "239.1.1.1", "240.0.0.1",
		"255.255.255.255", "168.63.129.16", "::", "::1", "::ffff:8.8.8.8", "::8.8.8.8", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "fc00::1",
		"fd00:ec2::254", "fe80::1", "fe80::1%eth0", "2606:4700::1111%eth0", "fec0::1", "ff02::1", "2001::1", "2001:db8::1", "2002:808:808::1", "3fff::1", "4000::1"} {
		if publicip.Is(netip.MustParseAddr(a)) {
			t.Errorf("%s is public", a)
		}
	}
	if publicip.Is(netip.Addr{}) {
		t.Error("no address is public")
	}
}

func TestRanges(t *testing.T) {
	for n, want := range map[string]bool{
		"0.0.0.0/0": true, "8.0.0.0/7": true, "10.0.0.0/8": false, "10.1.0.0/16": false, "10.0.0.1/32": false, "8.8.8.8/32": true, "172.16.0.0/11": true,
		"::/0": true, "fc00::/7": false, "2000::/3": true, "2002::/16": false, "2001:db8:1::/48": false, "::ffff:0:0/96": false, "2a00::/16": true,
	} {
		if why := publicip.NotAny(netip.MustParsePrefix(n)); (why == "") != want {
			t.Errorf("%s: %q", n, why)
		}
	}
}
