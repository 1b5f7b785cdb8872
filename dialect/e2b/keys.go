package e2b

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Keys are the verbs on the keys of an account.
type Keys interface {
	CreateKey(ctx context.Context, req sandbox.KeyRequest) (sandbox.NewKey, error)
	Keys(ctx context.Context) ([]sandbox.Key, error)
	UpdateKey(ctx context.Context, id string, u sandbox.KeyUpdate) (sandbox.Key, error)
	RemoveKey(ctx context.Context, id string) error
}

// What begins the two kinds of keys that these clients know: here both are keys of
// the account.
const (
	apiKeyPrefix      = "e2b_"
	accessTokenPrefix = "sk_e2b_"
	keyLength         = 40 // digits, behind the prefix
)

// keyName is the body that makes or renames a key.
type keyName struct {
	Name string `json:"name"`
}

// keyMask tells keys apart without telling them.
type keyMask struct {
	Prefix            string `json:"prefix"`
	ValueLength       int    `json:"valueLength"`
	MaskedValuePrefix string `json:"maskedValuePrefix"`
	MaskedValueSuffix string `json:"maskedValueSuffix"`
}

// keyInfo is what is told of a key; Key and Token once, when it is made.
type keyInfo struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Key       string     `json:"key,omitempty"`
	Token     string     `json:"token,omitempty"`
	Mask      keyMask    `json:"mask"`
	CreatedAt time.Time  `json:"createdAt"`
	CreatedBy *struct{}  `json:"createdBy"`
	LastUsed  *time.Time `json:"lastUsed"`
}

func keyInfoOf(k sandbox.Key, prefix string) keyInfo {
	info := keyInfo{ID: k.ID, Name: k.Label, CreatedAt: k.Created, Mask: keyMask{Prefix: prefix, ValueLength: keyLength, MaskedValueSuffix: k.Ending}}
	if !k.LastUsed.IsZero() {
		info.LastUsed = &k.LastUsed
	}
	return info
}

// keyRoutes are the surface of keys.
func (d *Dialect) keyRoutes() []route {
	const admin = sandbox.ScopeAdmin
	return []route{
		{"GET /api-keys", d.listKeys, admin},
		{"POST /api-keys", d.createKey, admin},
		{"PATCH /api-keys/{key}", d.renameKey, admin},
		{"DELETE /api-keys/{key}", d.removeKey, admin},
		{"POST /access-tokens", d.createToken, admin},
		{"DELETE /access-tokens/{key}", d.removeKey, admin},
	}
}

func (d *Dialect) listKeys(w http.ResponseWriter, r *http.Request) error {
	all, err := d.keys.Keys(r.Context())
	if err != nil {
		return err
	}
	out := []keyInfo{}
	for _, k := range all {
		out = append(out, keyInfoOf(k, apiKeyPrefix))
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (d *Dialect) createKey(w http.ResponseWriter, r *http.Request) error {
	k, digits, err := d.makeKey(w, r)
	if err != nil {
		return err
	}
	info := keyInfoOf(k.Key, apiKeyPrefix)
	info.Key = apiKeyPrefix + digits
	writeJSON(w, http.StatusCreated, info)
	return nil
}

func (d *Dialect) createToken(w http.ResponseWriter, r *http.Request) error {
	k, digits, err := d.makeKey(w, r)
	if err != nil {
		return err
	}
	info := keyInfoOf(k.Key, accessTokenPrefix)
	info.Token = accessTokenPrefix + digits
	writeJSON(w, http.StatusCreated, info)
	return nil
}

func (d *Dialect) makeKey(w http.ResponseWriter, r *http.Request) (k sandbox.NewKey, digits string, err error) {
	var body keyName
	if err := decode(w, r, &body); err != nil {
		return k, "", err
	}
	k, err = d.keys.CreateKey(r.Context(), sandbox.KeyRequest{Label: body.Name})
	return k, strings.TrimPrefix(k.Secret, sandbox.KeyPrefix), err
}

func (d *Dialect) renameKey(w http.ResponseWriter, r *http.Request) error {
	var body keyName
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if _, err := d.keys.UpdateKey(r.Context(), r.PathValue("key"), sandbox.KeyUpdate{Label: body.Name}); err != nil {
		return orNoKey(err)
	}
	writeEmpty(w, http.StatusAccepted)
	return nil
}

func (d *Dialect) removeKey(w http.ResponseWriter, r *http.Request) error {
	if err := d.keys.RemoveKey(r.Context(), r.PathValue("key")); err != nil {
		return orNoKey(err)
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}

func orNoKey(err error) error {
	if sandbox.KindOf(err) == sandbox.NotFound {
		return &fault{status: http.StatusNotFound, text: "id not found", err: err}
	}
	return err
}
