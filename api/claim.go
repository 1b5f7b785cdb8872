package api

import (
	"html/template"
	"net/http"
	"regexp"
	"strings"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

var claimPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

// claimPages is what a person sees. They hold no script; looking changes nothing.
var claimPages = template.Must(template.New("claim").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Claim an account</title>
<body>
{{- if .Secret}}
<h1>The account {{.Account}} is yours</h1>
<p>This key opens it. It is shown this once:</p>
<pre>{{.Secret}}</pre>
<p>All that the account had is kept, and the keys that it had go on to open it. To
see them: <code>berth key ls</code></p>
{{- else if .Account}}
<h1>Keep the account {{.Account}}?</h1>
<p>It is temporary: unless somebody keeps it, it is removed with all it has at
<time datetime="{{.Expires}}">{{.Expires}}</time>.</p>
<form method="post"><button autofocus>Keep it</button></form>
{{- else}}
<h1>There is nothing to claim</h1>
<p>The account was claimed before, or its time has passed.</p>
{{- end}}
</body>
</html>
`))

type claimView struct{ Account, Expires, Secret string }

func showClaim(w http.ResponseWriter, status int, v claimView) error {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // without any, a browser would not say where the form was
	w.WriteHeader(status)
	var page strings.Builder
	if err := claimPages.Execute(&page, v); err != nil {
		return sandbox.Errorf("write page", sandbox.Internal, "%w", err)
	}
	_, err := w.Write([]byte(page.String()))
	return err
}

// claimPage shows a person what the link keeps, with one button.
func (a *API) claimPage(w http.ResponseWriter, r *http.Request) error {
	book, err := a.book()
	if err != nil {
		return err
	}
	one := sandbox.Account{}
	err = noClaim
	if claimPattern.MatchString(r.PathValue("claim")) {
		one, err = book.Claimable(r.Context(), r.PathValue("claim"))
	}
	if sandbox.KindOf(err) == sandbox.NotFound {
		return showClaim(w, http.StatusNotFound, claimView{})
	}
	if err != nil {
		return err
	}
	return showClaim(w, http.StatusOK, claimView{Account: one.ID, Expires: one.Expires.Format("2006-01-02 15:04 MST")})
}

var noClaim = sandbox.Errorf("find claim", sandbox.NotFound, "this is not a claim")

// claim keeps the account. A browser sends it from the page above alone: guarded
// has refused every other origin. A program that accepts JSON gets the key so.
func (a *API) claim(w http.ResponseWriter, r *http.Request) error {
	book, err := a.book()
	if err != nil {
		return err
	}
	k := sandbox.NewKey{}
	err = noClaim
	if claimPattern.MatchString(r.PathValue("claim")) {
		k, err = book.Claim(r.Context(), r.PathValue("claim"))
	}
	machine := strings.HasPrefix(r.Header.Get("Accept"), wire.TypeJSON)
	if sandbox.KindOf(err) == sandbox.NotFound && !machine {
		return showClaim(w, http.StatusNotFound, claimView{})
	}
	if err != nil {
		return err
	}
	if machine {
		return writeJSON(w, http.StatusOK, k)
	}
	return showClaim(w, http.StatusOK, claimView{Account: k.Account, Secret: k.Secret})
}
