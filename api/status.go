package api

import (
	_ "embed"
	"io"
	"net/http"

	"github.com/berth-dev/berth/sandbox/wire"
)

//go:embed openapi.json
var document []byte

func (a *API) openapi(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", wire.TypeJSON)
	_, err := w.Write(document)
	return err
}

func (a *API) status(w http.ResponseWriter, r *http.Request) error {
	s, err := a.engine.Status(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s)
}

// health answers as long as requests are served.
func (a *API) health(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	text := "ok\n"
	if a.lowDisk() {
		text = "ok, but the disk is nearly full: nothing new is begun\n"
	}
	_, err := io.WriteString(w, text)
	return err
}
