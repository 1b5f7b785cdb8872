package dockerfile

import (
	"fmt"
	"maps"
	"path"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/berth-dev/berth/sandbox"
)

// stage is one stage under way: what its instructions have said so far.
type stage struct {
	*reader
	built   sandbox.BuildStage
	index   int // in the file
	number  int // in the plan
	env     map[string]string
	args    map[string]string
	shell   []string
	workdir string

	entrypoint, cmd []string
	ready           string
}

// begin starts with an image.
func (s *stage) begin(name string) error {
	base, err := s.in.Base(s.ctx, name)
	if err != nil {
		return err
	}
	s.built.From = base.From
	maps.Copy(s.env, base.Env)
	s.entrypoint, s.cmd = base.Entrypoint, base.Cmd
	if base.Workdir != "" {
		s.workdir = base.Workdir
	}
	return nil
}

// goOn starts with an earlier stage.
func (s *stage) goOn(n int) error {
	before, err := s.reader.stage(n)
	if err != nil {
		return err
	}
	s.built.From = sandbox.StageFrom(before.number)
	s.env, s.shell, s.workdir = maps.Clone(before.env), before.shell, before.workdir
	s.entrypoint, s.cmd, s.ready = before.entrypoint, before.cmd, before.ready
	return nil
}

// start is the command of a stage, or nil.
func (s *stage) start() []string {
	if len(s.entrypoint)+len(s.cmd) == 0 {
		return nil
	}
	return append(append([]string{}, s.entrypoint...), s.cmd...)
}

// words are what variables in an instruction stand for: ENV wins over ARG.
func (s *stage) words() map[string]string {
	all := maps.Clone(s.args)
	maps.Copy(all, s.env)
	return all
}

func (s *stage) add(step sandbox.BuildStep) { s.built.Steps = append(s.built.Steps, step) }

// command reads one instruction.
func (s *stage) command(cmd instructions.Command) error {
	if x, ok := cmd.(instructions.SupportsSingleWordExpansion); ok {
		if err := x.Expand(s.expander(s.words())); err != nil {
			return invalid(err)
		}
	}
	switch c := cmd.(type) {
	case *instructions.EnvCommand:
		env := map[string]string{}
		for _, kv := range c.Env {
			env[kv.Key] = kv.Value
		}
		maps.Copy(s.env, env)
		s.add(sandbox.BuildStep{Env: env, Text: firstLine(c)})
	case *instructions.ArgCommand:
		for _, a := range c.Args {
			if value, ok := s.argument(a, s.reader.args); ok {
				s.args[a.Key] = value
			}
		}
	case *instructions.WorkdirCommand:
		s.workdir = path.Join("/", s.absolute(c.Path))
		s.add(sandbox.BuildStep{Workdir: s.workdir, Text: firstLine(c)})
	case *instructions.UserCommand:
		s.add(sandbox.BuildStep{User: c.User, Text: firstLine(c)})
	case *instructions.RunCommand:
		return s.run(c)
	case *instructions.CopyCommand:
		return s.copy(c)
	case *instructions.AddCommand:
		return s.addFiles(c)
	case *instructions.ShellCommand:
		s.shell = c.Shell
	case *instructions.CmdCommand:
		s.cmd = s.line(c.ShellDependantCmdLine)
	case *instructions.EntrypointCommand:
		s.entrypoint, s.cmd = s.line(c.ShellDependantCmdLine), nil
	case *instructions.HealthCheckCommand:
		s.health(c)
	case *instructions.LabelCommand, *instructions.ExposeCommand, *instructions.VolumeCommand,
		*instructions.MaintainerCommand, *instructions.StopSignalCommand: // nothing here asks for these
	default:
		return unsupported("leave it out", "the instruction is not served")
	}
	return nil
}

func (s *stage) absolute(p string) string {
	if path.IsAbs(p) {
		return p
	}
	return path.Join(s.workdir, p)
}

// line is a command as it is run.
func (s *stage) line(c instructions.ShellDependantCmdLine) []string {
	if !c.PrependShell {
		return c.CmdLine
	}
	return append(append([]string{}, s.shell...), strings.Join(c.CmdLine, " "))
}

// run reads RUN, whose line may be followed by documents.
func (s *stage) run(c *instructions.RunCommand) error {
	for _, m := range instructions.GetMounts(c) {
		if m.Type != instructions.MountTypeCache && m.Type != instructions.MountTypeTmpfs {
			return unsupported("copy what it needs with COPY; secrets reach a build through the network policy, not as files", "a mount of type %s", m.Type)
		}
	}
	argv := s.line(c.ShellDependantCmdLine)
	if c.PrependShell && len(c.Files) > 0 {
		script, err := withDocuments(c)
		if err != nil {
			return err
		}
		argv = append(append([]string{}, s.shell...), script)
	}
	s.add(sandbox.BuildStep{Run: &sandbox.RunStep{Argv: argv, Env: maps.Clone(s.args)}, Text: firstLine(c)})
	return nil
}

// withDocuments is a shell's line with its here-documents. One that is nothing but
// a document is a script of its own.
func withDocuments(c *instructions.RunCommand) (string, error) {
	line := strings.Join(c.CmdLine, " ")
	if len(c.Files) == 1 && strings.TrimSpace(strings.TrimLeft(line, "<-0123456789")) == c.Files[0].Name {
		data := c.Files[0].Data
		if strings.HasPrefix(data, "#!") {
			return "", unsupported("name the interpreter before the document: RUN python3 <<EOF", "a document with an interpreter of its own")
		}
		return data, nil
	}
	for _, f := range c.Files {
		line += "\n" + f.Data + f.Name
	}
	return line + "\n", nil
}

func (s *stage) copy(c *instructions.CopyCommand) error {
	if c.Parents || len(c.ExcludePatterns) > 0 {
		return unsupported("use .dockerignore, or copy in more than one step", "the flags --parents and --exclude")
	}
	from := ""
	if c.From != "" {
		n, err := s.stageNamed(c.From)
		if err != nil {
			return err
		}
		from = sandbox.StageFrom(n)
	}
	step, err := s.copyStep(c.SourcesAndDest, c.Chown, c.Chmod)
	if err != nil {
		return err
	}
	step.From = from
	s.add(sandbox.BuildStep{Copy: step, Text: firstLine(c)})
	return nil
}

// stageNamed is the number in the plan of what a copy takes from.
func (s *stage) stageNamed(name string) (int, error) {
	if n, ok := instructions.HasStage(s.stages[:s.index], name); ok {
		before, err := s.reader.stage(n)
		if err != nil {
			return 0, err
		}
		return before.number, nil
	}
	if _, later := instructions.HasStage(s.stages, name); later {
		return 0, &sandbox.Error{Kind: sandbox.Invalid, Err: fmt.Errorf("stage %q is not finished here", name), Hint: "copy from an earlier stage"}
	}
	return s.image(name)
}

func (s *stage) addFiles(c *instructions.AddCommand) error {
	for _, src := range c.SourcePaths {
		if strings.Contains(src, "://") || strings.HasPrefix(src, "git@") {
			return unsupported("fetch it with RUN curl or git", "a source from the network")
		}
	}
	if c.Checksum != "" || c.KeepGitDir || len(c.ExcludePatterns) > 0 {
		return unsupported("leave them out", "the flags --checksum, --keep-git-dir and --exclude")
	}
	step, err := s.copyStep(c.SourcesAndDest, c.Chown, c.Chmod)
	if err != nil {
		return err
	}
	step.Extract = true
	s.add(sandbox.BuildStep{Copy: step, Text: firstLine(c)})
	return nil
}

func (s *stage) copyStep(c instructions.SourcesAndDest, owner, mode string) (*sandbox.CopyStep, error) {
	step := &sandbox.CopyStep{Sources: c.SourcePaths, To: s.absolute(c.DestPath), Owner: owner}
	if strings.HasSuffix(c.DestPath, "/") || c.DestPath == "." || strings.HasSuffix(c.DestPath, "/.") {
		step.To = strings.TrimSuffix(path.Clean(step.To), "/") + "/"
	}
	for _, f := range c.SourceContents {
		step.Inline = append(step.Inline, sandbox.Inline{Name: path.Base(f.Path), Data: f.Data})
	}
	if mode != "" {
		n, err := strconv.ParseUint(mode, 8, 32)
		if err != nil {
			return nil, unsupported("give an octal mode, such as 0755", "--chmod=%.20s", mode)
		}
		m := uint32(n)
		step.Mode = &m
	}
	return step, nil
}

// health takes over how a container of the image is asked whether it is well: a
// template that is well is ready.
func (s *stage) health(c *instructions.HealthCheckCommand) {
	test := c.Health.Test
	switch {
	case len(test) < 2:
		s.ready = ""
	case test[0] == "CMD-SHELL":
		s.ready = test[1]
	case test[0] == "CMD":
		words := make([]string, len(test)-1)
		for i, w := range test[1:] {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		s.ready = strings.Join(words, " ")
	}
}
