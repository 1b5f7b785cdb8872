package dockerfile

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// bases knows two roots by name.
func bases(_ context.Context, name string) (Base, error) {
	switch name {
	case "base":
		return Base{From: "template:base", Env: map[string]string{"PATH": "/usr/bin:/bin"}}, nil
	case "python:3.13":
		return Base{From: "oci:python:3.13", Env: map[string]string{"PATH": "/usr/local/bin"}, Workdir: "/srv"}, nil
	}
	return Base{}, sandbox.Errorf("find base", sandbox.NotFound, "no root %q", name)
}

func read(t *testing.T, text string, args ...string) Plan {
	t.Helper()
	in := Input{Text: text, Base: bases, Args: map[string]string{}}
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		in.Args[name] = value
	}
	p, err := Parse(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// said is a step without what people call it.
func said(steps []sandbox.BuildStep) []sandbox.BuildStep {
	out := slices.Clone(steps)
	for i := range out {
		out[i].Text = ""
	}
	return out
}

func TestSteps(t *testing.T) {
	p := read(t, `FROM base
ARG WHO=world
ENV GREETING="hello $WHO" PATH=/opt/bin:$PATH
WORKDIR /app
WORKDIR src
RUN make $GREETING
RUN ["make", "test"]
SHELL ["/bin/bash", "-c"]
RUN one && \
    two
USER 1000
COPY --chown=user:user --chmod=0755 a.txt b* ./
COPY only /etc/only.conf
ADD site.tar.gz /srv
EXPOSE 80
LABEL a=b
CMD ["serve", "--port", "80"]
`)
	mode := uint32(0o755)
	want := []sandbox.BuildStep{
		{Env: map[string]string{"GREETING": "hello world", "PATH": "/opt/bin:/usr/bin:/bin"}},
		{Workdir: "/app"},
		{Workdir: "/app/src"},
		{Run: &sandbox.RunStep{Argv: []string{"/bin/sh", "-c", "make $GREETING"}, Env: map[string]string{"WHO": "world"}}},
		{Run: &sandbox.RunStep{Argv: []string{"make", "test"}, Env: map[string]string{"WHO": "world"}}},
		{Run: &sandbox.RunStep{Argv: []string{"/bin/bash", "-c", "one &&     two"}, Env: map[string]string{"WHO": "world"}}},
		{User: "1000"},
		{Copy: &sandbox.CopyStep{Sources: []string{"a.txt", "b*"}, To: "/app/src/", Owner: "user:user", Mode: &mode}},
		{Copy: &sandbox.CopyStep{Sources: []string{"only"}, To: "/etc/only.conf"}},
		{Copy: &sandbox.CopyStep{Sources: []string{"site.tar.gz"}, To: "/srv", Extract: true}},
	}
	if len(p.Stages) != 1 || p.Stages[0].From != "template:base" {
		t.Fatalf("stages %+v", p.Stages)
	}
	got := said(p.Stages[0].Steps)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("step %d\n got %s\nwant %s", i+1, show(got, i), show(want, i))
		}
	}
	if !slices.Equal(p.Start, []string{"serve", "--port", "80"}) {
		t.Errorf("start %q", p.Start)
	}
}

func show(steps []sandbox.BuildStep, i int) string {
	if i >= len(steps) {
		return "nothing"
	}
	s := steps[i]
	switch {
	case s.Run != nil:
		return strings.Join(s.Run.Argv, "|")
	case s.Copy != nil:
		return strings.Join(s.Copy.Sources, "|") + " to " + s.Copy.To
	}
	return s.Workdir + s.User
}

func TestStages(t *testing.T) {
	const text = `ARG TAG=3.13
FROM python:${TAG} AS deps
RUN pip install x
FROM base AS unused
RUN never
FROM deps AS tested
ENV A=1
ENTRYPOINT ["run"]
HEALTHCHECK --interval=5s CMD curl -sf localhost
FROM base
COPY --from=deps /srv/x /x
COPY --from=python:3.13 /etc/os-release /there
`
	p := read(t, text)
	var from []string
	for _, s := range p.Stages {
		from = append(from, s.From)
	}
	if want := []string{"oci:python:3.13", "oci:python:3.13", "template:base"}; !slices.Equal(from, want) {
		t.Fatalf("stages begin with %q, want %q", from, want)
	}
	last := p.Stages[2].Steps
	if last[0].Copy.From != "stage:0" || last[1].Copy.From != "stage:1" {
		t.Errorf("copies from %q and %q", last[0].Copy.From, last[1].Copy.From)
	}
	in := Input{Text: text, Base: bases, Target: "tested"}
	p, err := Parse(t.Context(), in)
	if err != nil || len(p.Stages) != 2 || p.Stages[1].From != "stage:0" {
		t.Fatalf("%+v, %v", p.Stages, err)
	}
	if p.Ready != "curl -sf localhost" || !slices.Equal(p.Start, []string{"run"}) {
		t.Errorf("start %q, ready %q", p.Start, p.Ready)
	}
	if p := read(t, "ARG BASE\nFROM $BASE", "BASE=base"); p.Stages[0].From != "template:base" {
		t.Errorf("from %q", p.Stages[0].From)
	}
}

func TestDocuments(t *testing.T) {
	p := read(t, "FROM base\nRUN <<END\necho 1\necho 2\nEND\nRUN python3 <<END\nprint(1)\nEND\nCOPY <<one <<two /etc/\nfirst\none\nsecond\ntwo\n")
	steps := p.Stages[0].Steps
	if got := steps[0].Run.Argv[2]; got != "echo 1\necho 2\n" {
		t.Errorf("a script: %q", got)
	}
	if got := steps[1].Run.Argv[2]; got != "python3 <<END\nprint(1)\nEND\n" {
		t.Errorf("input of a program: %q", got)
	}
	want := []sandbox.Inline{{Name: "one", Data: "first\n"}, {Name: "two", Data: "second\n"}}
	if c := steps[2].Copy; !slices.Equal(c.Inline, want) || c.To != "/etc/" {
		t.Errorf("%+v", c)
	}
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]struct {
		kind sandbox.Kind
		says string
	}{
		"":                           {sandbox.Invalid, ""},
		"RUN x":                      {sandbox.Invalid, ""},
		"FROM base\nFETCH x":         {sandbox.Invalid, "line 2"},
		"FROM nowhere":               {sandbox.NotFound, "nowhere"},
		"FROM $X":                    {sandbox.Invalid, "begins with nothing"},
		"FROM base\nONBUILD RUN x":   {sandbox.Unsupported, "line 2, ONBUILD"},
		"FROM base\nADD http://x /y": {sandbox.Unsupported, "network"},
		"FROM base\nRUN --mount=type=secret,id=a x":        {sandbox.Unsupported, "mount"},
		"FROM base AS a\nCOPY --from=b /x /y\nFROM a AS b": {sandbox.Invalid, "not finished"},
		"FROM base\nCOPY --chmod=u+x a b":                  {sandbox.Unsupported, "chmod"},
		"FROM --platform=windows/amd64 base":               {sandbox.Unsupported, "windows"},
	} {
		target := ""
		if strings.HasSuffix(text, "AS b") {
			target = "a"
		}
		_, err := Parse(t.Context(), Input{Text: text, Base: bases, Target: target})
		if sandbox.KindOf(err) != want.kind || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%q: %v (%s), want %s with %q", text, err, sandbox.KindOf(err), want.kind, want.says)
		}
	}
	if _, err := Parse(t.Context(), Input{Text: "FROM base", Base: bases, Target: "none"}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("a target that is not there: %v", err)
	}
}

// FuzzParse: whatever the text, what comes out is a plan whose steps are well
// formed or an error with a kind.
func FuzzParse(f *testing.F) {
	f.Add("FROM base\nRUN <<E\nx\nE\nCOPY --from=0 a b\n")
	f.Add("ARG A=base\nFROM ${A:-x} AS y\nENV A=$A\\\n B=2\nFROM y\nCMD x")
	f.Add("# escape=`\nFROM base\nWORKDIR ..\\x\nHEALTHCHECK NONE")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(t.Context(), Input{Text: text, Base: bases})
		if err != nil {
			if sandbox.KindOf(err) == sandbox.Internal {
				t.Errorf("an error without a kind: %v", err)
			}
			return
		}
		for i, s := range p.Stages {
			if n, ok := strings.CutPrefix(s.From, "stage:"); ok && n >= string(rune('0'+i)) && i < 10 && len(n) == 1 {
				t.Errorf("stage %d goes on with %s", i, s.From)
			}
		}
	})
}
