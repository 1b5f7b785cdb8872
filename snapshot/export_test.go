package snapshot

// DecodeManifest and Encode are what a fuzz test holds against each other.
var DecodeManifest = decodeManifest

func (m *Manifest) Encode() ([]byte, error) { return m.encode() }
