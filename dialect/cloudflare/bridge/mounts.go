package bridge

import (
	"net/http"
	"strings"
)

// mount refuses every bucket, after the checks that tell a request that could never
// be served: nothing in a sandbox may mount a file system.
func (b *Bridge) mount(w http.ResponseWriter, r *http.Request) error {
	var req bucketMount
	if err := decode(w, r, &req, false); err != nil {
		return err
	}
	if err := checkMountPath(req.MountPath); err != nil {
		return err
	}
	endpoint, _ := req.Options["endpoint"].(string)
	switch {
	case req.Options == nil:
		return invalid("options must be an object")
	case req.Bucket == "" && req.Binding == "":
		return invalid("bucket must be a non-empty string")
	case req.Binding != "" && endpoint != "":
		return invalid("binding and options.endpoint exclude each other")
	}
	return &fault{status: http.StatusBadGateway, code: codeMount,
		text: "mount failed: nothing in a sandbox may mount a file system (copy objects with an S3 client inside, or with persist and hydrate)"}
}

func (b *Bridge) unmount(w http.ResponseWriter, r *http.Request) error {
	var req bucketMount
	if err := decode(w, r, &req, false); err != nil {
		return err
	}
	if err := checkMountPath(req.MountPath); err != nil {
		return err
	}
	return &fault{status: http.StatusBadGateway, code: codeUnmount, text: "unmount failed: nothing is mounted at " + printable(req.MountPath)}
}

func checkMountPath(p string) error {
	switch {
	case p == "":
		return invalid("mountPath must be a non-empty string")
	case !strings.HasPrefix(p, "/"):
		return invalid("mountPath must be an absolute path (start with /)")
	}
	return nil
}
