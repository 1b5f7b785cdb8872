package edge

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-dev/berth/pass"
	"github.com/berth-dev/berth/sandbox"
)

// The cookie that holds a pass. A browser takes the first from the very host that
// it came from alone, and over TLS alone.
const (
	secureCookie = "__Host-berth-pass"
	plainCookie  = "berth-pass"
)

// maxShown bounds the passes of one request that are looked at.
const maxShown = 8

// shown collects the passes of a request, in the order in which they count.
func shown(r *http.Request) []sandbox.Pass {
	var all []sandbox.Pass
	add := func(p sandbox.Pass) {
		if p.Text != "" && len(all) < maxShown {
			all = append(all, p)
		}
	}
	add(sandbox.Pass{Text: r.Header.Get(sandbox.HeaderToken)})
	if p, ok := bearerPass(r.Header.Get("Authorization")); ok {
		add(sandbox.Pass{Text: p})
	}
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if name, value, _ := strings.Cut(part, "="); isTokenParam(name) {
			text, _ := url.QueryUnescape(value) // what cannot be read is no pass
			add(sandbox.Pass{Text: text, Exchange: isNavigation(r)})
		}
	}
	if cookiesCount(r) {
		for _, c := range r.Cookies() { // several of a name: another host may have set one
			if c.Name == secureCookie || c.Name == plainCookie {
				add(sandbox.Pass{Text: c.Value, Cookie: true})
			}
		}
	}
	return all
}

// bearerPass is the pass of an Authorization header. What else that holds is for
// the server inside.
func bearerPass(header string) (string, bool) {
	scheme, key, _ := strings.Cut(header, " ")
	key = strings.TrimSpace(key)
	return key, strings.EqualFold(scheme, "Bearer") && strings.HasPrefix(key, pass.Prefix)
}

func isTokenParam(name string) bool {
	name, err := url.QueryUnescape(name)
	return err == nil && name == sandbox.ParamToken
}

// isNavigation reports whether a browser asks for a page to show.
func isNavigation(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Upgrade") != "" {
		return false
	}
	if mode := r.Header.Get("Sec-Fetch-Mode"); mode != "" {
		return mode == "navigate"
	}
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// cookiesCount reports whether the cookies of a request say that its sender wants
// it: a page of another sandbox, which browsers take to be of the same site, makes
// them send cookies too.
func cookiesCount(r *http.Request) bool {
	if o := r.Header.Get("Origin"); o != "" {
		u, err := url.Parse(o)
		return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return true
	}
	return isNavigation(r)
}

// exchange gives a browser a cookie in place of the pass in its URL, and sends it
// to the URL without.
func exchange(w http.ResponseWriter, r *http.Request, entry sandbox.Admission) {
	name := plainCookie
	if r.TLS != nil {
		name = secureCookie
	}
	http.SetCookie(w, &http.Cookie{Name: name, Value: entry.Cookie, Path: "/", Expires: entry.Expires,
		Secure: r.TLS != nil, HttpOnly: true, SameSite: http.SameSiteLaxMode})
	clean := url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: withoutToken(r.URL.RawQuery)}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Location", "/"+strings.TrimLeft(clean.String(), "/")) // "//host" would be another place
	w.WriteHeader(http.StatusSeeOther)
}

// withoutToken is a query without the pass, byte for byte as it was.
func withoutToken(query string) string {
	parts := strings.Split(query, "&")
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool {
		name, _, _ := strings.Cut(part, "=")
		return isTokenParam(name)
	}), "&")
}

// keyPattern is a key of the API, whichever door it was meant for.
var keyPattern = regexp.MustCompile(`(?i)^\s*(bearer\s+)?[a-z0-9]{2,8}_[0-9a-f]{40}\s*$`)

// clean takes out of a request what was for the door: the server inside gets no
// pass, and no key of the API that somebody sent to the wrong place.
func clean(h http.Header) {
	h.Del(sandbox.HeaderToken)
	auth := h.Get("Authorization")
	if _, ok := bearerPass(auth); ok || keyPattern.MatchString(auth) {
		h.Del("Authorization")
	}
	var kept []string
	for _, line := range h.Values("Cookie") {
		var rest []string
		for c := range strings.SplitSeq(line, ";") {
			name, _, _ := strings.Cut(strings.TrimSpace(c), "=")
			if name != "" && !isOurCookie(name) {
				rest = append(rest, strings.TrimSpace(c))
			}
		}
		if len(rest) > 0 {
			kept = append(kept, strings.Join(rest, "; "))
		}
	}
	h.Del("Cookie")
	for _, line := range kept {
		h.Add("Cookie", line)
	}
}

func isOurCookie(name string) bool {
	name = strings.TrimSpace(name)
	return name == secureCookie || name == plainCookie
}

// confine keeps what a server inside answers to its own host: a cookie for the
// whole domain would reach every other sandbox's, and so would the clearing of
// them.
func confine(h http.Header) {
	h.Del("Clear-Site-Data")
	h.Del("Alt-Svc")
	cookies := h.Values("Set-Cookie")
	h.Del("Set-Cookie")
	for _, c := range cookies {
		name, _, _ := strings.Cut(c, "=")
		if isOurCookie(name) {
			continue
		}
		parts := strings.Split(c, ";")
		parts = slices.DeleteFunc(parts, func(part string) bool {
			attribute, _, _ := strings.Cut(part, "=")
			return strings.EqualFold(strings.TrimSpace(attribute), "Domain")
		})
		h.Add("Set-Cookie", strings.Join(parts, ";"))
	}
}
