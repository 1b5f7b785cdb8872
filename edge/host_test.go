package edge

import (
	"testing"
)

func TestHosts(t *testing.T) {
	const id = "abcdefghij0123456789"
	for host, want := range map[string]int{
		"8080-" + id + ".berth.test": 8080, "65535-" + id + ".berth.test": 65535, "1-" + id + ".berth.test": 1,
		"65536-" + id + ".berth.test": 0, "0-" + id + ".berth.test": 0, "08-" + id + ".berth.test": 0, "+8-" + id + ".berth.test": 0,
		"-" + id + ".berth.test": 0, "8080-" + id + ".other.test": 0, "8080-" + id + "x.berth.test": 0, "8080-" + id + ".a.berth.test": 0,
		"a.8080-" + id + ".berth.test": 0, "berth.test": 0, "api.berth.test": 0, "8080-" + id + "berth.test": 0, "": 0,
	} {
		got, port, ok := parseHost(host, "berth.test")
		if port != want && ok || ok != (want > 0) || ok && string(got) != id {
			t.Errorf("%q is %s %d %v", host, got, port, ok)
		}
	}
	for host, want := range map[string]string{"A.Example.": "a.example", "a.example:80": "a.example", "[::1]:80": "::1", "[::1]": "::1", "": ""} {
		if got := bareHost(host); got != want {
			t.Errorf("%q is %q", host, got)
		}
	}
}

// FuzzHost: what is read from a host makes that host again, and no other.
func FuzzHost(f *testing.F) {
	f.Add("8080-abcdefghij0123456789.berth.test")
	f.Add("Port-x.BERTH.test.:80")
	f.Fuzz(func(t *testing.T, host string) {
		bare := bareHost(host)
		if id, port, ok := parseHost(bare, "berth.test"); ok && Host(id, port, "berth.test") != bare {
			t.Errorf("%q is port %d of %s", host, port, id)
		}
	})
}

// FuzzQuery: of a query without the token nothing is left of the token, and all of
// the rest.
func FuzzQuery(f *testing.F) {
	f.Add("a=1&berth_token=x&b=2&&")
	f.Add("%62erth_token=x&berth_token")
	f.Fuzz(func(t *testing.T, query string) {
		once := withoutToken(query)
		if again := withoutToken(once); again != once || len(once) > len(query) {
			t.Errorf("%q, %q, %q", query, once, again)
		}
	})
}
