package e2b

import (
	"cmp"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// request is a build in the engine's words, of a template with tags.
func (b *buildBody) request(name string, tags []string) (sandbox.BuildRequest, error) {
	req := sandbox.BuildRequest{Name: tagName(name, tags[0]), Force: b.Force, Start: b.StartCmd, Ready: b.ReadyCmd}
	for _, tag := range tags[1:] {
		req.Also = append(req.Also, tagName(name, tag))
	}
	if b.Registry != nil {
		login, err := b.Registry.login()
		if err != nil {
			return req, err
		}
		if req.Login = login; b.FromImage == "" {
			return req, invalid("fromImageRegistry needs fromImage")
		}
	}
	switch {
	case b.FromTemplate != "" && b.FromImage != "":
		return req, invalid("fromImage and fromTemplate exclude each other")
	case b.FromTemplate != "":
		req.From = "template:" + templateName(b.FromTemplate)
	case b.FromImage == "" || b.FromImage == baseImage || strings.HasPrefix(b.FromImage, baseImage+":"):
		req.From = "template:" + sandbox.DefaultTemplate
	default:
		req.From = "oci:" + b.FromImage
	}
	if req.Ready != "" && req.Start == "" {
		req.Start = ":" // it is asked all the same
	}
	return req, nil
}

// beginning settles who runs the steps of a build, and where: as the template says
// that it begins with, or else as all sandboxes do. What an image says is left out.
func (d *Dialect) beginning(r *http.Request, req *sandbox.BuildRequest) (*buildPlace, error) {
	at := &buildPlace{user: defaultUser, dir: defaultDir}
	if name, ok := strings.CutPrefix(req.From, "template:"); ok {
		t, err := d.engine.Template(r.Context(), name)
		if kind := sandbox.KindOf(err); err != nil && kind != sandbox.NotFound && kind != sandbox.Invalid { // the build itself says so
			return nil, err
		}
		at.user, at.dir = cmp.Or(t.User, at.user), cmp.Or(t.Workdir, at.dir)
	}
	req.User, req.Workdir = at.user, at.dir
	return at, nil
}

// buildPlace is where a step stands: who runs it, and in which folder.
type buildPlace struct{ user, dir string }

// steps are those of a build in the engine's words.
func (p *buildPlace) steps(all []buildStep, force bool) (out []sandbox.BuildStep, _ bool, err error) {
	for i, s := range all {
		step, err := p.step(s)
		if err != nil {
			return nil, false, &fault{status: http.StatusBadRequest, text: fmt.Sprintf("step %d: %s", i+1, err)}
		}
		out, force = append(out, step), force || s.Force
	}
	return out, force, nil
}

func (p *buildPlace) step(s buildStep) (sandbox.BuildStep, error) {
	arg := func(i int) string {
		if i < len(s.Args) {
			return s.Args[i]
		}
		return ""
	}
	out := sandbox.BuildStep{Text: s.Type + " " + strings.Join(s.Args, " ")}
	if s.Type == "RUN" {
		out.Text = runText + arg(0)
	}
	if len(out.Text) > 200 {
		out.Text = out.Text[:200] + "..."
	}
	switch s.Type {
	case "RUN":
		out.Run = &sandbox.RunStep{Argv: []string{"/bin/bash", "-l", "-c", arg(0)}, User: arg(1), Env: map[string]string{pipAnywhere: "1"}}
	case "COPY":
		out.Copy = &sandbox.CopyStep{Sources: []string{arg(0)}, To: p.absolute(arg(1)), From: s.FilesHash, Owner: cmp.Or(arg(2), p.user)}
		if text := arg(3); text != "" {
			n, err := strconv.ParseUint(text, 8, 32)
			if err != nil {
				return out, fmt.Errorf("mode %q is not octal", printable(text))
			}
			mode := uint32(n)
			out.Copy.Mode = &mode
		}
	case "ENV":
		if len(s.Args)%2 != 0 || len(s.Args) == 0 {
			return out, fmt.Errorf("ENV takes names and values in pairs")
		}
		out.Env = map[string]string{}
		for i := 0; i < len(s.Args); i += 2 {
			out.Env[s.Args[i]] = s.Args[i+1]
		}
	case "WORKDIR":
		p.dir = path.Clean(p.absolute(arg(0)))
		out.Workdir = p.dir
	case "USER":
		p.user, out.User, out.NewUser = arg(0), arg(0), true
	default:
		return out, fmt.Errorf("the type %q is not known", printable(s.Type))
	}
	return out, out.Check()
}

// absolute keeps the slash at the end, which means a folder.
func (p *buildPlace) absolute(to string) string {
	if strings.HasPrefix(to, "/") {
		return to
	}
	abs := path.Join(p.dir, to)
	if to == "" || to == "." || strings.HasSuffix(to, "/") || strings.HasSuffix(to, "/.") {
		abs += "/"
	}
	return abs
}
