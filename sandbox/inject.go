package sandbox

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Bounds on what a policy says about hosts that are looked into.
const (
	MaxInjects      = 64   // rules with credentials, and as many with handlers
	MaxInjectFields = 16   // headers, parameters and body marks of one rule
	MaxInjectValue  = 4096 // bytes of one template
	MaxMatches      = 64   // methods, and as many paths, of one rule
	minBodyMark     = 8    // bytes
	maxBodyMark     = 128  // bytes
)

// SecretMark stands for the secret's value in the templates of an Inject.
const SecretMark = "${secret}"

// Inject has a credential added to what a sandbox sends to a host. The sandbox
// itself never holds it: the connection is ended at the gateway, and goes on from
// there over TLS that was verified for the same name. Nothing is ever added to
// what is not encrypted.
//
// In each template SecretMark stands for the value of Secret. Several rules may
// match one request: each adds its own.
type Inject struct {
	Host   string `json:"host"`   // "api.example.com", or "*.example.com": any name beneath it
	Secret string `json:"secret"` // its name
	Match

	Header map[string]string `json:"header,omitempty"` // replaces the client's own of that name
	Query  map[string]string `json:"query,omitempty"`  // replaces the client's own of that name
	Basic  *InjectBasic      `json:"basic,omitempty"`  // the header Authorization

	// Body has each occurrence of a key (8 to 128 bytes) in a request's body
	// replaced. A form's or a JSON document's body gets the value as these
	// write it.
	Body map[string]string `json:"body,omitempty"`

	// Mask has the secret replaced by asterisks wherever an answer repeats it.
	Mask bool `json:"mask,omitempty"`
}

// InjectBasic are the two parts of a basic credential, templates both.
type InjectBasic struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

// Handler has the requests to a host decided by a program outside the sandbox:
// forwarded, changed, answered or refused.
type Handler struct {
	Host string `json:"host"` // as in Inject
	Match

	// Name is a handler that the operator has set up. URL is one of the caller's
	// own, where the operator allows these. Exactly one is given.
	Name string `json:"name,omitempty"`
	URL  string `json:"url,omitempty"`

	// Secret names the secret that signs what is sent to URL; "": not signed. A
	// named handler's requests are signed with the operator's key.
	Secret string `json:"secret,omitempty"`

	Plain bool `json:"plain,omitempty"` // requests over http too, not https alone
}

// Match narrows a rule to some requests. Empty lists match all.
type Match struct {
	Methods []string `json:"methods,omitempty"` // "GET"
	Paths   []string `json:"paths,omitempty"`   // "/v1/models", "/repos/*/issues", "/v1/**": * is one segment, ** the rest
}

// Grant is a sandbox's right to a secret. Every sandbox has its own: one that is
// revoked leaves those of its parent, its forks and all others as they are.
type Grant struct {
	ID      string `json:"id"`
	Secret  string `json:"secret"`
	Revoked bool   `json:"revoked,omitempty"`
}

// Check reports an error of kind Invalid for the first thing that is wrong. That
// the secret is there is for others to check.
func (r *Inject) Check() error {
	if err := CheckHostPattern(r.Host); err != nil {
		return injectError(r.Host, err)
	}
	if err := CheckSecretName(r.Secret); err != nil {
		return injectError(r.Host, err)
	}
	if err := r.Match.check(); err != nil {
		return injectError(r.Host, err)
	}
	n := len(r.Header) + len(r.Query) + len(r.Body)
	if n > MaxInjectFields {
		return injectError(r.Host, fmt.Errorf("it adds %d fields, at most %d are taken", n, MaxInjectFields))
	}
	if n == 0 && r.Basic == nil {
		return injectError(r.Host, errors.New("it adds nothing: give header, query, basic or body"))
	}
	if err := r.checkFields(); err != nil {
		return injectError(r.Host, err)
	}
	return nil
}

func (r *Inject) checkFields() error {
	uses := false
	template := func(what, t string) error {
		uses = uses || strings.Contains(t, SecretMark)
		return checkTemplate(what, t)
	}
	for k, v := range r.Header {
		if err := errors.Join(checkHeaderName(k), template("header "+k, v)); err != nil {
			return err
		}
		if r.Basic != nil && strings.EqualFold(k, "Authorization") {
			return errors.New("basic and the header Authorization exclude each other")
		}
		if again(r.Header, k) {
			return fmt.Errorf("the header %s comes twice", k)
		}
	}
	for k, v := range r.Query {
		if k == "" || len(k) > 256 || hasControl(k) {
			return fmt.Errorf("%.80q cannot name a query's parameter", k)
		}
		if err := template("parameter "+k, v); err != nil {
			return err
		}
	}
	for k, v := range r.Body {
		if len(k) < minBodyMark || len(k) > maxBodyMark {
			return fmt.Errorf("the body's mark %.40q has %d bytes, %d to %d are taken", k, len(k), minBodyMark, maxBodyMark)
		}
		if err := template("body", v); err != nil {
			return err
		}
	}
	if r.Basic != nil {
		if strings.Contains(r.Basic.User, ":") {
			return errors.New("the user of basic holds a colon")
		}
		if err := errors.Join(template("user of basic", r.Basic.User), template("password of basic", r.Basic.Password)); err != nil {
			return err
		}
	}
	if !uses {
		return fmt.Errorf("none of its fields holds %s", SecretMark)
	}
	return nil
}

// again reports whether another key of m is k but for upper and lower case.
func again(m map[string]string, k string) bool {
	for o := range m {
		if o != k && strings.EqualFold(o, k) {
			return true
		}
	}
	return false
}

func injectError(host string, err error) error {
	return &Error{Op: fmt.Sprintf("check the inject rule of %.80q", host), Kind: Invalid, Err: err, Hint: HintOf(err)}
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (h *Handler) Check() error {
	err := CheckHostPattern(h.Host)
	if err == nil {
		err = h.Match.check()
	}
	if err == nil {
		err = h.checkTarget()
	}
	if err == nil && h.Secret != "" {
		err = CheckSecretName(h.Secret)
	}
	if err != nil {
		return &Error{Op: fmt.Sprintf("check the handler rule of %.80q", h.Host), Kind: Invalid, Err: err, Hint: HintOf(err)}
	}
	return nil
}

func (h *Handler) checkTarget() error {
	switch {
	case (h.Name == "") == (h.URL == ""):
		return errors.New("give one of name and url")
	case h.Name != "" && h.Secret != "":
		return errors.New("a named handler is signed with the operator's key: leave secret out")
	case h.Name != "":
		return CheckName(h.Name)
	case len(h.URL) > 2048 || !(strings.HasPrefix(h.URL, "https://") || strings.HasPrefix(h.URL, "http://")) || hasControl(h.URL):
		return fmt.Errorf("%.200q is not an http or https address", h.URL)
	}
	return nil
}

var (
	methodPattern = regexp.MustCompile(`^[A-Z]{1,32}$`)
	headerPattern = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")
	labelPattern  = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)
)

func (m *Match) check() error {
	if len(m.Methods) > MaxMatches || len(m.Paths) > MaxMatches {
		return fmt.Errorf("it has %d methods and %d paths, at most %d of each are taken", len(m.Methods), len(m.Paths), MaxMatches)
	}
	for _, v := range m.Methods {
		if !methodPattern.MatchString(v) {
			return fmt.Errorf("%.40q is not a method: these are capital letters", v)
		}
	}
	for _, p := range m.Paths {
		if !strings.HasPrefix(p, "/") || len(p) > 1024 || strings.ContainsAny(p, "?#%") || hasControl(p) {
			return fmt.Errorf("%.80q is not a path: it starts with / and has no query and no escapes", p)
		}
		if i := strings.Index(p, "**"); i >= 0 && i != len(p)-2 {
			return fmt.Errorf("%.80q has ** before its end", p)
		}
	}
	return nil
}

// Matches reports whether a request is one of those that m selects. path is the
// decoded path; one that holds "." or ".." as a segment, or an empty one before
// its end, is matched by no pattern.
func (m *Match) Matches(method, path string) bool {
	if len(m.Methods) > 0 && !slices.Contains(m.Methods, method) {
		return false
	}
	if len(m.Paths) == 0 {
		return true
	}
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		if s == "." || s == ".." || (s == "" && i < len(segments)-1) {
			return false
		}
	}
	return slices.ContainsFunc(m.Paths, func(p string) bool { return matchPath(strings.Split(p[1:], "/"), segments) })
}

// matchPath matches segments: "*" is any one, "**" at the end all that follow.
func matchPath(pattern, segments []string) bool {
	for i, p := range pattern {
		if i == len(pattern)-1 && p == "**" {
			return true
		}
		if i >= len(segments) || !matchSegment(p, segments[i]) {
			return false
		}
	}
	return len(pattern) == len(segments)
}

// matchSegment matches one segment, in which * stands for any characters.
func matchSegment(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	if !strings.HasPrefix(s, parts[0]) {
		return false
	}
	s = s[len(parts[0]):]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(s, p)
		if i < 0 {
			return false
		}
		s = s[i+len(p):]
	}
	return strings.HasSuffix(s, parts[len(parts)-1])
}

// CheckHostPattern reports an error unless s is a host's name, or such a name
// behind "*.". An address is no name, and neither is a name that is written in
// other than ASCII.
func CheckHostPattern(s string) error {
	name, _ := strings.CutPrefix(s, "*.")
	labels := strings.Split(name, ".")
	ok := len(name) <= 253 && len(labels) >= 2
	for _, l := range labels {
		ok = ok && labelPattern.MatchString(l)
	}
	if ok && strings.Trim(labels[len(labels)-1], "0123456789") != "" {
		return nil
	}
	return &Error{Op: "check host", Kind: Invalid, Err: fmt.Errorf("%.80q is not a host's name", s),
		Hint: "give a whole name in lower case, api.example.com, or *.example.com for all beneath it; names in other scripts as xn--…"}
}

// HostMatches reports whether a pattern that CheckHostPattern took selects a
// host, which is in lower case and has no dot at its end.
func HostMatches(pattern, host string) bool {
	if beneath, ok := strings.CutPrefix(pattern, "*"); ok {
		return len(host) > len(beneath) && strings.HasSuffix(host, beneath)
	}
	return pattern == host
}

// refusedHeaders would break a request's framing or its address, or are for one
// hop alone.
var refusedHeaders = []string{"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer",
	"keep-alive", "proxy-connection", "expect", "content-encoding"}

func checkHeaderName(k string) error {
	if !headerPattern.MatchString(k) {
		return fmt.Errorf("%.80q is not a header's name", k)
	}
	if slices.Contains(refusedHeaders, strings.ToLower(k)) {
		return fmt.Errorf("the header %s cannot be added", k)
	}
	return nil
}

func checkTemplate(what, t string) error {
	if len(t) > MaxInjectValue {
		return fmt.Errorf("%s has %d bytes, at most %d are taken", what, len(t), MaxInjectValue)
	}
	if hasControl(t) {
		return fmt.Errorf("%s holds a line break or another control character", what)
	}
	return nil
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}
