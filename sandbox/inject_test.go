package sandbox

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestInjectCheck(t *testing.T) {
	bearer := map[string]string{"Authorization": "Bearer ${secret}"}
	good := []Inject{
		{Host: "api.example.com", Secret: "k", Header: bearer},
		{Host: "*.example.com", Secret: "K_1", Query: map[string]string{"key": "${secret}"}},
		{Host: "xn--bcher-kva.example", Secret: "k", Basic: &InjectBasic{User: "x", Password: "${secret}"}},
		{Host: "a.b", Secret: "k", Body: map[string]string{"__TOKEN__": "${secret}"}, Mask: true},
		{Host: "a.b", Secret: "k", Header: map[string]string{"X": "${secret:a}:${secret}"}},
		{Host: "a.b", Basic: &InjectBasic{User: "${secret:u}", Password: "${secret:p}"}},
		{Host: "a.b", Handler: &Handler{Name: "audit"}},
		{Host: "*.a.b", Handler: &Handler{URL: "https://x.example/y", Secret: "k", Plain: true}},
		{Host: "a.b", Secret: "k", Header: bearer, Match: Match{Methods: []string{"GET"}, Paths: []string{"/v1/*", "/a/*/b"}}},
	}
	for _, r := range good {
		if err := r.Check(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	bad := map[string]Inject{
		"no host":          {Secret: "k", Header: bearer},
		"a label":          {Host: "localhost", Secret: "k", Header: bearer},
		"an address":       {Host: "10.0.0.1", Secret: "k", Header: bearer},
		"IPv6":             {Host: "[::1]", Secret: "k", Header: bearer},
		"look-alike":       {Host: "ехample.com", Secret: "k", Header: bearer},
		"upper case":       {Host: "API.example.com", Secret: "k", Header: bearer},
		"dot at the end":   {Host: "a.example.com.", Secret: "k", Header: bearer},
		"star within":      {Host: "a.*.com", Secret: "k", Header: bearer},
		"star alone":       {Host: "*", Secret: "k", Header: bearer},
		"no secret":        {Host: "a.b", Header: bearer},
		"nothing":          {Host: "a.b", Secret: "k"},
		"without the mark": {Host: "a.b", Secret: "k", Header: map[string]string{"X": "y"}},
		"others alone":     {Host: "a.b", Secret: "k", Header: map[string]string{"X": "${secret:a}"}},
		"not its own":      {Host: "a.b", Header: map[string]string{"X": "${secret:a}${secret}"}},
		"no name":          {Host: "a.b", Header: map[string]string{"X": "${secret:-}"}},
		"many secrets":     {Host: "a.b", Header: map[string]string{"X": manyMarks(MaxInjectSecrets + 1)}},
		"newline":          {Host: "a.b", Secret: "k", Header: map[string]string{"X": "${secret}\r\nY: z"}},
		"newline in name":  {Host: "a.b", Secret: "k", Header: map[string]string{"X\nY": "${secret}"}},
		"framing":          {Host: "a.b", Secret: "k", Header: map[string]string{"Content-Length": "${secret}"}},
		"address header":   {Host: "a.b", Secret: "k", Header: map[string]string{"host": "${secret}"}},
		"twice":            {Host: "a.b", Secret: "k", Header: map[string]string{"x-a": "${secret}", "X-A": "1"}},
		"two credentials":  {Host: "a.b", Secret: "k", Header: bearer, Basic: &InjectBasic{Password: "${secret}"}},
		"colon":            {Host: "a.b", Secret: "k", Basic: &InjectBasic{User: "a:b", Password: "${secret}"}},
		"short mark":       {Host: "a.b", Secret: "k", Body: map[string]string{"a": "${secret}"}},
		"long":             {Host: "a.b", Secret: "k", Header: map[string]string{"X": "${secret}" + strings.Repeat("x", MaxInjectValue)}},
		"method":           {Host: "a.b", Secret: "k", Header: bearer, Match: Match{Methods: []string{"get"}}},
		"path":             {Host: "a.b", Secret: "k", Header: bearer, Match: Match{Paths: []string{"v1"}}},
		"signed by name":   {Host: "a.b", Handler: &Handler{Name: "x", Secret: "k"}},
		"two targets":      {Host: "a.b", Handler: &Handler{Name: "x", URL: "https://x.example"}},
		"no target":        {Host: "a.b", Handler: &Handler{}},
		"a file":           {Host: "a.b", Handler: &Handler{URL: "file:///etc/passwd"}},
		"bad name":         {Host: "a.b", Handler: &Handler{Name: "../x"}},
		"unused secret":    {Host: "a.b", Secret: "k", Handler: &Handler{Name: "x"}},
	}
	for what, r := range bad {
		if err := r.Check(); KindOf(err) != Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func manyMarks(n int) (t string) {
	for i := range n {
		t += NamedMark("s" + strconv.Itoa(i))
	}
	return t
}

func TestFill(t *testing.T) {
	r := Inject{Host: "a.b", Secret: "k", Header: map[string]string{"X": "${secret:b}${secret}"}, Query: map[string]string{"q": "${secret:a.1}"},
		Basic: &InjectBasic{Password: "${secret:k}"}, Handler: &Handler{URL: "https://x.example", Secret: "h"}}
	if got := r.Secrets(); !slices.Equal(got, []string{"k", "a.1", "b", "h"}) {
		t.Errorf("it uses %q", got)
	}
	values := map[string]string{"k": "${secret:b}", "b": "B"} // what a value holds is no mark
	if got := r.Fill("${secret}-${secret:b}-${secret:none}-$secret-${secret", values); got != "${secret:b}-B-${secret:none}-$secret-${secret" {
		t.Errorf("filled: %q", got)
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"/v1/*", "/v1/a/b", true},
		{"/v1/*", "/v1/", true},
		{"/v1/*", "/v1", false},
		{"/v1/*", "/v10/a", false},
		{"/*", "/", true},
		{"/repos/*/issues", "/repos/x/issues", true},
		{"/repos/*/issues", "/repos/x/y/issues", true},
		{"/repos/*/issues", "/repos/x/y", false},
		{"/a*c", "/abc", true},
		{"/a*c", "/ab", false},
		{"/v1/*", "/v1/../admin", false},
		{"/v1/*", "/v1/%2e%2e/admin", false},
		{"/v1/*", "/v1/..%2fadmin", false},
		{"/v1/*", `/v1/..%5cadmin`, false},
		{"/v1/*", "/v1//admin", false},
		{"/v1/*", "/v1/%zz", false},
		{"/projects/*", "/projects/a%2Fb", true},
		{"/v1/*", "/v1%2Fx", false},
	} {
		m := Match{Paths: []string{c.pattern}}
		if got := m.Matches("GET", c.path); got != c.want {
			t.Errorf("%s matches %s: %v", c.pattern, c.path, got)
		}
	}
	m := Match{Methods: []string{"GET", "HEAD"}}
	if !m.Matches("GET", "/x") || m.Matches("POST", "/x") || m.Matches("get", "/x") {
		t.Error("methods")
	}
}
