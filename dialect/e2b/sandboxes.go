package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Timeouts of creates that name none, in seconds.
const (
	firstTimeout  = 15
	secondTimeout = 300
)

func (d *Dialect) createFirst(w http.ResponseWriter, r *http.Request) error {
	return d.create(w, r, firstTimeout, true)
}

func (d *Dialect) createSecond(w http.ResponseWriter, r *http.Request) error {
	return d.create(w, r, secondTimeout, false)
}

// create makes a sandbox. In the first version of the API the guest's services
// ask for a token only if the client says so.
func (d *Dialect) create(w http.ResponseWriter, r *http.Request, timeout int64, first bool) error {
	var n newSandbox
	if err := decode(w, r, &n); err != nil {
		return err
	}
	req, err := n.request(timeout)
	if err != nil {
		return err
	}
	if first && (n.Secure == nil || !*n.Secure) {
		req.Metadata[metaInsecure] = "true"
	}
	if err := d.haveSecrets(r.Context(), req.Policy); err != nil {
		return err
	}
	if err := d.orSnapshot(r.Context(), &req); err != nil {
		return err
	}
	s, err := d.once(r, &n, &req, func() (sandbox.Sandbox, error) {
		s, err := d.engine.Create(r.Context(), req)
		if sandbox.KindOf(err) == sandbox.NotFound && len(req.Volumes) == 0 {
			return s, &fault{status: http.StatusNotFound, text: fmt.Sprintf("template '%s' not found", printable(n.TemplateID)), err: err}
		}
		if err == nil {
			err = d.noted(r.Context(), &s)
		}
		return s, err
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, d.created(s))
	return nil
}

// orSnapshot makes a create start from the snapshot of its template's name, if
// there is one and no template, or from the template that the name means here.
func (d *Dialect) orSnapshot(ctx context.Context, req *sandbox.CreateRequest) error {
	_, err := d.engine.Template(ctx, req.Template)
	if kind := sandbox.KindOf(err); kind != sandbox.NotFound && kind != sandbox.Invalid {
		return err
	}
	id, ok, err := d.snapshotOf(ctx, req.Template)
	switch {
	case ok:
		req.Template, req.Snapshot, req.Metadata[metaSnapshot] = "", id, id
	case req.Template == codeAlias:
		req.Template = sandbox.CodeTemplate
	case req.Template == sandbox.MCPTemplate:
		// Clients start the gateway in it: where it was not built they say that it could not
		// be started, and remove the sandbox.
		req.Template = sandbox.DefaultTemplate
	}
	return err
}

// request is the create in the engine's words.
func (n *newSandbox) request(timeout int64) (sandbox.CreateRequest, error) {
	req := sandbox.CreateRequest{Template: templateName(n.TemplateID), Env: n.EnvVars, Metadata: map[string]string{metaMade: "true"}}
	if n.TemplateID == "" {
		return req, invalid("templateID is required")
	}
	for k, v := range n.Metadata {
		if err := checkOwn(k); err != nil {
			return req, err
		}
		req.Metadata[k] = v
	}
	if n.Timeout != nil {
		timeout = *n.Timeout
	}
	life, err := lifetime(timeout, n.AutoPause, n.AutoPauseMemory == nil || *n.AutoPauseMemory)
	if err != nil {
		return req, err
	}
	req.Lifetime = life
	wake := n.AutoResume != nil && n.AutoResume.Enabled
	if wake && life.Action == sandbox.ActStop {
		return req, invalid("autoResume needs the memory: it cannot be combined with autoPauseMemory false")
	}
	req.Wake = &wake
	req.Volumes = mounts(n.VolumeMounts)
	if len(n.IAM) > 0 && string(n.IAM) != "null" {
		return req, unsupported("iam: this server issues no workload identities: keep a credential with Secret.create, and add it to requests with network.rules")
	}
	if len(n.Sidecars) > 0 {
		return req, unsupported("sidecars: this server has none; start the program in the sandbox")
	}
	return req, n.reach(&req)
}

// templateName is the server's own name of what a client calls a template or a
// snapshot: without a namespace, and with the tag in its place.
func templateName(id string) string {
	name, tag, _ := strings.Cut(strings.ToLower(id[strings.LastIndexByte(id, '/')+1:]), ":")
	return tagName(name, tag)
}

// lifetime is a timeout in the engine's words: it counts while the sandbox runs.
func lifetime(seconds int64, pause, memory bool) (*sandbox.Lifetime, error) {
	if seconds < 0 || seconds > sandbox.MaxTimer {
		return nil, invalid(fmt.Sprintf("Timeout cannot be greater than %d hours, nor negative", sandbox.MaxTimer/3600))
	}
	l := &sandbox.Lifetime{Seconds: max(1, seconds), Action: sandbox.ActRemove, Running: true}
	switch {
	case pause && memory:
		l.Action = sandbox.ActPause
	case pause:
		l.Action = sandbox.ActStop
	}
	return l, nil
}

func (d *Dialect) get(w http.ResponseWriter, r *http.Request) error {
	s, err := d.box(r.Context(), r)
	if err != nil {
		return err
	}
	out := d.detail(s)
	out.Network, out.AllowInternetAccess = networkOf(&s)
	if out.VolumeMounts, err = d.mountsOf(r.Context(), &s); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (d *Dialect) kill(w http.ResponseWriter, r *http.Request) error {
	s, err := d.box(r.Context(), r)
	if err != nil {
		return err
	}
	switch err := d.engine.Remove(r.Context(), string(s.ID)); {
	case sandbox.KindOf(err) == sandbox.NotFound:
		return notFound(string(s.ID))
	case err != nil:
		return err
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}

// pause puts a sandbox aside, with its memory or without.
func (d *Dialect) pause(w http.ResponseWriter, r *http.Request) error {
	var body timeoutBody
	if err := decode(w, r, &body); err != nil {
		return err
	}
	s, err := d.box(r.Context(), r)
	if err != nil {
		return err
	}
	if stateOf(s.State) == "paused" {
		return &fault{status: http.StatusConflict, text: fmt.Sprintf("sandbox '%s' is already paused", s.ID)}
	}
	verb := d.engine.Pause
	if body.Memory != nil && !*body.Memory {
		verb = d.engine.Stop
	}
	if _, err := verb(r.Context(), string(s.ID)); err != nil {
		return err
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}

// connect makes sure that a sandbox runs, for as long as the timeout at least.
func (d *Dialect) connect(w http.ResponseWriter, r *http.Request) error {
	var body timeoutBody
	if err := decode(w, r, &body); err != nil {
		return err
	}
	s, err := d.box(r.Context(), r)
	if err != nil {
		return err
	}
	timeout := int64(secondTimeout)
	if body.Timeout != nil {
		timeout = *body.Timeout
	}
	if stateOf(s.State) == "running" {
		if s, err = d.extend(r.Context(), s, timeout, false); err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, d.created(s))
		return nil
	}
	if s, err = d.wake(r.Context(), s, timeout, body); err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, d.created(s))
	return nil
}

func (d *Dialect) resume(w http.ResponseWriter, r *http.Request) error {
	var body timeoutBody
	if err := decode(w, r, &body); err != nil {
		return err
	}
	s, err := d.box(r.Context(), r)
	if err != nil {
		return err
	}
	if stateOf(s.State) == "running" {
		return &fault{status: http.StatusConflict, text: fmt.Sprintf("sandbox '%s' is already running", s.ID)}
	}
	timeout := int64(firstTimeout)
	if body.Timeout != nil {
		timeout = *body.Timeout
	}
	if s, err = d.wake(r.Context(), s, timeout, body); err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, d.created(s))
	return nil
}

// wake lets a sandbox that was put aside run for the timeout from now.
func (d *Dialect) wake(ctx context.Context, s sandbox.Sandbox, timeout int64, body timeoutBody) (sandbox.Sandbox, error) {
	pause := s.Lifetime != nil && s.Lifetime.Then() != sandbox.ActRemove
	if body.AutoPause != nil {
		pause = *body.AutoPause
	}
	life, err := lifetime(timeout, pause, s.Lifetime == nil || s.Lifetime.Then() != sandbox.ActStop)
	if err != nil {
		return s, err
	}
	id := string(s.ID)
	if _, err := d.engine.Update(ctx, id, sandbox.Update{Lifetime: life}); err != nil {
		return s, err
	}
	if s.State == sandbox.Paused && body.Memory != nil && !*body.Memory { // its disk alone
		if s, err = d.engine.Stop(ctx, id); err != nil {
			return s, err
		}
	}
	if s.State == sandbox.Stopped {
		return d.engine.Start(ctx, id)
	}
	return d.engine.Resume(ctx, id)
}

// extend lets a running sandbox live for seconds from now. Without force it never
// shortens what is left.
func (d *Dialect) extend(ctx context.Context, s sandbox.Sandbox, seconds int64, force bool) (sandbox.Sandbox, error) {
	action := sandbox.ActRemove
	if s.Lifetime != nil {
		action = s.Lifetime.Then()
	}
	life, err := lifetime(seconds, action != sandbox.ActRemove, action != sandbox.ActStop)
	if err != nil {
		return s, err
	}
	now := time.Now()
	end := now.Add(time.Duration(seconds) * time.Second)
	if left := s.Ends(); !force && (left.IsZero() || !end.After(left)) {
		return s, nil
	}
	if !s.Started.IsZero() { // the time counts from there
		life.Seconds = max(1, int64((end.Sub(s.Started)+time.Second/2)/time.Second))
	}
	return d.engine.Update(ctx, string(s.ID), sandbox.Update{Lifetime: life})
}

func (d *Dialect) setTimeout(w http.ResponseWriter, r *http.Request) error {
	var body timeoutBody
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if body.Timeout == nil {
		return invalid("timeout is required")
	}
	return d.prolong(w, r, *body.Timeout, true)
}

func (d *Dialect) refresh(w http.ResponseWriter, r *http.Request) error {
	var body timeoutBody
	if err := decode(w, r, &body); err != nil {
		return err
	}
	seconds := int64(firstTimeout)
	if body.Duration != nil {
		seconds = *body.Duration
	}
	return d.prolong(w, r, seconds, false)
}

func (d *Dialect) prolong(w http.ResponseWriter, r *http.Request, seconds int64, force bool) error {
	s, err := d.box(r.Context(), r)
	if err != nil {
		return err
	}
	if stateOf(s.State) != "running" {
		return notFound(string(s.ID))
	}
	if _, err := d.extend(r.Context(), s, seconds, force); err != nil {
		return err
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}

// reach settles what the sandbox may reach, and who may reach it.
func (n *newSandbox) reach(req *sandbox.CreateRequest) error {
	net := n.Network
	if net == nil {
		net = &network{}
	}
	if net.AllowInternet == nil {
		net.AllowInternet = n.AllowInternet
	}
	policy, err := net.policy()
	if err != nil {
		return err
	}
	req.Policy = policy
	if net.AllowPublicTraffic != nil && !*net.AllowPublicTraffic {
		req.Metadata[metaPrivate] = "true"
	}
	if net.MaskRequestHost != "" {
		req.Metadata[metaHost] = net.MaskRequestHost
	}
	if len(net.HTTPSPorts) > 0 {
		var ports []string
		for _, p := range net.HTTPSPorts {
			ports = append(ports, strconv.Itoa(p))
		}
		req.Metadata[metaTLS] = strings.Join(ports, ",")
	}
	return net.keep(req.Metadata)
}

// keep notes what was asked for, to be shown again. The rules are in the policy.
func (n network) keep(m map[string]string) error {
	n.Rules = nil
	b, err := json.Marshal(n)
	if err != nil {
		return invalid("network: " + err.Error())
	}
	if string(b) != "{}" {
		m[metaNetwork] = string(b)
	}
	return nil
}

// networkOf is what was asked for of a sandbox's network.
func networkOf(s *sandbox.Sandbox) (*network, *bool) {
	text, rules := s.Metadata[metaNetwork], rulesOf(s.Policy)
	if text == "" && rules == nil {
		return nil, nil
	}
	n := network{Rules: rules}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			return nil, nil // not written by this version
		}
		n.Rules = rules
	}
	internet := n.AllowInternet
	n.AllowInternet = nil
	return &n, internet
}

// checkOwn refuses metadata that this dialect keeps for itself.
func checkOwn(name string) error {
	if strings.HasPrefix(name, ownMetadata) {
		return invalid(fmt.Sprintf("metadata %q: names that begin with %q are the server's own", printable(name), ownMetadata))
	}
	return nil
}

// patchMetadata sets what is given, and takes away what is given as null or empty.
func (d *Dialect) patchMetadata(w http.ResponseWriter, r *http.Request) error {
	var body map[string]*string
	if err := decode(w, r, &body); err != nil {
		return err
	}
	s, err := d.box(r.Context(), r)
	if err != nil {
		return err
	}
	for name, value := range body {
		if err := checkOwn(name); err != nil {
			return err
		}
		if value != nil && *value == "" {
			body[name] = nil
		}
	}
	if _, err := d.engine.Update(r.Context(), string(s.ID), sandbox.Update{Metadata: body}); err != nil {
		return err
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}

func invalid(text string) error     { return &fault{status: http.StatusBadRequest, text: text} }
func unsupported(text string) error { return &fault{status: http.StatusNotImplemented, text: text} }
