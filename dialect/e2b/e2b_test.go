package e2b

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

func TestSignature(t *testing.T) {
	const token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"
	if got := signature(token, "hello.txt", "read", "user", 0); got != "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E" {
		t.Errorf("signature %s", got)
	}
	d := &Dialect{secret: []byte("secret of the server, of some length")}
	s := &sandbox.Sandbox{ID: "abcdefghij0123456789"}
	other := &sandbox.Sandbox{ID: "bbcdefghij0123456789"}
	now := time.Unix(1_000_000, 0)
	sign := func(s *sandbox.Sandbox, op string, expires int64) string {
		v := url.Values{"path": {"a b.txt"}, "signature": {signature(d.accessToken(s.ID), "a b.txt", op, "", expires)}}
		if expires != 0 {
			v.Set("signature_expiration", strconv.FormatInt(expires, 10))
		}
		return "/files?" + v.Encode()
	}
	for _, one := range []struct {
		name, method, url, token, want string
	}{
		{"none", "GET", "/files?path=x", "", "missing signature query parameter"},
		{"good", "GET", sign(s, "read", 0), "", ""},
		{"good for a while", "GET", sign(s, "read", 1_000_001), "", ""},
		{"over", "GET", sign(s, "read", 1_000_000), "", "signature is already expired"},
		{"of another operation", "POST", sign(s, "read", 0), "", "invalid signature"},
		{"of another sandbox", "GET", sign(other, "read", 0), "", "invalid signature"},
		{"with another end", "GET", sign(s, "read", 1_000_001) + "0", "", "invalid signature"},
		{"token", "GET", "/files?path=x", d.accessToken(s.ID), ""},
		{"token of another", "GET", sign(s, "read", 0), d.accessToken(other.ID), "invalid access token"},
	} {
		r := httptest.NewRequest(one.method, one.url, nil)
		r.Header.Set("X-Access-Token", one.token)
		err := d.checkFile(s, r, now)
		if (err == nil) != (one.want == "") || err != nil && err.Error() != one.want {
			t.Errorf("%s: %v, want %q", one.name, err, one.want)
		}
	}
}

func TestNetwork(t *testing.T) {
	no := false
	for name, one := range map[string]struct {
		in      network
		profile sandbox.Profile
		allow   sandbox.Rule
		deny    []string
		refused bool
	}{
		"nothing":                     {network{}, sandbox.ProfileOpen, sandbox.Rule{}, nil, false},
		"no internet":                 {network{AllowInternet: &no}, sandbox.ProfileNone, sandbox.Rule{}, nil, false},
		"everything denied":           {network{DenyOut: []string{everything}}, sandbox.ProfileNone, sandbox.Rule{}, nil, false},
		"a list":                      {network{DenyOut: []string{everything}, AllowOut: []string{"*.Example.com", "1.2.3.4"}}, sandbox.ProfileAllow, sandbox.Rule{Domains: []string{"*.example.com"}, CIDRs: []string{"1.2.3.4"}}, nil, false},
		"allow beats deny":            {network{DenyOut: []string{everything}, AllowOut: []string{everything}}, sandbox.ProfileOpen, sandbox.Rule{}, nil, false},
		"a hole in what is denied":    {network{DenyOut: []string{"8.8.8.0/30"}, AllowOut: []string{"8.8.8.1"}}, sandbox.ProfileOpen, sandbox.Rule{}, []string{"8.8.8.0/32", "8.8.8.2/31"}, false},
		"allow alone changes nothing": {network{AllowOut: []string{"1.1.1.1"}}, sandbox.ProfileOpen, sandbox.Rule{}, nil, false},
		"a name without a denial":     {network{AllowOut: []string{"example.com"}}, "", sandbox.Rule{}, nil, true},
		"a name that is denied":       {network{DenyOut: []string{"example.com"}}, "", sandbox.Rule{}, nil, true},
		"who may come":                {network{DenyIn: []string{"0.0.0.0/0:8000"}}, "", sandbox.Rule{}, nil, true},
	} {
		p, err := one.in.policy()
		if one.refused {
			if err == nil {
				t.Errorf("%s: %+v was taken", name, p)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := p.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var allow sandbox.Rule
		var deny []string
		if len(p.Allow) > 0 {
			allow = p.Allow[0]
		}
		if len(p.Deny) > 0 {
			deny = p.Deny[0].CIDRs
		}
		if p.Profile != one.profile || !slices.Equal(allow.Domains, one.allow.Domains) || !slices.Equal(allow.CIDRs, one.allow.CIDRs) || !slices.Equal(deny, one.deny) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestMetadataQuery(t *testing.T) {
	got, err := metadataQuery("a=b%2520c%2526d&e=f")
	if err != nil || len(got) != 2 || got["a"] != "b c&d" || got["e"] != "f" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := metadataQuery("a=%zz"); err == nil {
		t.Error("what is malformed was taken")
	}
}

func TestPages(t *testing.T) {
	var all []sandbox.Sandbox
	for i := range 5 {
		all = append(all, sandbox.Sandbox{ID: sandbox.NewID(), Created: time.Unix(int64(100-i), 0)})
	}
	q := listQuery{limit: 2}
	var seen []sandbox.ID
	for {
		page, next := q.page(all)
		for _, s := range page {
			seen = append(seen, s.ID)
		}
		if next == "" {
			break
		}
		got, err := parseList(url.Values{"limit": {"2"}, "nextToken": {next}})
		if err != nil {
			t.Fatal(err)
		}
		q = got
	}
	if len(seen) != 5 || seen[0] != all[0].ID || seen[4] != all[4].ID {
		t.Errorf("seen %v", seen)
	}
	for _, token := range []string{"nonsense", "%", base64.RawURLEncoding.EncodeToString([]byte("00000000000000000001-../../../../../../../..")), strings.Repeat("A", 4096)} {
		var f *fault
		if _, err := parseList(url.Values{"nextToken": {token}}); !errors.As(err, &f) || f.status != http.StatusBadRequest {
			t.Errorf("%.20s: %v", token, err)
		}
	}
}

func TestHosts(t *testing.T) {
	for host, want := range map[string]struct {
		port int
		id   string
		ok   bool
	}{
		"49983-abc1.sbx.test": {49983, "abc1", true},
		"80-abc.x":            {80, "abc", true},
		"abc.x":               {}, "0-abc.x": {}, "99999-abc.x": {}, "80-ABC.x": {}, "80-a-b.x": {}, "-abc.x": {},
	} {
		port, id, ok := splitHost(host)
		if ok != want.ok || ok && (port != want.port || id != want.id) {
			t.Errorf("%s: %d, %q, %v", host, port, id, ok)
		}
	}
}

func TestBuildIDs(t *testing.T) {
	id := newBuildID(4, 2048)
	if !uuidPattern.MatchString(id) {
		t.Fatalf("%s is no UUID", id)
	}
	if l := sizeOf(id); l.CPUMilli != 4000 || l.MemoryBytes != 2048<<20 {
		t.Errorf("%+v", l)
	}
	if l := sizeOf(newBuildID(0, 0)); l != (sandbox.Limits{}) {
		t.Errorf("of none: %+v", l)
	}
}

func TestPlanned(t *testing.T) {
	var p planned
	p.add("first", []string{"default"})
	for i := range maxPlanned {
		p.add(strconv.Itoa(i), []string{"v1", "v2"})
	}
	if _, ok := p.tags("first"); ok {
		t.Error("the oldest is still known")
	}
	if tags, ok := p.tags("0"); !ok || len(tags) != 2 || len(p.all) != maxPlanned || len(p.old) != maxPlanned {
		t.Errorf("%v, %v of %d", tags, ok, len(p.all))
	}
}

func TestPaths(t *testing.T) {
	for _, one := range []struct{ user, in, want string }{
		{"", "", "/home/user"}, {"", "a/b", "/home/user/a/b"}, {"root", "a", "/root/a"}, {"", "~", "/home/user"},
		{"", "~/x", "/home/user/x"}, {"", "/etc/../tmp", "/tmp"}, {"", "../../../../etc", "/etc"}, {"root", "~/x/./y", "/root/x/y"},
	} {
		if got := (&target{user: one.user}).path(one.in); got != one.want {
			t.Errorf("%q of %q: %s, want %s", one.in, one.user, got, one.want)
		}
	}
}

// FuzzSigned: what a query claims is read without fail, and proves nothing.
func FuzzSigned(f *testing.F) {
	f.Add("path=a&signature=v1_x&signature_expiration=1")
	f.Add("signature_expiration=99999999999999999999")
	f.Fuzz(func(t *testing.T, query string) {
		v, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		if signedOf(http.MethodGet, v).by("a token that nobody has") {
			t.Error("it was believed")
		}
	})
}
