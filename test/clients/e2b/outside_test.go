package e2b

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-dev/berth/test/rig"
)

// A site for all names beneath zone: an address that this machine has for as long as
// the test runs, and that the operator opens to the sandboxes.
const (
	zone       = "outside.example"
	site       = "198.18.76.2"
	nameServer = "127.76.0.1:5376"
)

// TestOutside has a client's sandboxes send requests to a real site.
func TestOutside(t *testing.T) {
	rig.Address(t, site)
	roots := serveSite(t)
	rig.Names(t, nameServer, rig.Zone(zone, site))
	s := rig.Start(t, "--resolver", nameServer, "--egress-allow", site+"/32", "--egress-ca", roots)
	rig.Node(t, ".", []string{"E2B_API_KEY=" + key(s), "E2B_API_URL=" + s.URL + "/e2b", "E2B_SANDBOX_URL=" + s.URL, "SITE=" + zone}, "outside.mjs")
}

// serveSite serves a page that says which of some headers came, and returns the file
// of who signed for it.
func serveSite(t *testing.T) string {
	t.Helper()
	certificate, roots := rig.Certificate(t, "*."+zone)
	l, err := tls.Listen("tcp", site+":443", &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: http.HandlerFunc(tellHeaders)}
	go web.Serve(l)
	t.Cleanup(func() { web.Close() })
	return roots
}

func tellHeaders(w http.ResponseWriter, r *http.Request) {
	came := map[string]string{}
	for name := range r.Header {
		if name == "Authorization" || strings.HasPrefix(name, "X-") {
			came[name] = r.Header.Get(name)
		}
	}
	json.NewEncoder(w).Encode(came)
}
