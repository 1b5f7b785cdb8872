package docker

import (
	"context"
	"strings"

	"github.com/berth-dev/berth/dialect/cloudflare"
	"github.com/berth-dev/berth/sandbox"
)

// The templates that stand for the vendor's image: one for the variant with Python, one
// for that with OpenCode, and one for all others.
const (
	plainTemplate    = "cloudflare-sandbox"
	pythonTemplate   = "cloudflare-sandbox-python"
	opencodeTemplate = "cloudflare-sandbox-opencode"
)

// madeOfVariable says in a template which root it was made of, if its own is another.
const madeOfVariable = "BERTH_MADE_OF"

// ownTemplate is the template that stands for a variant of the vendor's image.
func ownTemplate(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	switch {
	case strings.HasSuffix(ref, "-python"):
		return pythonTemplate
	case strings.HasSuffix(ref, "-opencode"):
		return opencodeTemplate
	}
	return plainTemplate
}

// IsOwn reports whether a template stands for the vendor's image: nobody else makes
// it.
func IsOwn(template string) bool {
	return template == plainTemplate || template == pythonTemplate || template == opencodeTemplate
}

// stale reports whether a template that stands for the vendor's image was made of one
// that is another by now, or otherwise than it would be now.
func (d *Dialect) stale(ctx context.Context, t *sandbox.Template) bool {
	req, err := OwnImage(ctx, t.Name, d.engine.Template)
	if err != nil || !strings.HasPrefix(t.Source, "template:") {
		return false // somebody has made one of their own
	}
	env := req.Steps[0].Env
	if t.Env[cloudflare.PoolVariable] != env[cloudflare.PoolVariable] || t.Env[madeOfVariable] != env[madeOfVariable] {
		return true
	}
	if t.Env[madeOfVariable] != "" {
		return false
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

// finder finds a template by its name.
type finder func(ctx context.Context, name string) (sandbox.Template, error)

// OwnImage asks for a template that stands for the vendor's image: made of what the server
// has of all that that image's users expect.
func OwnImage(ctx context.Context, name string, find finder) (sandbox.BuildRequest, error) {
	from, err := best(ctx, find)
	if err != nil {
		return sandbox.BuildRequest{}, err
	}
	env := map[string]string{"SANDBOX_VERSION": cloudflare.ClientVersion, cloudflare.PoolVariable: cloudflare.NoPool}
	steps := []sandbox.BuildStep{{Env: env}, {User: "root"}, {Workdir: sandbox.DefaultWorkdir}}
	switch name {
	case pythonTemplate:
		env[cloudflare.PoolVariable] = "3"
	case opencodeTemplate:
		env[madeOfVariable] = from.Digest
		steps = append(steps, sandbox.BuildStep{Text: "install opencode", Run: &sandbox.RunStep{Argv: []string{"sh", "-c", installOpencode}}})
	}
	return sandbox.BuildRequest{Name: name, From: "template:" + from.Name, Steps: steps, Entrypoint: []string{serverProgram}}, nil
}

// best is the template of the server's that has most: with interpreters for code, and with
// the program that mounts buckets, or else its plain one.
func best(ctx context.Context, find finder) (sandbox.Template, error) {
	code, err := find(ctx, sandbox.CodeTemplate)
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return code, err
	}
	without := err != nil
	buckets, err := find(ctx, sandbox.BucketTemplate)
	switch {
	case err == nil && (without || strings.Contains(buckets.Source, "+code")):
		return buckets, nil
	case err != nil && sandbox.KindOf(err) != sandbox.NotFound:
		return buckets, err
	case !without:
		return code, nil
	}
	base, err := find(ctx, sandbox.DefaultTemplate)
	if sandbox.KindOf(err) == sandbox.NotFound { // the build makes it, or says how to
		return sandbox.Template{Name: sandbox.DefaultTemplate}, nil
	}
	return base, err
}

// installOpencode installs the program from its registry, as the vendor's image has it.
const installOpencode = `npm install --global --no-audit --no-fund --no-update-notifier --cache /tmp/npm opencode-ai && rm -rf /tmp/npm && opencode --version`
