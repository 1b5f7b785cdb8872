package sandbox_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

func TestPoliciesThatCannotBe(t *testing.T) {
	for want, doc := range map[string]string{
		"unexpected EOF":              `{"profile":"open"`,
		`unknown field "alow"`:        `{"profile":"open","alow":[]}`,
		`unknown field "port"`:        `{"profile":"open","deny":[{"port":"25"}]}`,
		"something follows":           `{"profile":"open"} {}`,
		`"" is no profile`:            `{}`,
		`"closed" is no profile`:      `{"profile":"closed"}`,
		"contradicts":                 `{"profile":"none","allow":[{"domains":["example.com"]}]}`,
		"names no destination":        `{"profile":"allow-list","allow":[{"ports":["443"]}]}`,
		"letters beyond ASCII":        `{"profile":"allow-list","allow":[{"domains":["exаmple.com"]}]}`,
		"has capitals":                `{"profile":"allow-list","allow":[{"domains":["Example.com"]}]}`,
		"is no domain":                `{"profile":"allow-list","allow":[{"domains":["https://example.com"]}]}`,
		"star in its midst":           `{"profile":"allow-list","allow":[{"domains":["api.*.com"]}]}`,
		"is an address":               `{"profile":"allow-list","allow":[{"domains":["93.184.216.34"]}]}`,
		"ends in a number":            `{"profile":"allow-list","allow":[{"domains":["0x7f.1"]}]}`,
		"bits beyond its length":      `{"profile":"allow-list","allow":[{"cidrs":["93.184.216.34/24"]}]}`,
		"no range of addresses":       `{"profile":"allow-list","allow":[{"cidrs":["93.184.216"]}]}`,
		"IPv4 address written":        `{"profile":"allow-list","allow":[{"cidrs":["::ffff:93.184.216.34"]}]}`,
		"is no port":                  `{"profile":"open","deny":[{"ports":["0"]}]}`,
		`"9-8" is no port`:            `{"profile":"open","deny":[{"ports":["9-8"]}]}`,
		`"icmp" is no protocol`:       `{"profile":"open","deny":[{"protocol":"icmp"}]}`,
		"need domains":                `{"profile":"open","deny":[{"cidrs":["93.184.216.34"],"methods":["POST"]}]}`,
		`"post" is no method`:         `{"profile":"open","deny":[{"domains":["example.com"],"methods":["post"]}]}`,
		"no pattern of paths":         `{"profile":"open","deny":[{"domains":["example.com"],"paths":["repos/*"]}]}`,
		"allow[0] can never apply":    `{"profile":"allow-list","allow":[{"domains":["a.example.com"]}],"deny":[{"domains":["*.example.com"]}]}`,
		"good can never apply":        `{"profile":"open","allow":[{"name":"good","cidrs":["93.184.216.0/24"]}],"deny":[{"cidrs":["93.184.0.0/16"]}]}`,
		"allow[1] says the same":      `{"profile":"allow-list","allow":[{"domains":["a.io","b.io"]},{"name":"again","domains":["b.io","a.io"]}]}`,
		"inject[0]":                   `{"profile":"open","inject":[{"host":"api.example.com"}]}`,
		"cannot unmarshal":            `{"profile":"open","allow":{}}`,
		"control characters":          `{"profile":"open","deny":[{"name":"a\nb","ports":["25"]}]}`,
		"longer than 253":             `{"profile":"allow-list","allow":[{"domains":["` + strings.Repeat("a.", 130) + `com"]}]}`,
		"contradicts its allow":       `{"profile":"none","allow":[{"cidrs":["93.184.216.0/24"]}]}`,
		"at most 262144 are taken":    `{"profile":"open"` + strings.Repeat(" ", 300<<10) + `}`,
		"allow[0] can never apply: d": `{"profile":"open","allow":[{"domains":["a.example.com"]}],"deny":[{"name":"d","ports":["1-65535"]},{"name":"d2","domains":["x.io"]},{"name":"d3"}]}`,
	} {
		_, err := sandbox.ParsePolicy([]byte(doc))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.120s\n  says %v, want %q", doc, err, want)
			continue
		}
		if sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%.120s is of kind %s", doc, sandbox.KindOf(err))
		}
	}
}

func TestPoliciesThatCanBe(t *testing.T) {
	for doc, overlaps := range map[string]int{
		`{"profile":"open"}`:                           0,
		`{"profile":"none","deny":[{"ports":["25"]}]}`: 0,
		`{"profile":"allow-list","allow":[{"domains":["example.com","*.example.com","xn--bcher-kva.example"],"ports":["443","8000-8999"]}]}`:                   0,
		`{"profile":"allow-list","allow":[{"domains":["*.example.com"]},{"domains":["a.example.com"],"ports":["443"]}]}`:                                       1,
		`{"profile":"allow-list","allow":[{"cidrs":["93.184.0.0/16","2606:4700::/32","1.1.1.1"],"protocol":"udp","ports":["123"]}],"deny":[{"ports":["25"]}]}`: 0,
		`{"profile":"open","allow":[{"domains":["a.io"],"methods":["GET"]}],"deny":[{"domains":["a.io"],"paths":["/admin/*"]}]}`:                               0,
		`{"profile":"allow-list","allow":[{"domains":["a.io"]},{"domains":["a.io"],"protocol":"udp"}]}`:                                                        0,
	} {
		p, err := sandbox.ParsePolicy([]byte(doc))
		if err != nil {
			t.Errorf("%s: %v", doc, err)
		}
		if got := p.Overlaps(); len(got) != overlaps {
			t.Errorf("%s: overlaps are %q, want %d", doc, got, overlaps)
		}
	}
}

func TestMatchDomain(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"example.com", "example.com", true},
		{"example.com", "www.example.com", false},
		{"example.com", "badexample.com", false},
		{"*.example.com", "www.example.com", true},
		{"*.example.com", "a.b.example.com", true},
		{"*.example.com", "example.com", false},
		{"*.example.com", "badexample.com", false},
		{"*.example.com", ".example.com", false},
	} {
		if got := sandbox.MatchDomain(c.pattern, c.name); got != c.want {
			t.Errorf("%s, %s: %v", c.pattern, c.name, got)
		}
	}
}

// FuzzParsePolicy wants what is taken to be written and read again as the same.
func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(`{"profile":"allow-list","allow":[{"domains":["*.example.com"],"ports":["443"]}],"deny":[{"cidrs":["10.0.0.0/8"]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := sandbox.ParsePolicy(b)
		if err != nil {
			return
		}
		p.Overlaps()
		out, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sandbox.ParsePolicy(out); err != nil {
			t.Errorf("%s is not taken again: %v", out, err)
		}
	})
}
