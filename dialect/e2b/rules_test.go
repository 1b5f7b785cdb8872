package e2b

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

func parsed(t *testing.T, doc string) *network {
	t.Helper()
	n := &network{}
	if err := json.Unmarshal([]byte(doc), n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRules(t *testing.T) {
	p, err := parsed(t, `{"denyOut":["0.0.0.0/0"],"rules":{
		"*.example.com":[{"transform":{"headers":{"X-Far":"far"}}}],
		"*.dev.Example.com":[],
		"API.example.com":[{"transform":{"headers":{"X-Key":"k-123","X-Sum":"${other} $x","Authorization":"Bearer ${e2b.secrets.tok-1}","X-Same":"${e2b.secrets.tok-1}","X-Both":"${e2b.secrets.tok-1}:${e2b.secrets.b}:${e2b.secrets.tok-1}"}}}],
		"*.com":[{}]}}`).policy()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	if p.Profile != sandbox.ProfileAllow || len(p.Allow) != 0 || len(p.Inject) != 3 {
		t.Fatalf("%+v", p)
	}
	far, values, secret := &p.Inject[0], &p.Inject[1], &p.Inject[2]
	if far.Host != "*.example.com" || !slices.Equal(far.Except, []string{"*.dev.example.com", "api.example.com"}) || *far.Values["X-Far"] != "far" {
		t.Errorf("%+v", far)
	}
	if values.Host != "api.example.com" || len(values.Except) != 0 || len(values.Values) != 2 || *values.Values["X-Key"] != "k-123" || *values.Values["X-Sum"] != "${other} $x" {
		t.Errorf("%+v", values)
	}
	if secret.Secret != "tok-1" || !reflect.DeepEqual(secret.Header, map[string]string{"Authorization": "Bearer ${secret}", "X-Same": "${secret}", "X-Both": "${secret}:${secret:b}:${secret}"}) {
		t.Errorf("%+v", secret)
	}
	for host, want := range map[string]int{"api.example.com": 2, "www.example.com": 1, "a.api.example.com": 1, "x.dev.example.com": 0, "example.com": 0} {
		got := 0
		for i := range p.Inject {
			if p.Inject[i].MatchesHost(host) {
				got++
			}
		}
		if got != want {
			t.Errorf("%s: %d rules, want %d", host, got, want)
		}
	}
	// What is shown can be sent back: hidden values stay as they are.
	bare, _ := p.Detach()
	shown := rulesOf(bare)
	want := map[string]string{"X-Key": hiddenValue, "X-Sum": hiddenValue, "Authorization": "Bearer ${e2b.secrets.tok-1}", "X-Same": "${e2b.secrets.tok-1}",
		"X-Both": "${e2b.secrets.tok-1}:${e2b.secrets.b}:${e2b.secrets.tok-1}"}
	if len(shown) != 2 || !reflect.DeepEqual(shown["api.example.com"][0].Transform.Headers, want) {
		b, _ := json.Marshal(shown)
		t.Errorf("%s", b)
	}
	again, err := (&network{Rules: shown}).policy()
	if err != nil || again.Inject[1].Values["X-Key"] != nil || again.Inject[1].ValueKey("X-Key") != values.ValueKey("X-Key") {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestRulesThatAreRefused(t *testing.T) {
	one := func(host, name, value string) string {
		b, _ := json.Marshal(map[string]any{"rules": map[string]any{host: []any{map[string]any{"transform": map[string]any{"headers": map[string]string{name: value}}}}}})
		return string(b)
	}
	many := map[string][]string{}
	for i := range 11 {
		many["h"+strconv.Itoa(i)+".example.com"] = []string{}
	}
	domains, _ := json.Marshal(map[string]any{"rules": many})
	headers := map[string]string{}
	for i := range 21 {
		headers["X-"+strconv.Itoa(i)] = "v"
	}
	crowd, _ := json.Marshal(map[string]any{"rules": map[string]any{"a.b": []any{map[string]any{"transform": map[string]any{"headers": headers}}}}})
	long := strings.Repeat("a", 120)
	for doc, want := range map[string]string{
		string(domains):                                                   "Network rules can have at most 10 domains.",
		one("", "X", "v"):                                                 "Rule domain must not be empty.",
		one("*", "X", "v"):                                                `Rule domain "*" is not a valid domain name.`,
		one("a.*.com", "X", "v"):                                          `Rule domain "a.*.com" is not a valid domain name.`,
		one("a b.com", "X", "v"):                                          `Rule domain "a b.com" is not a valid domain name.`,
		one(long+".aaaaaaaa", "X", "v"):                                   "exceeds maximum length of 128 characters.",
		`{"rules":{"a.b":[{},{}]}}`:                                       `Domain "a.b" can have at most 1 transform rule.`,
		string(crowd):                                                     `Domain "a.b" can have at most 20 headers per rule.`,
		one("a.b", "", "hush"):                                            `Header name in rule for domain "a.b" must not be empty.`,
		one("a.b", "X\nY", "hush"):                                        "must not contain CR or LF characters.",
		one("a.b", "X-"+long, "hush"):                                     "exceeds maximum length of 64 characters.",
		one("a.b", "X", "hush\r\nY: z"):                                   `Value for header "X" in rule for domain "a.b" must not contain CR or LF characters.`,
		one("a.b", "X", long+string(make([]byte, 2048))):                  `Value for header "X" in rule for domain "a.b" exceeds maximum length of 2048 characters.`,
		one("a.b", "Host", "hush"):                                        "the header Host cannot be added",
		one("a.b", "X", "${e2b.secrets.a} ${secret} hush"):                "${secret cannot stand beside a secret",
		one("a.b", "X", "${e2b.secrets.a} ${secret:b} hush"):              "${secret cannot stand beside a secret",
		one("a.b", "X", "${e2b.identity.tokens.aws}"):                     "no workload identities",
		one("a.b", "X", "${e2b.secrets.a}${e2b.secrets."+long+"} hush"):   "' not found",
		`{"rules":{"A.b":[],"a.B":[]}}`:                                   "is not a valid domain name.",
		`{"rules":{"a.b":[{"transform":{"headers":{"x":"1","X":"2"}}}]}}`: "comes twice",
	} {
		_, err := parsed(t, doc).policy()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%.90s\n  says %v, want %q", doc, err, want)
		}
	}
}
