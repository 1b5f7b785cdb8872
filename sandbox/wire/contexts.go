package wire

// Context is a tar stream that a template's build copies from.
type Context struct {
	Digest string `json:"digest"`         // of its bytes: "sha256:…"
	Size   int64  `json:"size,omitempty"` // bytes
}
