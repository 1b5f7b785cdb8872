package e2b

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Metadata that this dialect keeps for itself begins with this; clients are not
// shown it and cannot set it.
const ownMetadata = "e2b:"

const (
	metaMade     = ownMetadata + "made"     // "true": it was made here
	metaInsecure = ownMetadata + "insecure" // "true": the guest's services ask for no token
	metaPrivate  = ownMetadata + "private"  // "true": ports ask for a token
	metaHost     = ownMetadata + "host"     // the Host that requests to ports get
	metaTLS      = ownMetadata + "https"    // the ports that speak TLS, comma between them
	metaNetwork  = ownMetadata + "network"  // what was asked for, as JSON
	metaSnapshot = ownMetadata + "snapshot" // that it was made from
	metaKey      = ownMetadata + "key"      // of the request that made it
	metaAsked    = ownMetadata + "asked"    // a digest of that
)

// secure reports whether the guest's services of a sandbox ask for a token.
func (d *Dialect) secure(s *sandbox.Sandbox) bool { return s.Metadata[metaInsecure] != "true" }

// private reports whether the ports of a sandbox ask for a token.
func private(s *sandbox.Sandbox) bool { return s.Metadata[metaPrivate] == "true" }

// visible is the metadata that is the client's own.
func visible(m map[string]string) map[string]string {
	var out map[string]string
	for k, v := range m {
		if strings.HasPrefix(k, ownMetadata) {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	return out
}

// derive makes a token of 40 hex digits for one sandbox and one purpose.
func (d *Dialect) derive(purpose string, id sandbox.ID) string {
	mac := hmac.New(sha256.New, d.secret)
	mac.Write([]byte("e2b " + purpose + " " + string(id)))
	return hex.EncodeToString(mac.Sum(nil)[:20])
}

// accessToken opens the guest's services of a sandbox. It stays the same for as
// long as the sandbox lives.
func (d *Dialect) accessToken(id sandbox.ID) string { return d.derive("guest", id) }

// trafficToken opens the ports of a sandbox that are not public.
func (d *Dialect) trafficToken(id sandbox.ID) string { return d.derive("traffic", id) }

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// byKey lets in whoever's API key a request carries, until leave is called.
func (d *Dialect) byKey(r *http.Request) (_ context.Context, leave func(), err error) {
	const remedy = "set E2B_API_KEY to e2b_ and the 40 digits of a key of this server"
	digits := keyDigits(r)
	if digits == "" {
		return nil, nil, unauthorized("Missing API key: " + remedy)
	}
	ctx, leave, err := d.enter(r.Context(), digits)
	if kind := sandbox.KindOf(err); kind == sandbox.Unauthorized || kind == sandbox.Invalid {
		return nil, nil, unauthorized("Invalid API key: " + remedy)
	}
	return ctx, leave, err
}

// signature is what a signed file URL carries: of the path, as it stands in the
// query, what is done with it, for which user, and when it ends (0: never).
func signature(token, path, operation, user string, expires int64) string {
	text := path + ":" + operation + ":" + user + ":" + token
	if expires != 0 {
		text += ":" + strconv.FormatInt(expires, 10)
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// signed is what a request for a file claims.
type signed struct {
	path, operation, user, signature string
	expires                          int64
	malformed                        bool
}

func signedOf(method string, q url.Values) signed {
	s := signed{path: q.Get("path"), operation: "read", user: q.Get("username"), signature: q.Get("signature")}
	if method == http.MethodPost {
		s.operation = "write"
	}
	if text := q.Get("signature_expiration"); text != "" {
		var err error
		s.expires, err = strconv.ParseInt(text, 10, 64)
		s.malformed = err != nil
	}
	return s
}

// by reports whether a token made the signature.
func (s signed) by(token string) bool {
	return s.signature != "" && !s.malformed && same(s.signature, signature(token, s.path, s.operation, s.user, s.expires))
}

// checkFile says why a request may not have a file: a header token wins over a
// signature.
func (d *Dialect) checkFile(s *sandbox.Sandbox, r *http.Request, now time.Time) error {
	if !d.secure(s) {
		return nil
	}
	token := d.accessToken(s.ID)
	if given := r.Header.Get("X-Access-Token"); given != "" {
		if !same(given, token) {
			return unauthorized("invalid access token")
		}
		return nil
	}
	claim := signedOf(r.Method, r.URL.Query())
	switch {
	case claim.signature == "":
		return unauthorized("missing signature query parameter")
	case !claim.by(token):
		return unauthorized("invalid signature")
	case claim.expires != 0 && now.Unix() >= claim.expires:
		return unauthorized("signature is already expired")
	}
	return nil
}

func unauthorized(text string) error { return &fault{status: http.StatusUnauthorized, text: text} }
