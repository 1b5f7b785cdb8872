package e2b

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/berth-dev/berth/sandbox"
)

// Bounds on the rules of a network, as these clients know them.
const (
	maxRuleDomains = 10
	maxRuleDomain  = 128 // bytes
	maxRuleHeaders = 20
	maxHeaderName  = 64   // bytes
	maxHeaderValue = 2048 // bytes
)

// hiddenValue is shown in the place of a header's value; sent back, it keeps the
// value that is there.
const hiddenValue = "******"

var (
	// secretMark stands for a secret's value in a header.
	secretMark = regexp.MustCompile(`\$\{e2b\.secrets\.([A-Za-z0-9][A-Za-z0-9._-]*)\}`)
	// identityMark stands for a token that this server does not issue.
	identityMark = regexp.MustCompile(`\$\{e2b\.identity\.[^}]*\}`)
	ruleDomain   = regexp.MustCompile(`^(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)
)

// inject is the rules of a network in the engine's words. Of the rules that match a
// host the one of the longest name counts alone, an exact one before all: so each
// leaves out the names of those that are closer.
func (n *network) inject() (out []sandbox.Inject, err error) {
	rules, err := n.checkedRules()
	if err != nil {
		return nil, err
	}
	domains := slices.Sorted(maps.Keys(rules))
	for _, domain := range domains {
		var except []string
		for _, other := range domains {
			if other != domain && sandbox.MatchDomain(domain, strings.TrimPrefix(other, "*.")) {
				except = append(except, other)
			}
		}
		own, err := injectHeaders(domain, rules[domain])
		if err != nil {
			return nil, err
		}
		for i := range own {
			own[i].Host, own[i].Except = domain, except
		}
		out = append(out, own...)
	}
	return out, nil
}

// injectHeaders sorts the headers of a domain into those that stand as they are and
// those that need secrets, by the first of these.
func injectHeaders(domain string, headers map[string]string) (out []sandbox.Inject, err error) {
	values := map[string]*sandbox.HeaderText{}
	bySecret := map[string]map[string]string{}
	for name, value := range headers {
		marks := secretMark.FindAllStringSubmatch(value, -1)
		switch {
		case identityMark.MatchString(value):
			return nil, unsupported(fmt.Sprintf("rules of %s, header %s: this server issues no workload identities", domain, name))
		case value == hiddenValue:
			values[name] = nil
		case len(marks) == 0:
			text := sandbox.HeaderText(value)
			values[name] = &text
		default:
			secret := marks[0][1]
			if bySecret[secret] == nil {
				bySecret[secret] = map[string]string{}
			}
			if bySecret[secret][name], err = secretTemplate(domain, name, value, marks); err != nil {
				return nil, err
			}
		}
	}
	if len(values) > 0 {
		out = append(out, sandbox.Inject{Values: values})
	}
	for _, secret := range slices.Sorted(maps.Keys(bySecret)) {
		out = append(out, sandbox.Inject{Secret: secret, Header: bySecret[secret]})
	}
	return out, nil
}

// secretTemplate is a value with the marks of secrets as the engine writes them.
func secretTemplate(domain, header, value string, marks [][]string) (string, error) {
	if strings.Contains(value, "${secret") { // it would be taken for a mark
		return "", unsupported(fmt.Sprintf("rules of %s, header %s: ${secret cannot stand beside a secret", domain, header))
	}
	for _, m := range marks {
		if sandbox.CheckSecretName(m[1]) != nil {
			return "", invalid(fmt.Sprintf("rules of %s: secret '%s' not found", domain, printable(m[1])))
		}
		mark := sandbox.SecretMark
		if m[1] != marks[0][1] {
			mark = sandbox.NamedMark(m[1])
		}
		value = strings.ReplaceAll(value, m[0], mark)
	}
	return value, nil
}

// checkedRules are the headers of each domain, in lower case.
func (n *network) checkedRules() (map[string]map[string]string, error) {
	if len(n.Rules) > maxRuleDomains {
		return nil, invalid(fmt.Sprintf("Network rules can have at most %d domains.", maxRuleDomains))
	}
	all := make(map[string]map[string]string, len(n.Rules))
	for _, domain := range slices.Sorted(maps.Keys(n.Rules)) {
		lower := strings.ToLower(domain)
		_, twice := all[lower]
		switch {
		case domain == "":
			return nil, invalid("Rule domain must not be empty.")
		case len(domain) > maxRuleDomain:
			return nil, invalid(fmt.Sprintf("Rule domain %q exceeds maximum length of %d characters.", printable(domain), maxRuleDomain))
		case !ruleDomain.MatchString(lower) || twice:
			return nil, invalid(fmt.Sprintf("Rule domain %q is not a valid domain name.", domain))
		case len(n.Rules[domain]) > 1:
			return nil, invalid(fmt.Sprintf("Domain %q can have at most 1 transform rule.", domain))
		}
		all[lower] = map[string]string{}
		for _, r := range n.Rules[domain] {
			if r == nil {
				continue
			}
			if err := checkHeaders(domain, r.Transform.Headers); err != nil {
				return nil, err
			}
			all[lower] = r.Transform.Headers
		}
	}
	return all, nil
}

// checkHeaders reports the first header, by name, that cannot be set. No value is in
// the error.
func checkHeaders(domain string, headers map[string]string) error {
	if len(headers) > maxRuleHeaders {
		return invalid(fmt.Sprintf("Domain %q can have at most %d headers per rule.", domain, maxRuleHeaders))
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value, key := headers[name], http.CanonicalHeaderKey(name)
		switch {
		case name == "":
			return invalid(fmt.Sprintf("Header name in rule for domain %q must not be empty.", domain))
		case !httpguts.ValidHeaderFieldName(name):
			return invalid(fmt.Sprintf("Header name %q in rule for domain %q must not contain CR or LF characters.", printable(name), domain))
		case len(name) > maxHeaderName:
			return invalid(fmt.Sprintf("Header name %q in rule for domain %q exceeds maximum length of %d characters.", printable(name), domain, maxHeaderName))
		case seen[key]:
			return invalid(fmt.Sprintf("Header name %q in rule for domain %q comes twice.", name, domain))
		case strings.ContainsAny(value, "\r\n"):
			return invalid(fmt.Sprintf("Value for header %q in rule for domain %q must not contain CR or LF characters.", name, domain))
		case len(value) > maxHeaderValue:
			return invalid(fmt.Sprintf("Value for header %q in rule for domain %q exceeds maximum length of %d characters.", name, domain, maxHeaderValue))
		}
		if err := sandbox.CheckInjectHeader(name); err != nil {
			return invalid(fmt.Sprintf("Header name %q in rule for domain %q: %v.", name, domain, err))
		}
		seen[key] = true
	}
	return nil
}

// haveSecrets refuses a policy that names a secret that is not there, which is no
// fault of the template or the sandbox.
func (d *Dialect) haveSecrets(ctx context.Context, p *sandbox.Policy) error {
	for i := range p.Inject {
		for _, name := range p.Inject[i].Secrets() {
			_, err := d.engine.Secret(ctx, name)
			if kind := sandbox.KindOf(err); kind == sandbox.NotFound || kind == sandbox.Invalid {
				return &fault{status: http.StatusBadRequest, text: fmt.Sprintf("rules of %s: secret '%s' not found", p.Inject[i].Host, printable(name)), err: err}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// rulesOf are the rules of a policy as these clients write them. Values are hidden.
func rulesOf(p *sandbox.Policy) map[string][]*rule {
	if p == nil {
		return nil
	}
	var all map[string][]*rule
	for i := range p.Inject {
		in := &p.Inject[i]
		if len(in.Header)+len(in.Values) == 0 {
			continue
		}
		if all == nil {
			all = map[string][]*rule{}
		}
		if all[in.Host] == nil {
			one := &rule{}
			one.Transform.Headers = map[string]string{}
			all[in.Host] = []*rule{one}
		}
		marks := map[string]string{}
		for _, secret := range in.TemplateSecrets() {
			marks[secret] = "${e2b.secrets." + secret + "}"
		}
		headers := all[in.Host][0].Transform.Headers
		for name, t := range in.Header {
			headers[name] = in.Fill(t, marks)
		}
		for name := range in.Values {
			headers[name] = hiddenValue
		}
	}
	return all
}
