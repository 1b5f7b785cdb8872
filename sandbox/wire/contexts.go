package wire

// Context is a tar stream that a template's build copies from.
type Context struct {
	Name   string `json:"name,omitempty"`   // as it was asked for
	Digest string `json:"digest,omitempty"` // of its bytes: "sha256:…"
	Size   int64  `json:"size,omitempty"`   // bytes
}
