package image

import "context"

// Not there yet.
type archiveSource struct {
	kind, path string
	caps       caps
}

func (a archiveSource) resolve(context.Context) (root, error) {
	return nil, invalid("use distribution:bookworm", "%s is not there yet", a.kind)
}

func parseReference(string, caps) (source, error) {
	return nil, invalid("use distribution:bookworm", "oci is not there yet")
}
