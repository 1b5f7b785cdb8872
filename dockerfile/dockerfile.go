// Package dockerfile reads Dockerfiles into the stages of a template's build.
package dockerfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/berth-dev/berth/sandbox"
)

// Input is a Dockerfile, and what it is read with.
type Input struct {
	Text   string
	Args   map[string]string // of ARG
	Target string            // name or number of a stage; "" means the last

	// Base resolves what a FROM names that is no stage: how a build stage says it,
	// and what its processes are given.
	Base func(ctx context.Context, name string) (Base, error)
}

// Base is what a stage begins with.
type Base struct {
	From    string // for sandbox.BuildStage
	Env     map[string]string
	Workdir string // "" means the root

	// Entrypoint and Cmd are what an image inherits that says nothing of them.
	Entrypoint, Cmd []string
}

// Plan is what a Dockerfile asks for.
type Plan struct {
	Stages []sandbox.BuildStage // those that the last one needs, each before who needs it
	Start  []string             // ENTRYPOINT and CMD of the last stage itself; nil if it has none

	Entrypoint, Cmd []string // the two parts of Start
	Ready           string   // a line for a shell, of its HEALTHCHECK; or ""
}

// Parse reads a Dockerfile. Invalid: it cannot be read, names a stage that is not
// there, or misses what it needs. Unsupported: an instruction or a flag that is
// not served; the error says what to do in its place.
func Parse(ctx context.Context, in Input) (Plan, error) {
	plan, err := parse(ctx, in)
	if err != nil {
		return Plan{}, &sandbox.Error{Op: "read Dockerfile", Err: err}
	}
	return plan, nil
}

func parse(ctx context.Context, in Input) (Plan, error) {
	result, err := parser.Parse(strings.NewReader(in.Text))
	if err != nil {
		return Plan{}, invalid(err)
	}
	stages, meta, err := instructions.Parse(result.AST, nil)
	if err != nil {
		return Plan{}, invalid(err)
	}
	if len(stages) > maxStages {
		return Plan{}, sandbox.Errorf("", sandbox.Invalid, "it has %d stages, at most %d are taken", len(stages), maxStages)
	}
	target := len(stages) - 1
	if in.Target != "" {
		var ok bool
		if target, ok = instructions.HasStage(stages, in.Target); !ok {
			return Plan{}, &sandbox.Error{Kind: sandbox.Invalid, Err: fmt.Errorf("no stage %q", in.Target), Hint: "target names one of its stages, or a number from 0"}
		}
	}
	r := &reader{ctx: ctx, in: in, lex: shell.NewLex(result.EscapeToken), stages: stages, done: map[int]*stage{}, images: map[string]int{}, args: map[string]string{}}
	if err := r.meta(meta); err != nil {
		return Plan{}, err
	}
	last, err := r.stage(target)
	if err != nil {
		return Plan{}, err
	}
	return Plan{Stages: r.plan, Start: last.start(), Entrypoint: last.entrypoint, Cmd: last.cmd, Ready: last.ready}, nil
}

const maxStages = 100

// invalid is an error of the parser's, with the line that it is about.
func invalid(err error) error {
	text := err.Error()
	var at *parser.ErrorLocation
	if errors.As(err, &at) && len(at.Locations) > 0 && len(at.Locations[0]) > 0 {
		text = fmt.Sprintf("line %d: %s", at.Locations[0][0].Start.Line, text)
	}
	return &sandbox.Error{Kind: sandbox.Invalid, Err: errors.New(text)}
}

func unsupported(hint, format string, args ...any) error {
	return &sandbox.Error{Kind: sandbox.Unsupported, Err: fmt.Errorf(format, args...), Hint: hint}
}

// reader is one Dockerfile under way.
type reader struct {
	ctx    context.Context
	in     Input
	lex    *shell.Lex
	stages []instructions.Stage
	args   map[string]string // before the first FROM
	done   map[int]*stage    // by number in the file
	images map[string]int    // stages of the plan that are images which only copies name
	plan   []sandbox.BuildStage
}

// meta reads the ARGs before the first FROM.
func (r *reader) meta(all []instructions.ArgCommand) error {
	for _, cmd := range all {
		if err := cmd.Expand(r.expander(r.args)); err != nil {
			return invalid(err)
		}
		for _, a := range cmd.Args {
			if value, ok := r.argument(a, nil); ok {
				r.args[a.Key] = value
			}
		}
	}
	return nil
}

// argument is the value of an ARG: the caller's, the one from before the first
// FROM, or its default.
func (r *reader) argument(a instructions.KeyValuePairOptional, before map[string]string) (string, bool) {
	if value, ok := r.in.Args[a.Key]; ok {
		return value, true
	}
	if a.Value != nil {
		return *a.Value, true
	}
	value, ok := before[a.Key]
	return value, ok
}

// expander replaces variables in a word.
func (r *reader) expander(env map[string]string) instructions.SingleWordExpander {
	return func(word string) (string, error) {
		out, _, err := r.lex.ProcessWord(word, variables(env))
		return out, err
	}
}

// variables are the names that a word may use.
type variables map[string]string

func (v variables) Get(name string) (string, bool) { value, ok := v[name]; return value, ok }
func (v variables) Keys() []string                 { return slices.Sorted(maps.Keys(v)) }

// stage reads the n-th stage and those that it needs.
func (r *reader) stage(n int) (*stage, error) {
	if s := r.done[n]; s != nil {
		return s, nil
	}
	src := &r.stages[n]
	name, _, err := r.lex.ProcessWord(src.BaseName, variables(r.args))
	if err != nil {
		return nil, invalid(err)
	}
	if name == "" {
		return nil, &sandbox.Error{Kind: sandbox.Invalid, Err: fmt.Errorf("stage %d begins with nothing", n), Hint: "give the ARG that its FROM names a value"}
	}
	if src.Platform != "" && !strings.Contains(src.Platform, "$") && !strings.HasPrefix(src.Platform, "linux") {
		return nil, unsupported("build for linux", "platform %.40q", src.Platform)
	}
	s := &stage{reader: r, index: n, env: map[string]string{}, args: map[string]string{}, shell: []string{"/bin/sh", "-c"}, workdir: "/"}
	s.built.Name = src.Name
	if before, ok := instructions.HasStage(r.stages[:n], name); ok {
		err = s.goOn(before)
	} else {
		err = s.begin(name)
	}
	if err != nil {
		return nil, err
	}
	for _, cmd := range src.Commands {
		if err := s.command(cmd); err != nil {
			return nil, at(cmd, err)
		}
	}
	r.done[n] = s
	s.number = len(r.plan)
	r.plan = append(r.plan, s.built)
	return s, nil
}

// at puts the line of an instruction before an error.
func at(cmd instructions.Command, err error) error {
	where := cmd.Name()
	if l := cmd.Location(); len(l) > 0 {
		where = fmt.Sprintf("line %d, %s", l[0].Start.Line, strings.ToUpper(cmd.Name()))
	}
	return &sandbox.Error{Op: where, Err: err}
}

// image is the number in the plan of an image that a copy takes from.
func (r *reader) image(name string) (int, error) {
	if n, ok := r.images[name]; ok {
		return n, nil
	}
	base, err := r.in.Base(r.ctx, name)
	if err != nil {
		return 0, err
	}
	r.images[name] = len(r.plan)
	r.plan = append(r.plan, sandbox.BuildStage{From: base.From})
	return r.images[name], nil
}

// firstLine is what people call an instruction.
func firstLine(cmd fmt.Stringer) string {
	text, _, _ := strings.Cut(cmd.String(), "\n")
	if len(text) > 200 {
		text = text[:200] + "..."
	}
	return string(bytes.ToValidUTF8([]byte(text), []byte("\uFFFD")))
}
