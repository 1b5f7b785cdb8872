package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// Headers of what is sent to a webhook. The body is one Change as JSON.
const (
	HeaderEvent     = "Berth-Event"     // the change's type
	HeaderDelivery  = "Berth-Delivery"  // the same for every attempt: take one of a value once
	HeaderTimestamp = "Berth-Timestamp" // of the attempt, in seconds of Unix time
	HeaderSignature = "Berth-Signature" // see WebhookSignature
)

// WebhookSignature is what HeaderSignature holds: "v1=" and the HMAC-SHA256, in
// hex, of the timestamp, a dot and the body. A receiver computes it anew, compares
// in constant time, and refuses timestamps that are far from its own clock.
func WebhookSignature(secret string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1=" + hex.EncodeToString(mac.Sum(nil))
}
