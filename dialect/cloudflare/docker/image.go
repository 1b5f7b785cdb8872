package docker

import (
	"context"
	"net/http"
	"regexp"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// image is what a container is made from: a template, or a snapshot that commit has
// taken.
type image struct {
	ref        string
	template   string
	snapshot   string
	digest     string // of the template's root
	entrypoint []string
	cmd        []string
	policy     *sandbox.Policy
	sized      bool // it says how large its containers are
}

// vendorImage matches what the vendor calls it.
var vendorImage = regexp.MustCompile(`^(docker\.io/|registry\.cloudflare\.com/)?cloudflare/sandbox(-test)?(:[A-Za-z0-9_.-]{1,128})?(@sha256:[0-9a-f]{64})?$`)

// sidecarImage matches what is called the image of a sidecar.
var sidecarImage = regexp.MustCompile(`^(docker\.io/)?cloudflare/proxy-everything(:[A-Za-z0-9_.-]{1,128})?(@sha256:[0-9a-f]{64})?$`)

// IsSidecar reports whether an image is that of a sidecar, which needs none.
func IsSidecar(ref string) bool { return sidecarImage.MatchString(ref) }

var refPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}$`)

// TemplateName is the name of the template that stands for an image. Two images
// have never one name.
func TemplateName(ref string) (string, error) {
	if vendorImage.MatchString(ref) {
		return ownTemplate(ref), nil
	}
	if !refPattern.MatchString(ref) {
		return "", invalid("%.80q is no image", ref)
	}
	ref = normal(ref)
	kept := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(ref))
	return "image-" + hexID("image", ref)[:12] + "-" + kept[max(0, len(kept)-40):], nil
}

// normal is an image's name with what it leaves out.
func normal(ref string) string {
	ref = strings.TrimPrefix(strings.TrimPrefix(ref, "docker.io/"), "library/")
	if last := ref[strings.LastIndexByte(ref, '/')+1:]; !strings.ContainsAny(last, ":@") {
		ref += ":latest"
	}
	return ref
}

// image finds what an image's name stands for. The vendor's own is made when it is
// first asked for.
func (d *Dialect) image(ctx context.Context, ref string) (*image, error) {
	name, err := TemplateName(ref)
	if err != nil {
		return nil, noImage(ref)
	}
	if IsSidecar(ref) { // of which workerd makes the helpers that copy volumes, too
		name = sandbox.DefaultTemplate
	}
	t, err := d.engine.Template(ctx, name)
	if sandbox.KindOf(err) == sandbox.NotFound && sandbox.CheckName(ref) == nil {
		t, err = d.engine.Template(ctx, ref) // one of the server's own
	}
	if IsOwn(name) && (sandbox.KindOf(err) == sandbox.NotFound || err == nil && d.stale(ctx, &t)) {
		t, err = d.ownImage(ctx, name)
	}
	if sandbox.KindOf(err) == sandbox.NotFound {
		return d.committed(ctx, ref, name)
	}
	if err != nil {
		return nil, err
	}
	return &image{ref: ref, template: t.Name, digest: t.Digest, entrypoint: t.Entrypoint, cmd: t.Cmd, policy: t.Policy, sized: t.Limits != nil}, nil
}

// snapshotName is the name of what commit has taken of an image.
func snapshotName(template string) string { return template }

// committed finds a snapshot that commit has taken.
func (d *Dialect) committed(ctx context.Context, ref, name string) (*image, error) {
	s, err := d.engine.GetSnapshot(ctx, snapshotName(name))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, noImage(ref)
	}
	if err != nil {
		return nil, err
	}
	img := &image{ref: ref, snapshot: string(s.ID), digest: s.Image}
	t, err := d.engine.Template(ctx, s.Template)
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return nil, err
	}
	img.entrypoint, img.cmd, img.policy = t.Entrypoint, t.Cmd, t.Policy
	return img, nil
}

// commit takes a snapshot of a container's files, under an image's name.
func (d *Dialect) commit(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	ref := q.Get("repo")
	if tag := q.Get("tag"); tag != "" {
		ref += ":" + tag
	}
	name, err := TemplateName(ref)
	if err != nil {
		return err
	}
	if IsOwn(name) {
		return invalid("%s is the vendor's own image", ref)
	}
	container := q.Get("container")
	unlock, err := d.names.lock(r.Context(), container)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := d.load(r.Context(), container)
	if err != nil {
		return err
	}
	old, err := d.engine.GetSnapshot(r.Context(), snapshotName(name))
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return err
	}
	if err == nil {
		if err := d.engine.RemoveSnapshot(r.Context(), string(old.ID)); err != nil {
			return err
		}
	}
	s, err := d.engine.Snapshot(r.Context(), string(c.box.ID), sandbox.SnapshotRequest{Name: snapshotName(name), Keep: sandbox.KeepDisk})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, map[string]string{"Id": "sha256:" + hexID("snapshot", string(s.ID))})
	return nil
}

// imageRef reads the path of a call about an image.
func imageRef(r *http.Request, suffix string) (string, error) {
	ref, ok := strings.CutSuffix(r.PathValue("image"), suffix)
	if !ok || ref == "" {
		return "", noImage(r.PathValue("image"))
	}
	return ref, nil
}

func (d *Dialect) inspectImage(w http.ResponseWriter, r *http.Request) error {
	ref, err := imageRef(r, "/json")
	if err != nil {
		return err
	}
	img, err := d.image(r.Context(), ref)
	if err != nil {
		return err
	}
	id := img.digest
	if img.snapshot != "" {
		id = "sha256:" + hexID("snapshot", img.snapshot)
	}
	writeJSON(w, http.StatusOK, Describe(ref, sandbox.Template{Digest: id, Entrypoint: img.entrypoint, Cmd: img.cmd}))
	return nil
}

// Describe is what tools are told of the image that a template stands for.
func Describe(ref string, t sandbox.Template) map[string]any {
	return map[string]any{
		"Id": t.Digest, "RepoTags": []string{ref}, "RepoDigests": []string{}, "Os": "linux", "Architecture": "amd64",
		"Size": t.Size, "Created": moment(t.Created),
		"Config": map[string]any{"Entrypoint": t.Entrypoint, "Cmd": t.Cmd, "ExposedPorts": map[string]any{}},
		"RootFS": map[string]any{"Type": "layers", "Layers": []string{t.Digest}},
	}
}

func (d *Dialect) removeImage(w http.ResponseWriter, r *http.Request) error {
	ref, err := imageRef(r, "")
	if err != nil {
		return err
	}
	img, err := d.image(r.Context(), ref)
	if err != nil {
		return err
	}
	if img.snapshot != "" {
		err = d.engine.RemoveSnapshot(r.Context(), img.snapshot)
	} else {
		err = d.engine.RemoveTemplate(r.Context(), img.template)
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, []map[string]string{{"Untagged": ref}})
	return nil
}
