package e2b

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// secretBody makes a secret, or gives it another value.
type secretBody struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// secretInfo is what is told of a secret: its name is its id.
type secretInfo struct {
	SecretID       string            `json:"secretID"`
	Name           string            `json:"name"`
	CurrentVersion int64             `json:"currentVersion"`
	Metadata       map[string]string `json:"metadata"`
	CreatedAt      time.Time         `json:"createdAt"`
	UpdatedAt      time.Time         `json:"updatedAt"`
}

func secretOf(s sandbox.Secret) secretInfo {
	return secretInfo{SecretID: s.Name, Name: s.Name, CurrentVersion: s.Version, Metadata: map[string]string{}, CreatedAt: s.Created, UpdatedAt: s.Updated}
}

func (d *Dialect) createSecret(w http.ResponseWriter, r *http.Request) error {
	var body secretBody
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if _, err := d.engine.Secret(r.Context(), body.Name); err == nil {
		return &fault{status: http.StatusConflict, text: fmt.Sprintf("secret '%s' already exists", printable(body.Name))}
	}
	return d.setSecret(w, r, body.Name, body.Value, http.StatusCreated)
}

func (d *Dialect) updateSecret(w http.ResponseWriter, r *http.Request) error {
	var body secretBody
	if err := decode(w, r, &body); err != nil {
		return err
	}
	name := r.PathValue("secret")
	if _, err := d.secretNamed(r, name); err != nil {
		return err
	}
	return d.setSecret(w, r, name, body.Value, http.StatusOK)
}

func (d *Dialect) setSecret(w http.ResponseWriter, r *http.Request, name, value string, status int) error {
	s, err := d.engine.SetSecret(r.Context(), name, sandbox.SecretValue(value))
	if err != nil {
		return err
	}
	writeJSON(w, status, secretOf(s))
	return nil
}

func (d *Dialect) secretNamed(r *http.Request, name string) (sandbox.Secret, error) {
	s, err := d.engine.Secret(r.Context(), name)
	if kind := sandbox.KindOf(err); kind == sandbox.NotFound || kind == sandbox.Invalid {
		return s, &fault{status: http.StatusNotFound, text: fmt.Sprintf("secret '%s' not found", printable(name)), err: err}
	}
	return s, err
}

func (d *Dialect) getSecret(w http.ResponseWriter, r *http.Request) error {
	s, err := d.secretNamed(r, r.PathValue("secret"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, secretOf(s))
	return nil
}

func (d *Dialect) removeSecret(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("secret")
	if _, err := d.secretNamed(r, name); err != nil {
		return err
	}
	if err := d.engine.RemoveSecret(r.Context(), name); err != nil {
		return err
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}

func (d *Dialect) listSecrets(w http.ResponseWriter, r *http.Request) error {
	all, err := d.engine.Secrets(r.Context())
	if err != nil {
		return err
	}
	from, limit, err := window(r.URL.Query(), len(all))
	if err != nil {
		return err
	}
	to := min(from+limit, len(all))
	if to < len(all) {
		w.Header().Set("X-Next-Token", strconv.Itoa(to))
	}
	out := []secretInfo{}
	for _, s := range all[from:to] {
		out = append(out, secretOf(s))
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}
