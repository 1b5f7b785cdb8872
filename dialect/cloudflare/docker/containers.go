package docker

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// serverProgram is the vendor's own program in an image: what it would serve is
// served from outside, and what follows it is run.
const serverProgram = "/sandbox"

// isServerProgram reports whether a container's command begins with that, by the name
// that it is to be copied to or by its own.
func isServerProgram(argv []string) bool {
	if len(argv) == 0 {
		return false
	}
	p := path.Clean(argv[0])
	return p == serverProgram || p == "/container-server/sandbox"
}

// create makes a container, or a sidecar, which then waits to be started.
func (d *Dialect) create(w http.ResponseWriter, r *http.Request) error {
	var b createBody
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	name := strings.TrimPrefix(r.URL.Query().Get("name"), "/")
	if name == "" {
		name = "berth-" + strings.ToLower(string(sandbox.NewID()))
	}
	if err := checkName(name); err != nil {
		return err
	}
	unlock, err := d.names.lock(r.Context(), name)
	if err != nil {
		return err
	}
	defer unlock()
	id := ""
	if isSidecar(&b) {
		id, err = d.createSidecar(r.Context(), name, &b)
	} else {
		id, err = d.createContainer(r.Context(), name, &b)
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, map[string]any{"Id": id, "Warnings": []string{}})
	return nil
}

func (d *Dialect) createContainer(ctx context.Context, name string, b *createBody) (id string, err error) {
	if d.sidecar(name) != nil {
		return "", taken(name)
	}
	if err := checkHost(&b.HostConfig); err != nil {
		return "", err
	}
	img, err := d.image(ctx, b.Image)
	if err != nil {
		return "", err
	}
	st, err := d.planned(name, img, b)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(name, workerdPrefix) {
		st.Owner = ownerOf(ctx)
	}
	volumes, err := volumesOf(&b.HostConfig)
	if err != nil {
		return "", err
	}
	old, err := d.find(ctx, name)
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound:
	case err != nil:
		return "", err
	case !d.forget: // also one that runs: its maker has lost sight of it while no server answered
		if old.Image == st.Image && old.box.Image == img.digest && len(volumes)+len(old.box.Volumes) == 0 && !old.Doubt {
			return d.adopt(ctx, old, st, b.Env)
		}
		if err := d.engine.Remove(ctx, string(old.box.ID)); err != nil { // its image is another by now, or what it begins with; or it was ended for good
			return "", err
		}
	default:
		return "", taken(name)
	}
	return d.make(ctx, st, img, b.Env, volumes)
}

func taken(name string) error {
	return &sandbox.Error{Op: "create container", Kind: sandbox.Conflict, Err: fmt.Errorf("The container name %q is already in use", name),
		Hint: "remove it, or take another name"}
}

// checkHost refuses what would give a container a part of the host.
func checkHost(h *hostConfig) error {
	if h.Privileged {
		return unsupported("give privileges", "a sandbox has none over its host")
	}
	if slices.ContainsFunc(h.Devices, func(d hostDevice) bool { return d.PathOnHost != fuseDevice }) {
		return unsupported("give devices", "a sandbox has none of its host")
	}
	return nil
}

// fuseDevice is what those ask for who want to mount FUSE file systems: every container may,
// and its device is the sandbox's own.
const fuseDevice = "/dev/fuse"

// planned is what is kept of a new container.
func (d *Dialect) planned(name string, img *image, b *createBody) (*state, error) {
	st := &state{Name: name, Image: b.Image, Phase: created, Dir: b.WorkingDir, User: b.User, Labels: b.Labels}
	if st.User == "" && IsSidecar(b.Image) {
		st.User = "root" // the template that stands for it has another
	}
	entry, cmd := img.entrypoint, img.cmd
	if len(b.Entrypoint) > 0 {
		entry, cmd = b.Entrypoint, nil
	}
	if len(b.Cmd) > 0 {
		cmd = b.Cmd
	}
	st.Argv = append(slices.Clone(entry), cmd...)
	if isServerProgram(st.Argv) && d.server != nil {
		st.Server, st.Argv = true, st.Argv[1:]
	}
	if st.Dir != "" {
		if err := sandbox.CheckPath(st.Dir); err != nil {
			return nil, err
		}
	}
	if name, ok := strings.CutPrefix(b.HostConfig.NetworkMode, "container:"); ok {
		s := d.sidecar(name)
		if s == nil {
			return nil, noContainer(name)
		}
		st.Proxy = s.kept()
	}
	return st, nil
}

// make makes the sandbox of a new container.
func (d *Dialect) make(ctx context.Context, st *state, img *image, lines []string, volumes []sandbox.VolumeMount) (string, error) {
	kept, err := st.encode()
	if err != nil {
		return "", err
	}
	env, err := environment(lines)
	if err != nil {
		return "", err
	}
	req := sandbox.CreateRequest{
		Template: img.template, Snapshot: img.snapshot, Name: boxName(st.Name), Env: env,
		Metadata: kept, Tags: []string{tagMade}, Policy: d.policy(img, st, env), Volumes: volumes,
	}
	if img.snapshot == "" { // which has its own limits
		req.Limits.FuseMounts = sandbox.MaxFuseMounts
		if !img.sized {
			req.Type = d.kind
		}
	}
	s, err := d.engine.Create(ctx, req)
	if err != nil {
		return "", err
	}
	c := &container{state: *st, box: s}
	if err := d.connect(ctx, c); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		if rerr := d.engine.Remove(undo, string(s.ID)); rerr != nil {
			d.log.Error("take a container back", "sandbox", s.ID, "error", rerr)
		}
		return "", err
	}
	return c.idOf(), nil
}

// adopt gives a sandbox that waited to the next container of its name.
func (d *Dialect) adopt(ctx context.Context, old *container, st *state, lines []string) (string, error) {
	env, err := environment(lines)
	if err != nil {
		return "", err
	}
	if !maps.Equal(env, old.box.Env) {
		if old.box, err = d.engine.Update(ctx, string(old.box.ID), sandbox.Update{Env: &env}); err != nil {
			return "", err
		}
	}
	c := &container{state: *st, box: old.box}
	c.Process, c.GoesOn = old.Process, old.box.State == sandbox.Paused || old.Phase == running || old.GoesOn
	if err := d.connect(ctx, c); err != nil {
		return "", err
	}
	return c.idOf(), d.save(ctx, c)
}

// trustVariable tells the vendor's program that what its sidecar certifies is to be
// trusted; to others the certificate alone is given.
const trustVariable = "SANDBOX_INTERCEPT_HTTPS"

// policy is what a container may reach: what its image says, after what its sidecar
// has decided.
func (d *Dialect) policy(img *image, st *state, env map[string]string) *sandbox.Policy {
	if st.Proxy == nil || d.egress == nil {
		return img.policy
	}
	p := sandbox.DefaultPolicy()
	if img.policy != nil {
		p = *img.policy
	}
	p.Divert, p.DivertTLS = DiverterName, env[trustVariable] == "1"
	return &p
}

// environment reads NAME=VALUE lines; the last of a name counts.
func environment(lines []string) (map[string]string, error) {
	env := make(map[string]string, len(lines))
	for _, l := range lines {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			return nil, invalid("%.80q is no NAME=VALUE", l)
		}
		env[name] = value
	}
	return env, nil
}

// inspect describes a container, or a sidecar.
func (d *Dialect) inspect(w http.ResponseWriter, r *http.Request) error {
	name, err := d.named(r)
	if err != nil {
		return err
	}
	if s := d.sidecar(name); s != nil {
		writeJSON(w, http.StatusOK, s.describe())
		return nil
	}
	c, err := d.load(r.Context(), name)
	if sandbox.KindOf(err) == sandbox.NotFound {
		c, err = d.revive(r.Context(), name)
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, c.describe())
	return nil
}

func (c *container) describe() *inspectBody {
	b := &inspectBody{ID: c.idOf(), Name: "/" + c.Name, Created: moment(c.box.Created), Image: c.box.Image, Mounts: []mount{}}
	b.State = stateBody{Status: string(c.Phase), Running: c.Phase == running, ExitCode: c.Code, StartedAt: moment(c.Started), FinishedAt: moment(c.Ended)}
	if c.Phase == running {
		b.State.Pid = 1
	}
	b.Config.Image, b.Config.Cmd, b.Config.Labels = c.Image, c.Argv, orNone(c.Labels)
	for k, v := range c.box.Env {
		b.Config.Env = append(b.Config.Env, k+"="+v)
	}
	slices.Sort(b.Config.Env)
	if c.Proxy != nil {
		b.HostConfig.NetworkMode = "container:" + c.Proxy.Name
	}
	b.NetworkSettings.Ports = map[string][]portBody{}
	return b
}

// containers returns every container, and those of which only the sandbox is left.
func (d *Dialect) containers(ctx context.Context) ([]*container, error) {
	var all []*container
	for after := ""; ; {
		page, err := d.engine.List(ctx, sandbox.ListQuery{Tags: []string{tagMade}, After: after, Limit: sandbox.MaxPage})
		if err != nil {
			return nil, err
		}
		for _, s := range page.Sandboxes {
			c, err := containerOf(s)
			if err != nil {
				d.log.Warn("a sandbox is no container any more", "sandbox", s.ID, "error", err)
				continue
			}
			if s.Name != boxName(c.Name) { // a fork of one: it has what is kept of its parent, and no name
				continue
			}
			all = append(all, c)
		}
		if after = page.Next; after == "" {
			return all, nil
		}
	}
}
