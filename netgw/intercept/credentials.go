package intercept

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// maxWholeBody is up to which length a body whose marks are replaced is held, so
// that its new length can be told; a longer one goes out in chunks.
const maxWholeBody = 1 << 20

// credentials is what one request gets, and what its answer must not repeat. Its
// values live no longer than the request.
type credentials struct {
	header map[string]string
	query  map[string]string
	body   []mark
	mask   mask
}

// mark is a text in a body and what takes its place.
type mark struct{ key, value string }

// credentials opens what the rules of the flow's host add to this request. It is
// nothing over plain text. A policy that has changed since the request began, and
// whose values are other ones, counts from here on.
func (r *request) credentials() (*credentials, *refusal) {
	c, no := r.open()
	if now := r.s.flow.Policy(); no != nil && now.ValueSet != r.policy.ValueSet {
		r.policy, r.own = now, nil
		return r.open()
	}
	return c, no
}

func (r *request) open() (*credentials, *refusal) {
	c := &credentials{header: map[string]string{}, query: map[string]string{}}
	if !r.s.flow.TLS {
		return c, nil
	}
	var values map[string]string // read when the first rule needs them
	for _, rule := range r.rules() {
		adds := rule.Matches(r.in.Method, r.in.URL.EscapedPath())
		if !adds && !rule.Mask {
			continue
		}
		if len(rule.TemplateSecrets()) > 0 {
			if no := r.use(rule, adds, c); no != nil {
				return nil, no
			}
		}
		if len(rule.Values) > 0 && values == nil {
			var err error
			if values, err = r.s.p.values.Open(r.in.Context(), r.s.flow.Sandbox, r.policy.ValueSet); err != nil {
				return nil, &refusal{http.StatusBadGateway, fmt.Sprintf("the values of the policy: %v", err)}
			}
		}
		if no := r.set(rule, values, adds, c); no != nil {
			return nil, no
		}
	}
	return c, nil
}

// set adds the values of one rule.
func (r *request) set(rule *sandbox.Inject, values map[string]string, adds bool, c *credentials) *refusal {
	for _, header := range slices.Sorted(maps.Keys(rule.Values)) {
		v, ok := values[rule.ValueKey(header)]
		if !ok {
			return &refusal{http.StatusBadGateway, fmt.Sprintf("the value of the header %s is not there", header)}
		}
		if rule.Mask {
			if err := c.mask.hide(sandbox.SecretValue(v)); err != nil {
				return &refusal{http.StatusBadGateway, fmt.Sprintf("the value of the header %s: %v", header, err)}
			}
		}
		if adds {
			r.own = append(r.own, header)
			setFirst(c.header, http.CanonicalHeaderKey(header), v)
		}
	}
	return nil
}

// use opens the secrets of one rule, and adds what it says of them.
func (r *request) use(rule *sandbox.Inject, adds bool, c *credentials) *refusal {
	values := map[string]string{}
	for _, name := range rule.TemplateSecrets() {
		if no := r.unseal(rule, name, adds, c, values); no != nil {
			return no
		}
	}
	if !adds {
		return nil
	}
	if err := c.add(rule, values); err != nil {
		return &refusal{http.StatusBadGateway, err.Error()}
	}
	return nil
}

// unseal opens one secret of a rule. What a grant does not cover is not opened; a
// request that needs it does not pass.
func (r *request) unseal(rule *sandbox.Inject, name string, adds bool, c *credentials, values map[string]string) *refusal {
	ctx, f := r.in.Context(), r.s.flow
	if err := r.s.p.grants.Granted(ctx, f.Sandbox, name); err != nil {
		if !adds {
			return nil
		}
		return &refusal{http.StatusForbidden, fmt.Sprintf("the secret %q: %v", name, err)}
	}
	if adds {
		r.mu.Lock() // before it is opened: who revokes it must find this request
		r.secrets = append(r.secrets, name)
		r.mu.Unlock()
		if err := r.s.p.grants.Granted(ctx, f.Sandbox, name); err != nil {
			return &refusal{http.StatusForbidden, fmt.Sprintf("the secret %q: %v", name, err)}
		}
	}
	err := r.s.p.secrets.Use(ctx, f.Account, name, func(v sandbox.SecretValue) error {
		if rule.Mask {
			if err := c.mask.hide(v); err != nil {
				return err
			}
		}
		if adds {
			values[name] = string([]byte(v))
		}
		return nil
	})
	if err != nil {
		return &refusal{http.StatusBadGateway, fmt.Sprintf("the secret %q: %v", name, err)}
	}
	return nil
}

// add renders a rule's templates. Of two rules that set one field the first
// counts.
func (c *credentials) add(rule *sandbox.Inject, values map[string]string) error {
	render := func(t string) string { return rule.Fill(t, values) }
	for k, t := range rule.Header {
		v := render(t)
		if strings.ContainsFunc(v, func(r rune) bool { return (r < ' ' && r != '\t') || r == 0x7f }) {
			return fmt.Errorf("the header %s: a secret's value has a line break or another control character, and cannot be in a header", k)
		}
		setFirst(c.header, http.CanonicalHeaderKey(k), v)
	}
	if rule.Basic != nil {
		both := render(rule.Basic.User) + ":" + render(rule.Basic.Password)
		setFirst(c.header, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(both)))
	}
	for k, t := range rule.Query {
		setFirst(c.query, k, render(t))
	}
	for k, t := range rule.Body {
		c.body = append(c.body, mark{k, render(t)})
	}
	return nil
}

func setFirst(m map[string]string, k, v string) {
	if _, there := m[k]; !there {
		m[k] = v
	}
}

// apply changes the request that goes out.
func (c *credentials) apply(out *http.Request) {
	for k, v := range c.header {
		out.Header[k] = []string{v}
	}
	if len(c.query) > 0 {
		out.URL.RawQuery = replaceQuery(out.URL.RawQuery, c.query)
	}
	if len(c.body) > 0 && out.Body != nil && out.Body != http.NoBody {
		c.applyBody(out)
	}
	if c.mask.on() {
		c.mask.ask(out)
	}
}

// replaceQuery sets parameters and leaves the others as they were written.
func replaceQuery(raw string, set map[string]string) string {
	var kept []string
	for part := range strings.SplitSeq(raw, "&") {
		k, _, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(k)
		if _, ours := set[name]; part == "" || (err == nil && ours) {
			continue
		}
		kept = append(kept, part)
	}
	for k, v := range set {
		kept = append(kept, url.QueryEscape(k)+"="+url.QueryEscape(v))
	}
	return strings.Join(kept, "&")
}

// applyBody replaces the marks in a body that is not compressed.
func (c *credentials) applyBody(out *http.Request) {
	if e := out.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return
	}
	write := bodyWriting(out.Header.Get("Content-Type"))
	rp := &replacer{}
	for _, m := range c.body {
		rp.add([]byte(m.key), []byte(write(m.value)))
	}
	body := out.Body
	if out.ContentLength < 0 || out.ContentLength > maxWholeBody {
		out.Body = &replaced{r: rp.reader(body), Closer: body}
		out.ContentLength = -1
		out.Header.Del("Content-Length")
		return
	}
	whole, err := io.ReadAll(rp.reader(body))
	if err != nil {
		out.Body = &broken{err: err, Closer: body}
		return
	}
	out.Body = &replaced{r: bytes.NewReader(whole), Closer: body}
	out.ContentLength = int64(len(whole))
	out.Header.Del("Content-Length")
}

// bodyWriting is how a type of body writes a text.
func bodyWriting(contentType string) func(string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case err == nil && kind == "application/x-www-form-urlencoded":
		return url.QueryEscape
	case err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json")):
		return func(s string) string {
			b, err := json.Marshal(s)
			if err != nil {
				return s // a string always can
			}
			return string(b[1 : len(b)-1])
		}
	}
	return func(s string) string { return s }
}

// replaced is a body with another reader.
type replaced struct {
	r io.Reader
	io.Closer
}

func (b *replaced) Read(p []byte) (int, error) { return b.r.Read(p) }

// broken is a body that could not be read.
type broken struct {
	err error
	io.Closer
}

func (b *broken) Read([]byte) (int, error) { return 0, b.err }
