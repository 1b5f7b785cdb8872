package bridge

import (
	_ "embed"
	"encoding/json"
	"html/template"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
)

//go:embed openapi.json
var document []byte

//go:embed openapi.html
var pageText string

var page = template.Must(template.New("openapi").Parse(pageText))

func (b *Bridge) openapi(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(document) // a client that has gone cannot be told
	return nil
}

// described is what the page shows of the document.
type described struct {
	Info struct {
		Title, Version, Description string
	}
	Paths map[string]map[string]struct {
		Summary, Description string
		Parameters           []struct{ Name, In, Description string }
		Responses            map[string]struct{ Description string }
	}
}

func (b *Bridge) openapiPage(w http.ResponseWriter, _ *http.Request) error {
	var d described
	if err := json.Unmarshal(document, &d); err != nil {
		return sandbox.Errorf("read own description", sandbox.Internal, "%w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	h.Set("Referrer-Policy", "no-referrer") // the URL may hold the key
	if err := page.Execute(w, d); err != nil {
		return sandbox.Errorf("send page", sandbox.Unavailable, "%w", err)
	}
	return nil
}
