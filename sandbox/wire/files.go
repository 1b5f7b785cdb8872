package wire

import (
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// A field whose name ends in B64 stands in place of its neighbour when that is
// not UTF-8.

// FileChange is the body of a change request.
type FileChange struct {
	Path      string     `json:"path,omitempty"`
	PathB64   []byte     `json:"path_b64,omitempty"`
	Mode      *uint32    `json:"mode,omitempty"`
	Owner     string     `json:"owner,omitempty"`
	Modified  *time.Time `json:"modified,omitempty"`
	Recursive bool       `json:"recursive,omitempty"`
	Create    bool       `json:"create,omitempty"`
	User      string     `json:"user,omitempty"`
}

// CopyFile is the body of a copy request.
type CopyFile struct {
	From      string `json:"from,omitempty"`
	FromB64   []byte `json:"from_b64,omitempty"`
	To        string `json:"to,omitempty"`
	ToB64     []byte `json:"to_b64,omitempty"`
	Recursive bool   `json:"recursive,omitempty"`
	Replace   bool   `json:"replace,omitempty"`
}

// LinkFile is the body of a link request.
type LinkFile struct {
	Path      string `json:"path,omitempty"`
	PathB64   []byte `json:"path_b64,omitempty"`
	Target    string `json:"target,omitempty"`
	TargetB64 []byte `json:"target_b64,omitempty"`
	Replace   bool   `json:"replace,omitempty"`
}

// Attributes are extended attributes: those that are UTF-8 as text, the others
// in base64.
type Attributes struct {
	Attributes    map[string]string `json:"attributes"`
	AttributesB64 map[string][]byte `json:"attributes_b64,omitempty"`
}

// AttributesOf splits attributes by their form.
func AttributesOf(all sandbox.Attributes) Attributes {
	out := Attributes{Attributes: map[string]string{}}
	for name, value := range all {
		if raw := sandbox.Raw(string(value)); raw == nil {
			out.Attributes[name] = string(value)
		} else {
			if out.AttributesB64 == nil {
				out.AttributesB64 = map[string][]byte{}
			}
			out.AttributesB64[name] = raw
		}
	}
	return out
}

// All undoes AttributesOf.
func (a Attributes) All() sandbox.Attributes {
	all := make(sandbox.Attributes, len(a.Attributes)+len(a.AttributesB64))
	for name, value := range a.Attributes {
		all[name] = []byte(value)
	}
	for name, value := range a.AttributesB64 {
		all[name] = value
	}
	return all
}

// SetAttributes is the body of a request that changes attributes.
type SetAttributes struct {
	Path    string            `json:"path,omitempty"`
	PathB64 []byte            `json:"path_b64,omitempty"`
	Set     map[string]string `json:"set,omitempty"`
	SetB64  map[string][]byte `json:"set_b64,omitempty"`
	Remove  []string          `json:"remove,omitempty"`
}

// SignFile is the body of a request for a signed URL.
type SignFile struct {
	Path           string `json:"path,omitempty"`
	PathB64        []byte `json:"path_b64,omitempty"`
	Method         string `json:"method"`                    // "read" or "write"
	ExpiresSeconds int64  `json:"expires_seconds,omitempty"` // 1 to 604,800; 0 means 3600
	MaxBytes       int64  `json:"max_bytes,omitempty"`       // of the file; 0 means no bound
}

// SignedURL opens one file without a key.
type SignedURL struct {
	URL     string    `json:"url"` // path and query; put the server's address in front
	Method  string    `json:"method"`
	Expires time.Time `json:"expires"`
}

// The values of SignFile.Method.
const (
	SignRead  = "read"
	SignWrite = "write"
)
