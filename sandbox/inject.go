package sandbox

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Bounds on what a policy says about hosts that are looked into.
const (
	MaxInjects      = 64   // rules of a policy
	MaxInjectFields = 32   // headers, values, parameters and body marks of one rule
	MaxExcepts      = 64   // hosts that one rule leaves out
	MaxInjectValue  = 4096 // bytes of one template
	MaxMatches      = 64   // methods, and as many paths, of one rule
	minBodyMark     = 8    // bytes
	maxBodyMark     = 128  // bytes
)

// SecretMark stands for the secret's value in the templates of an Inject.
const SecretMark = "${secret}"

// Inject acts on the requests that a sandbox sends to a host: it adds a
// credential, asks a handler, or both, the handler first. The sandbox itself never
// holds the credential: the connection is ended at the gateway, and goes on from
// there over TLS that was verified for the same name. Nothing is ever added to
// what is not encrypted.
//
// In each template SecretMark stands for the value of Secret, and NamedMark for that
// of another. Several rules may match one request: each adds its own, and of two that
// set one field the first counts.
type Inject struct {
	Host   string   `json:"host"`             // "api.example.com", or "*.example.com": any name beneath it
	Except []string `json:"except,omitempty"` // hosts beneath it that the rule is not about
	Secret string   `json:"secret,omitempty"` // its name; "" if no template has SecretMark
	Match

	Header map[string]string `json:"header,omitempty"` // replaces the client's own of that name
	Query  map[string]string `json:"query,omitempty"`  // replaces the client's own of that name
	Basic  *InjectBasic      `json:"basic,omitempty"`  // the header Authorization

	// Values are headers as they stand, which replace the client's own of that name.
	// They need no secret: each is this sandbox's own, is sealed apart from the
	// policy, and goes with the sandbox. Who reads the policy sees nil for each; who
	// sets it keeps by nil what the rule of the same host and Match has.
	Values map[string]*HeaderText `json:"values,omitempty"`

	// Body has each occurrence of a key (8 to 128 bytes) in a request's body
	// replaced. A form's or a JSON document's body gets the value as these
	// write it.
	Body map[string]string `json:"body,omitempty"`

	// Mask has the secret replaced by asterisks wherever an answer of the host
	// repeats it.
	Mask bool `json:"mask,omitempty"`

	Handler *Handler `json:"handler,omitempty"`
}

// InjectBasic are the two parts of a basic credential, templates both.
type InjectBasic struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

// Handler has requests decided by a program outside the sandbox: forwarded,
// changed, answered or refused.
type Handler struct {
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
	Paths   []string `json:"paths,omitempty"`   // "/v1/models", "/repos/*": a star stands for anything, slashes too
}

// Grant is a sandbox's right to a secret. Every sandbox has its own: one that is
// revoked leaves those of its parent, its forks and all others as they are.
type Grant struct {
	ID      string `json:"id"`
	Secret  string `json:"secret"`
	Revoked bool   `json:"revoked,omitempty"`
}

// Secrets are the names of the secrets that the rule uses.
func (r *Inject) Secrets() []string {
	names := r.TemplateSecrets()
	if r.Handler != nil && r.Handler.Secret != "" {
		names = append(names, r.Handler.Secret)
	}
	return names
}

// Check reports an error of kind Invalid for the first thing that is wrong. That
// the secret is there is for others to check.
func (r *Inject) Check() error {
	err := r.checkHosts()
	if err == nil {
		err = r.Match.check()
	}
	if err == nil && r.Handler != nil {
		err = r.Handler.check()
	}
	if err == nil {
		err = r.checkCredential()
	}
	if err != nil {
		return &Error{Op: fmt.Sprintf("check the inject rule of %.80q", r.Host), Kind: Invalid, Err: err, Hint: HintOf(err)}
	}
	return nil
}

func (r *Inject) checkCredential() error {
	templates, values := len(r.Header)+len(r.Query)+len(r.Body), len(r.Values)
	bare := templates == 0 && r.Basic == nil
	switch {
	case templates+values > MaxInjectFields:
		return fmt.Errorf("it adds %d fields, at most %d are taken", templates+values, MaxInjectFields)
	case bare && values == 0 && r.Handler == nil:
		return errors.New("it does nothing: give header, values, query, basic, body or handler")
	case bare && (r.Secret != "" || values == 0 && r.Mask):
		return errors.New("it names a secret and adds nothing: give header, query, basic or body")
	}
	if err := r.checkValues(); err != nil || bare {
		return err
	}
	secrets := r.TemplateSecrets()
	if n := len(secrets); n > MaxInjectSecrets {
		return fmt.Errorf("its templates use %d secrets, at most %d are taken", n, MaxInjectSecrets)
	}
	if r.Secret != "" || len(secrets) == 0 {
		if err := CheckSecretName(r.Secret); err != nil {
			return err
		}
	}
	return r.checkFields()
}

func (r *Inject) checkFields() error {
	uses := false
	template := func(what, t string) error {
		uses = uses || strings.Contains(t, SecretMark)
		return checkTemplate(what, t)
	}
	for k, v := range r.Header {
		if err := errors.Join(CheckInjectHeader(k), template("header "+k, v)); err != nil {
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
		if strings.Contains(anyMark.ReplaceAllString(r.Basic.User, ""), ":") {
			return errors.New("the user of basic holds a colon")
		}
		if err := errors.Join(template("user of basic", r.Basic.User), template("password of basic", r.Basic.Password)); err != nil {
			return err
		}
	}
	switch {
	case r.Secret != "" && !uses:
		return fmt.Errorf("none of its fields holds %s", SecretMark)
	case r.Secret == "" && uses:
		return fmt.Errorf("a template holds %s, and the rule names no secret", SecretMark)
	}
	return nil
}

// again reports whether another key of m is k but for upper and lower case.
func again[V any](m map[string]V, k string) bool {
	for o := range m {
		if o != k && strings.EqualFold(o, k) {
			return true
		}
	}
	return false
}

func (h *Handler) check() error {
	switch {
	case (h.Name == "") == (h.URL == ""):
		return errors.New("give one of name and url")
	case h.Name != "" && h.Secret != "":
		return errors.New("a named handler is signed with the operator's key: leave secret out")
	case h.Name != "":
		return CheckName(h.Name)
	case len(h.URL) > 2048 || !(strings.HasPrefix(h.URL, "https://") || strings.HasPrefix(h.URL, "http://")) || hasControl(h.URL):
		return fmt.Errorf("%.200q is not an http or https address", h.URL)
	case h.Secret != "":
		return CheckSecretName(h.Secret)
	}
	return nil
}

var headerPattern = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")

func (m *Match) check() error {
	if len(m.Methods) > MaxMatches || len(m.Paths) > MaxMatches {
		return fmt.Errorf("it has %d methods and %d paths, at most %d of each are taken", len(m.Methods), len(m.Paths), MaxMatches)
	}
	return (&Rule{Methods: m.Methods, Paths: m.Paths}).checkRequests()
}

// Matches reports whether a request is one of those that m selects. path is the
// path as it was sent, escapes and all. No pattern matches one whose meaning
// depends on who reads it: with "." or ".." as a segment, or an empty one before
// the end.
func (m *Match) Matches(method, path string) bool {
	if len(m.Methods) > 0 && !slices.Contains(m.Methods, method) {
		return false
	}
	if len(m.Paths) == 0 {
		return true
	}
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		plain, err := url.PathUnescape(s)
		if err != nil || (plain == "" && i < len(segments)-1) || hasDots(plain) || hasControl(plain) {
			return false
		}
		segments[i] = strings.ReplaceAll(plain, "/", "%2F") // not a slash of the path
	}
	plain := "/" + strings.Join(segments, "/")
	return slices.ContainsFunc(m.Paths, func(p string) bool { return matchStars(p, plain) })
}

// hasDots reports whether a segment would lead elsewhere for a reader that takes
// its escaped slashes, or its backslashes, for slashes.
func hasDots(segment string) bool {
	for _, s := range strings.FieldsFunc(segment, func(r rune) bool { return r == '/' || r == '\\' }) {
		if s == "." || s == ".." {
			return true
		}
	}
	return false
}

// matchStars matches a whole text; * stands for any characters.
func matchStars(pattern, s string) bool {
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

// refusedHeaders would break a request's framing or its address, or are for one
// hop alone.
var refusedHeaders = []string{"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer",
	"keep-alive", "proxy-connection", "expect", "content-encoding"}

// CheckInjectHeader reports an error unless a header of that name may be set.
func CheckInjectHeader(k string) error {
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

// CheckMethod reports an error unless s can be a request's method.
func CheckMethod(s string) error { return (&Rule{Methods: []string{s}}).checkRequests() }
