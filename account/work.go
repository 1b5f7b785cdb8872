package account

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Bounds on work.
const (
	MaxWorkBits  = 32               // about an hour of one core
	workTime     = 10 * time.Minute // to do it
	maxSpent     = 100_000          // challenges that are remembered until they expire
	maxSolution  = 64               // bytes
	nonceBytes   = 16
	payloadBytes = nonceBytes + 8 + 1 // nonce, expiry in seconds, bits
)

// worker gives out challenges and takes solutions. It remembers nothing of a
// challenge before it is solved: it is signed, for one address. The key is drawn
// at the start, so none outlives what is remembered of the solved ones.
type worker struct {
	key []byte
	now func() time.Time

	mu    sync.Mutex
	spent map[[nonceBytes]byte]int64 // solved, by nonce: when they expire
}

func newWorker(now func() time.Time) *worker {
	w := &worker{key: make([]byte, sha256.Size), now: now, spent: map[[nonceBytes]byte]int64{}}
	rand.Read(w.key) // never fails: it ends the program instead
	return w
}

// sign is the signature of a challenge for an address.
func (w *worker) sign(payload []byte, from netip.Prefix) []byte {
	m := hmac.New(sha256.New, w.key)
	m.Write(payload)
	m.Write([]byte(from.String()))
	return m.Sum(nil)
}

func (w *worker) challenge(from netip.Addr, need int) sandbox.Challenge {
	expires := w.now().Add(workTime).Truncate(time.Second)
	payload := make([]byte, payloadBytes)
	rand.Read(payload[:nonceBytes])
	binary.BigEndian.PutUint64(payload[nonceBytes:], uint64(expires.Unix()))
	payload[payloadBytes-1] = byte(need)
	text := base64.RawURLEncoding.EncodeToString(append(payload, w.sign(payload, neighbours(from))...))
	return sandbox.Challenge{Challenge: text, Bits: need, Expires: expires.UTC()}
}

func forbidden(text, hint string) error {
	return &sandbox.Error{Op: "check work", Kind: sandbox.Forbidden, Err: errors.New(text), Hint: hint}
}

const workHint = "GET /v1/accounts/temporary/challenge gives the work to do; each serves once"

// spend takes a solution, once, of work of at least need bits.
func (w *worker) spend(req sandbox.TemporaryRequest, from netip.Addr, need int) error {
	if req.Challenge == "" {
		return forbidden("work is asked for", workHint)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(req.Challenge)
	if err != nil || len(raw) != payloadBytes+sha256.Size || !hmac.Equal(raw[payloadBytes:], w.sign(raw[:payloadBytes], neighbours(from))) {
		return forbidden("the challenge is not of this server, or not for this address", workHint)
	}
	expires := int64(binary.BigEndian.Uint64(raw[nonceBytes:]))
	if w.now().Unix() >= expires {
		return forbidden("the challenge has expired", workHint)
	}
	if int(raw[payloadBytes-1]) < need {
		return forbidden("more work is asked for by now", workHint)
	}
	if len(req.Solution) > maxSolution || sandbox.LeadingZeros(sha256.Sum256([]byte(req.Challenge+":"+req.Solution))) < need {
		return forbidden("the work was not done", "find a solution for which SHA-256 of challenge, colon and solution begins with so many zero bits")
	}
	return w.once([nonceBytes]byte(raw[:nonceBytes]), expires)
}

// once is Forbidden for a nonce that was spent before.
func (w *worker) once(nonce [nonceBytes]byte, expires int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, has := w.spent[nonce]; has {
		return forbidden("the challenge was used before", workHint)
	}
	if len(w.spent) >= maxSpent {
		now := w.now().Unix()
		for n, at := range w.spent {
			if at <= now {
				delete(w.spent, n)
			}
		}
	}
	if len(w.spent) >= maxSpent {
		return &sandbox.Error{Op: "check work", Kind: sandbox.Exhausted, Err: errors.New("too many ask at once"), Hint: "try again in a few minutes"}
	}
	w.spent[nonce] = expires
	return nil
}
