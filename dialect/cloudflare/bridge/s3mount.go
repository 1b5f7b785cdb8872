package bridge

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// bucketMount asks for a mount.
type bucketMount struct {
	Bucket    string        `json:"bucket"`
	Binding   string        `json:"binding"`
	MountPath string        `json:"mountPath"`
	Options   *mountOptions `json:"options"`
}

type mountOptions struct {
	Endpoint        string            `json:"endpoint"`
	ReadOnly        bool              `json:"readOnly"`
	Prefix          string            `json:"prefix"` // of the objects' names; begins with a slash
	Credentials     *mountCredentials `json:"credentials"`
	CredentialProxy bool              `json:"credentialProxy"`
	S3FSOptions     []string          `json:"s3fsOptions"` // "name" or "name=value"
}

type mountCredentials struct {
	ID     string `json:"accessKeyId"`
	Secret string `json:"secretAccessKey"`
}

// bucketUnmount asks for a mount's end.
type bucketUnmount struct {
	MountPath string `json:"mountPath"`
}

// s3Mount is a mount as s3fs takes it.
type s3Mount struct {
	source  string // BUCKET, or BUCKET:/PREFIX
	folder  string
	options []string
	keys    string // what its file of keys holds
	secret  string // among that, and never told
}

// bucketPattern is what buckets are called.
var bucketPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// plan settles what is mounted. What cannot be a request is Bad Request; what is one and
// cannot be served tells why.
func (q *bucketMount) plan() (s3Mount, error) {
	folder, err := mountFolder(q.MountPath)
	o := q.Options
	switch {
	case err != nil:
		return s3Mount{}, err
	case o == nil:
		return s3Mount{}, invalid("options must be an object")
	case q.Binding != "" && o.Endpoint != "":
		return s3Mount{}, invalid("Provide either binding or options.endpoint, not both")
	case o.Credentials != nil && (o.Credentials.ID == "" || o.Credentials.Secret == ""):
		return s3Mount{}, invalid("options.credentials must include string accessKeyId and secretAccessKey")
	case q.Binding != "":
		return s3Mount{}, refused("binding", "there is no Worker here, and so no binding", "give bucket, options.endpoint and options.credentials")
	case o.Endpoint == "":
		return s3Mount{}, invalid("options.endpoint and bucket are needed, or a binding")
	case q.Bucket == "":
		return s3Mount{}, invalid("bucket must be a non-empty string for remote mounts")
	case !bucketPattern.MatchString(q.Bucket):
		return s3Mount{}, refused("bucket", "that is no bucket's name", "a prefix belongs into options.prefix")
	case o.CredentialProxy:
		return s3Mount{}, refused("credentialProxy", "there is no Worker here that could sign", "leave it out: the keys are then given to the sandbox")
	case o.Credentials == nil:
		return s3Mount{}, refused("credentials", "none were given", "give options.credentials: there is no Worker here that has secrets")
	case strings.ContainsAny(o.Credentials.ID+o.Credentials.Secret, ":\r\n\x00"):
		return s3Mount{}, refused("credentials", "they hold what no key holds", "")
	case o.Prefix != "" && o.Prefix[0] != '/' || strings.ContainsAny(o.Prefix, ":\r\n\x00"):
		return s3Mount{}, refused("prefix", "it must start with a slash, and have no colon", "")
	}
	m := s3Mount{source: q.Bucket, folder: folder, secret: o.Credentials.Secret,
		keys: q.Bucket + ":" + o.Credentials.ID + ":" + o.Credentials.Secret + "\n"}
	if p := strings.TrimRight(o.Prefix, "/"); p != "" {
		m.source += ":" + p
	}
	m.options, err = o.s3fs()
	return m, err
}

// s3fs is what s3fs is told: what servers of that kind need, what was asked for, and where
// the server is.
func (o *mountOptions) s3fs() ([]string, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.ContainsAny(o.Endpoint, ", \r\n\t\x00") {
		return nil, refused("endpoint", "that is no URL of an S3 server", "such as https://s3.example.com")
	}
	var all []string
	switch host := strings.ToLower(u.Hostname()); {
	case strings.HasSuffix(host, ".r2.cloudflarestorage.com"):
		all = []string{"nomixupload"}
	case strings.HasSuffix(host, ".amazonaws.com"), host == "storage.googleapis.com":
	default:
		all = []string{"use_path_request_style"}
	}
	for _, one := range strings.Split(strings.Join(o.S3FSOptions, ","), ",") {
		name, _, _ := strings.Cut(one, "=")
		switch {
		case one == "":
			continue
		case name == "passwd_file" || name == "url" || name == "logfile" || strings.ContainsAny(one, "\r\n\x00"):
			return nil, refused("s3fsOptions", "they set what is not theirs to set", "leave passwd_file, url and logfile out")
		}
		all = slices.DeleteFunc(all, func(was string) bool { was, _, _ = strings.Cut(was, "="); return was == name })
		all = append(all, one)
	}
	if o.ReadOnly {
		all = append(all, "ro")
	}
	return append(all, "url="+o.Endpoint), nil
}

// refused is a mount that would be one elsewhere.
func refused(what, why, hint string) error {
	return &sandbox.Error{Op: "mount by " + what, Kind: sandbox.Invalid, Err: errors.New(why), Hint: hint}
}
