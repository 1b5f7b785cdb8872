package docker

import (
	"context"
	"strings"

	"github.com/berth-dev/berth/dialect/cloudflare"
	"github.com/berth-dev/berth/sandbox"
)

// The templates that stand for the vendor's image: one for the variant with Python, and
// one for all others.
const (
	plainTemplate  = "cloudflare-sandbox"
	pythonTemplate = "cloudflare-sandbox-python"
)

// ownTemplate is the template that stands for a variant of the vendor's image.
func ownTemplate(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	if strings.HasSuffix(ref, "-python") {
		return pythonTemplate
	}
	return plainTemplate
}

// IsOwn reports whether a template stands for the vendor's image: nobody else makes
// it.
func IsOwn(template string) bool { return template == plainTemplate || template == pythonTemplate }

// stale reports whether a template that stands for the vendor's image was made of one
// that is another by now, or otherwise than it would be now.
func (d *Dialect) stale(ctx context.Context, t *sandbox.Template) bool {
	req, err := OwnImage(ctx, t.Name, d.engine.Template)
	if err != nil || !strings.HasPrefix(t.Source, "template:") {
		return false // somebody has made one of their own
	}
	if t.Env[cloudflare.PoolVariable] != req.Steps[0].Env[cloudflare.PoolVariable] {
		return true
	}
	from, err := d.engine.Template(ctx, strings.TrimPrefix(req.From, "template:"))
	return err == nil && from.Digest != t.Digest
}

// ownImage makes a template that stands for the vendor's image, once for all that ask
// for it together.
func (d *Dialect) ownImage(ctx context.Context, name string) (sandbox.Template, error) {
	unlock, err := d.names.lock(ctx, "image "+name) // no container is called that
	if err != nil {
		return sandbox.Template{}, err
	}
	defer unlock()
	t, err := d.engine.Template(ctx, name)
	if err == nil && !d.stale(ctx, &t) || err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return t, err
	}
	req, err := OwnImage(ctx, name, d.engine.Template)
	if err != nil {
		return sandbox.Template{}, err
	}
	return d.engine.BuildTemplate(ctx, req, nil)
}

// OwnImage asks for a template that stands for the vendor's image: made of the one with
// interpreters for code, if the server has it, else of its own, as that image's users
// expect it.
func OwnImage(ctx context.Context, name string, find func(ctx context.Context, name string) (sandbox.Template, error)) (sandbox.BuildRequest, error) {
	from := sandbox.CodeTemplate
	_, err := find(ctx, from)
	if sandbox.KindOf(err) == sandbox.NotFound {
		from, err = sandbox.DefaultTemplate, nil
	}
	pool := cloudflare.NoPool
	if name == pythonTemplate {
		pool = "3"
	}
	return sandbox.BuildRequest{Name: name, From: "template:" + from, Steps: []sandbox.BuildStep{
		{Env: map[string]string{"SANDBOX_VERSION": cloudflare.ClientVersion, cloudflare.PoolVariable: pool}},
		{User: "root"},
		{Workdir: sandbox.DefaultWorkdir},
	}, Entrypoint: []string{serverProgram}}, err
}
