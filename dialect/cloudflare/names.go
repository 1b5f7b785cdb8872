package cloudflare

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"sync"
)

// Names of things inside a sandbox are made of the ids that clients give: behind
// plain, an id as it is; behind hashed, the digest of one that no name can hold.
const (
	plain  = "cf-"
	hashed = "cf."
)

// fits is what a name can hold of an id: 64 characters with what stands before it.
var fits = regexp.MustCompile(`^[A-Za-z0-9._-]{1,61}$`)

// maxID bounds an id that a client gives, in bytes.
const maxID = 256

// names remembers the ids behind digests, newest first to go last, so that lists can
// tell them. After a restart of the server lists show the digest until the id is
// used again.
type names struct {
	mu  sync.Mutex
	all map[string]string
	old []string
}

// maxNames is how many are remembered.
const maxNames = 10_000

// SessionName is the engine's name of the session that clients call id.
func SessionName(id string) string {
	if fits.MatchString(id) {
		return plain + id
	}
	sum := sha256.Sum256([]byte(id))
	return hashed + hex.EncodeToString(sum[:20])
}

// of is the name of an id, which is remembered if the name does not hold it.
func (n *names) of(id string) string {
	name := SessionName(id)
	if strings.HasPrefix(name, plain) {
		return name
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.all[name]; ok {
		return name
	}
	if n.all == nil {
		n.all = map[string]string{}
	}
	if len(n.old) >= maxNames {
		delete(n.all, n.old[0])
		n.old = n.old[1:]
	}
	n.all[name], n.old = id, append(n.old, name)
	return name
}

// id is the id of a name; false says that the name is not of this server's making.
func (n *names) id(name string) (string, bool) {
	if id, ok := strings.CutPrefix(name, plain); ok {
		return id, true
	}
	if !strings.HasPrefix(name, hashed) {
		return "", false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if id, ok := n.all[name]; ok {
		return id, true
	}
	return name, true
}

// checkID refuses what is no id. what is "session" or "process".
func checkID(what, id string) error {
	if id == "" || len(id) > maxID || strings.ContainsRune(id, 0) {
		return invalid("the " + what + " id must have 1 to 256 bytes and no NUL")
	}
	return nil
}
