package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/dockerfile"
	"github.com/berth-dev/berth/sandbox"
)

// buildVersion changes when equal steps begin to give other roots.
const buildVersion = 2

// buildLife bounds the life of the sandboxes that a build works in: they end even
// if the server is gone when it should end them.
const buildLife = 6 * time.Hour

// building is one template on its way.
type building struct {
	*Engine
	req    sandbox.BuildRequest
	say    func(sandbox.Progress)
	stages []*stage
	start  []string // that the Dockerfile asks for

	entrypoint, cmd []string // that the template keeps
	ready           string
}

// stage is one root on its way. Its steps begin with those of the stage that it
// goes on with.
type stage struct {
	name    string
	base    sandbox.Template
	steps   []sandbox.BuildStep
	keys    []string // of all that goes into the root, after each step
	env     map[string]string
	user    string
	workdir string
	box     sandbox.ID // where it is worked on; "" until then
}

// key names all that goes into the stage's root.
func (s *stage) key() string {
	if len(s.keys) == 0 {
		return keyOf(s.base.Digest)
	}
	return s.keys[len(s.keys)-1]
}

// keyOf hashes what goes into a root.
func keyOf(parts ...any) string {
	b, err := json.Marshal(append([]any{buildVersion}, parts...))
	if err != nil {
		panic(err) // callers pass what came from JSON
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// construct builds a template in steps. What it needed is gone when it returns,
// but for snapshots that spare the next build the same steps.
func (e *Engine) construct(ctx context.Context, req sandbox.BuildRequest, say func(sandbox.Progress)) (t sandbox.Template, err error) {
	ctx = withBuild(ctx)
	b := &building{Engine: e, req: req, say: say}
	defer func() { err = errors.Join(err, b.clear(ctx)) }()
	if err := b.plan(ctx); err != nil {
		return t, err
	}
	last := b.stages[len(b.stages)-1]
	if t, err = b.root(ctx, last); err != nil {
		return t, err
	}
	t.Name, t.Policy, t.Limits, t.Created, t.Build = req.Name, req.Policy, req.Limits, e.now().UTC().Round(0), buildOf(ctx)
	t.Entrypoint, t.Cmd = b.entrypoint, b.cmd
	before, err := e.templates.Get(ctx, req.Name)
	if kind := sandbox.KindOf(err); err != nil && kind != sandbox.NotFound && kind != sandbox.Internal {
		return t, err
	}
	if err := b.begin(ctx, &t, before); err != nil {
		return t, &startError{err}
	}
	if err := e.templates.Assign(ctx, t); err != nil {
		return t, errors.Join(err, e.unstart(ctx, t, before))
	}
	if before.Snapshot != t.Snapshot {
		return t, e.dropStarted(ctx, before)
	}
	return t, nil
}

// dropStarted removes what the sandboxes of a template went on from, unless another
// name has it too.
func (e *Engine) dropStarted(ctx context.Context, t sandbox.Template) error {
	if t.Snapshot == "" {
		return nil
	}
	if shared, err := e.hasStarted(ctx, t.Snapshot); err != nil || shared {
		return err
	}
	err := e.RemoveSnapshot(ctx, string(t.Snapshot))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil // somebody has removed it, or it is another account's
	}
	return err
}

type buildKey struct{}

// withBuild marks the sandboxes that are made with a context: a server that finds
// them when it starts removes them.
func withBuild(ctx context.Context) context.Context { return context.WithValue(ctx, buildKey{}, true) }

type buildIDKey struct{}

// withBuildID notes the build that works with a context, for the template it makes.
func withBuildID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, buildIDKey{}, id)
}

func buildOf(ctx context.Context) string {
	id, _ := ctx.Value(buildIDKey{}).(string)
	return id
}

func forBuild(ctx context.Context) bool { return ctx.Value(buildKey{}) != nil }

// plan settles the stages and the keys of their steps.
func (b *building) plan(ctx context.Context) error {
	stages := []sandbox.BuildStage{{From: b.req.From, Steps: b.req.Steps}}
	if b.req.Dockerfile != "" {
		p, err := dockerfile.Parse(ctx, dockerfile.Input{Text: b.req.Dockerfile, Args: b.req.Args, Target: b.req.Target, Base: b.base})
		if err != nil {
			return err
		}
		stages, b.start, b.ready = p.Stages, p.Start, p.Ready
		if b.req.Hold {
			b.start, b.ready, b.entrypoint, b.cmd = nil, "", p.Entrypoint, p.Cmd
		}
	}
	if len(b.req.Entrypoint)+len(b.req.Cmd) > 0 {
		b.entrypoint, b.cmd = b.req.Entrypoint, b.req.Cmd
	}
	for _, one := range stages {
		s, err := b.planStage(ctx, one)
		if err != nil {
			return err
		}
		b.stages = append(b.stages, s)
	}
	return nil
}

// base resolves what a Dockerfile's FROM names: a template, else an image.
func (b *building) base(ctx context.Context, name string) (dockerfile.Base, error) {
	from := name
	if own := b.req.Images[name]; own != "" {
		if _, err := b.templates.Get(ctx, own); sandbox.KindOf(err) != sandbox.NotFound {
			name = own
		}
	}
	if form, _, ok := strings.Cut(name, ":"); name != sandbox.FromScratch && (!ok || !isSource(form)) {
		_, err := b.templates.Get(ctx, name)
		switch kind := sandbox.KindOf(err); {
		case err == nil:
			from = "template:" + name
		case kind == sandbox.NotFound || kind == sandbox.Invalid:
			from = "oci:" + name
		default:
			return dockerfile.Base{}, err
		}
	}
	t, err := b.from(ctx, from)
	if err != nil {
		return dockerfile.Base{}, err
	}
	env := maps.Clone(t.Env)
	if env == nil {
		env = map[string]string{}
	}
	if env["PATH"] == "" {
		env["PATH"] = sandbox.DefaultPath
	}
	base := dockerfile.Base{From: from, Env: env, Workdir: t.Workdir}
	if b.req.Hold {
		base.Entrypoint, base.Cmd = t.Entrypoint, t.Cmd
	}
	return base, nil
}

func isSource(form string) bool {
	switch form {
	case "distribution", "oci", "oci-archive", "docker-archive", "template":
		return true
	}
	return false
}

// from finds or makes the root image that a stage begins with.
func (b *building) from(ctx context.Context, from string) (sandbox.Template, error) {
	if name, ok := strings.CutPrefix(from, "template:"); ok {
		t, err := b.templates.Get(ctx, name)
		return t, withHint(err, sandbox.NotFound, "berth template ls lists the templates")
	}
	return b.templates.Import(ctx, from, b.req.Login, false, b.say)
}

func (b *building) planStage(ctx context.Context, one sandbox.BuildStage) (*stage, error) {
	s := &stage{name: one.Name, env: map[string]string{}, user: "root"}
	if n, ok := strings.CutPrefix(one.From, "stage:"); ok {
		before, err := b.numbered(n)
		if err != nil {
			return nil, err
		}
		s.base, s.steps, s.keys = before.base, append(s.steps, before.steps...), append(s.keys, before.keys...)
		s.env, s.user, s.workdir = maps.Clone(before.env), before.user, before.workdir
	} else {
		t, err := b.from(ctx, one.From)
		if err != nil {
			return nil, err
		}
		s.base, s.workdir = t, t.Workdir
		maps.Copy(s.env, t.Env)
		if t.User != "" {
			s.user = t.User
		}
		s.user, s.workdir = orElse(b.req.User, s.user), orElse(b.req.Workdir, s.workdir)
	}
	for i := range one.Steps {
		step := one.Steps[i]
		key := keyOf(append([]any{s.key(), step, s.env, s.user, s.workdir}, b.reaches()...)...)
		if step.Copy != nil {
			content, err := b.contentKey(ctx, step.Copy)
			if err != nil {
				return nil, &stepError{len(s.steps) + 1, describe(&step), fail(b.stepName(s, i), "", err)}
			}
			key = keyOf(key, content)
		}
		s.steps, s.keys = append(s.steps, step), append(s.keys, key)
		s.settle(&step)
	}
	return s, nil
}

// reaches is what the steps may reach, as a part of their keys: a step that was done
// under another policy might not be able to under this one.
func (b *building) reaches() []any {
	if b.req.Policy == nil {
		return nil
	}
	return []any{b.req.Policy}
}

// numbered is the stage of a number, which must come before.
func (b *building) numbered(n string) (*stage, error) {
	i, err := strconv.Atoi(n)
	if err != nil || i < 0 || i >= len(b.stages) {
		return nil, &sandbox.Error{Op: "find stage", Kind: sandbox.Invalid, Err: fmt.Errorf("no stage %.20q before this one", n), Hint: "stages go on with earlier ones"}
	}
	return b.stages[i], nil
}

// settle takes over what a step says of the processes that come after it.
func (s *stage) settle(step *sandbox.BuildStep) {
	switch {
	case step.Env != nil:
		maps.Copy(s.env, step.Env)
	case step.Workdir != "":
		s.workdir = step.Workdir
	case step.User != "":
		s.user = step.User
	}
}

// root makes the root image of a stage, or finds the one that was made of the same
// things.
func (b *building) root(ctx context.Context, s *stage) (sandbox.Template, error) {
	like := sandbox.Template{Env: s.env, Workdir: s.workdir, User: orElse(b.req.User, s.base.User), Source: b.source()}
	for _, step := range s.steps {
		like.User = orElse(step.User, like.User)
	}
	key := keyOf("root", s.key(), like.Env, like.User, like.Workdir)
	if !slices.ContainsFunc(s.steps, changesRoot) {
		like.Digest, like.Size = s.base.Digest, s.base.Size
		return like, nil
	}
	if !b.req.Force {
		if t, ok, err := b.templates.Made(ctx, key); err != nil || ok {
			t.Source = like.Source
			return t, err
		}
	}
	if err := b.work(ctx, s); err != nil {
		return sandbox.Template{}, err
	}
	b.say(sandbox.Progress{Step: "write root"})
	stream, err := b.Archive(ctx, string(s.box), "/", sandbox.ArchiveOptions{Excludes: notOfRoot})
	if err != nil {
		return sandbox.Template{}, err
	}
	t, err := b.templates.Pack(ctx, like, key, stream, b.say)
	return t, errors.Join(err, stream.Close())
}

// changesRoot reports whether a step may leave another root behind, not only other
// words about its processes.
func changesRoot(step sandbox.BuildStep) bool {
	switch step.Workdir {
	case "", sandbox.DefaultWorkdir, sandbox.DefaultHome, "/": // in every root
		return step.Run != nil || step.Copy != nil || makesUser(&step)
	}
	return true
}

// notOfRoot is what a running sandbox has in its tree that belongs to no root.
var notOfRoot = []string{"proc/*", "sys/*", "dev/*", ".berth/*", "run/*"}

func (b *building) source() string {
	if b.req.Dockerfile != "" {
		return "dockerfile"
	}
	return b.req.From
}

// stepName is how people are told of a step.
func (b *building) stepName(s *stage, i int) string {
	text := ""
	if i < len(s.steps) {
		text = ": " + describe(&s.steps[i])
	}
	name := fmt.Sprintf("step %d", i+1)
	if len(b.stages) > 0 && s.name != "" {
		name = s.name + ", " + name
	}
	return name + text
}

func describe(step *sandbox.BuildStep) string {
	switch {
	case step.Text != "":
		return step.Text
	case step.Run != nil:
		return "run " + strings.Join(step.Run.Argv, " ")
	case step.Copy != nil:
		return fmt.Sprintf("copy %s to %s", strings.Join(step.Copy.Sources, " "), step.Copy.To)
	case step.Workdir != "":
		return "workdir " + step.Workdir
	case step.User != "":
		return "user " + step.User
	}
	return "environment"
}

// clear removes the sandboxes that were worked in. One that cannot be removed is tried
// once more; if that fails too, it goes when its time is over.
func (b *building) clear(ctx context.Context) error {
	ctx, cancel := bounded(ctx, stopTime)
	defer cancel()
	var errs []error
	for _, s := range b.stages {
		if s.box == "" {
			continue
		}
		if err := b.removeBox(ctx, s.box); err == nil {
			continue
		}
		if err := b.removeBox(ctx, s.box); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (b *building) removeBox(ctx context.Context, box sandbox.ID) error {
	err := b.Remove(ctx, string(box))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	return err
}

// drain reads a stream of a command's output to its end and returns the exit. Each
// line is said; the last ones come back too.
func drain(events sandbox.Events, line func(string)) (exit *sandbox.Exit, last string, err error) {
	defer func() { err = errors.Join(err, events.Close()) }()
	var rest string
	tell := func(one string) {
		one = strings.ToValidUTF8(one[:min(len(one), maxLogLine)], "\uFFFD")
		last = tailOf(last + one + "\n")
		line(one)
	}
	for {
		ev, err := events.Recv()
		if err == io.EOF {
			if rest != "" { // output may come behind the exit
				tell(rest)
			}
			return exit, last, nil
		}
		if err != nil {
			return exit, last, err
		}
		if ev.Exit != nil {
			exit = ev.Exit
		}
		rest += string(ev.Data)
		for {
			one, more, ok := strings.Cut(rest, "\n")
			if !ok && (ev.Exit == nil && len(rest) < maxLogLine || rest == "") {
				break
			}
			rest = more
			tell(one)
		}
	}
}

const (
	maxLogLine = 4096
	maxLogTail = 2048
)

func tailOf(s string) string { return s[max(0, len(s)-maxLogTail):] }
