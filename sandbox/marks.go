package sandbox

import (
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// MaxInjectSecrets is how many secrets the templates of one rule may use.
const MaxInjectSecrets = 16

// anyMark is SecretMark, or what NamedMark makes.
var anyMark = regexp.MustCompile(`\$\{secret(?::([A-Za-z0-9][A-Za-z0-9._-]{0,62}))?\}`)

// NamedMark stands in the templates of an Inject for the value of the secret that it
// names, beside SecretMark for that of the rule's own.
func NamedMark(secret string) string { return "${secret:" + secret + "}" }

// templates are those of the rule, in no order.
func (r *Inject) templates() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, m := range []map[string]string{r.Header, r.Query, r.Body} {
			for _, t := range m {
				if !yield(t) {
					return
				}
			}
		}
		if r.Basic != nil && yield(r.Basic.User) {
			yield(r.Basic.Password)
		}
	}
}

// TemplateSecrets are the names of the secrets that the templates use: the rule's own
// first, then those that marks name, in their order.
func (r *Inject) TemplateSecrets() []string {
	named := map[string]bool{}
	for t := range r.templates() {
		for _, m := range anyMark.FindAllStringSubmatch(t, -1) {
			named[m[1]] = true
		}
	}
	delete(named, "")
	delete(named, r.Secret)
	all := slices.Sorted(maps.Keys(named))
	if r.Secret != "" {
		all = slices.Insert(all, 0, r.Secret)
	}
	return all
}

// Fill puts values, by their secrets' names, where the marks of a template stand. A
// value is taken as it is, whatever it holds; a mark without one stays.
func (r *Inject) Fill(template string, values map[string]string) string {
	if !strings.Contains(template, "${secret") {
		return template
	}
	return anyMark.ReplaceAllStringFunc(template, func(mark string) string {
		name := r.Secret
		if mark != SecretMark {
			name = mark[len("${secret:") : len(mark)-1]
		}
		if v, ok := values[name]; ok {
			return v
		}
		return mark
	})
}
