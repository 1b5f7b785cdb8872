package guest

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// What a process gets that asks for nothing.
const (
	defaultPath    = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	defaultWorkdir = "/workspace"
	defaultHome    = "/home/user"
)

// ownUID is the guest's user, who stays the same.
var ownUID = os.Getuid()

// plan is a request made ready for the kernel.
type plan struct {
	path       string // of the program, for the kernel
	argv       []string
	env        []string
	dir        string              // for the kernel
	credential *syscall.Credential // nil keeps the guest's own
	cwd, user  string              // for the host

	from places // where folder and program are looked for
}

// places are where a plan's folder and program may be, the first that is there counts.
type places struct {
	cwds   []string // as the host names them
	search string   // what PATH says
	shell  string   // a line for a shell, or ""
}

// plan resolves what a request names. Each refusal says what is wrong with it.
func (g *Guest) plan(r *guestv1.StartRequest) (*plan, error) {
	p, err := g.outline(r)
	if err == nil {
		err = g.look(p)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// outline is a plan whose folder and program have not been looked for.
func (g *Guest) outline(r *guestv1.StartRequest) (*plan, error) {
	p := &plan{}
	who, err := g.runAs(p, r.User)
	if err != nil {
		return nil, err
	}
	env, err := g.environment(who, r.Env)
	if err != nil {
		return nil, err
	}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		p.env = append(p.env, k+"="+env[k])
	}
	if err := p.command(r); err != nil {
		return nil, err
	}
	p.from.search = env["PATH"]
	if err := p.within(string(r.Cwd), who.home); err != nil {
		return nil, err
	}
	return p, nil
}

// within says where the process may start: in one folder, or in the first that is there
// of those that are usual.
func (p *plan) within(cwd, home string) error {
	if cwd == "" {
		p.from.cwds = []string{defaultWorkdir, home, "/"}
		return nil
	}
	cwd, err := cleanPath(cwd)
	p.from.cwds = []string{cwd}
	return err
}

// look settles what an outline leaves open.
func (g *Guest) look(p *plan) error {
	if err := g.enter(p); err != nil {
		return err
	}
	if err := p.program(); err != nil {
		return cmp.Or(p.noFolder(), err)
	}
	return nil
}

// markName is the variable that tells what a process has started, whatever becomes
// of its parents.
const markName = "BERTH_PROCESS"

// A mark is told from all others of its machine, in copies of that too; it is no secret
// to what carries it.
var (
	markBase  = sync.OnceValue(rand.Text)
	markCount atomic.Uint64
)

// setMark gives the process, and all that it starts, a value of their own.
func (p *plan) setMark() {
	mark := markName + "=" + markBase() + "." + strconv.FormatUint(markCount.Add(1), 10)
	p.env = append([]string{mark}, slices.DeleteFunc(p.env, isMark)...)
}

func isMark(variable string) bool { return strings.HasPrefix(variable, markName+"=") }

// markIn is the mark in an environment; "" if there is none.
func markIn(env []string) string {
	if i := slices.IndexFunc(env, isMark); i >= 0 {
		return env[i]
	}
	return ""
}

// runAs finds the account and what it takes to become it.
func (g *Guest) runAs(p *plan, spec string) (account, error) {
	if g.scratch() {
		me, err := findAccount(strconv.Itoa(ownUID))
		me.home, p.user = defaultHome, me.name
		return me, err
	}
	who, err := findAccount(spec)
	if err != nil {
		return who, err
	}
	p.user = strings.ToValidUTF8(who.name, "\uFFFD")
	if ownUID == 0 {
		p.credential = who.credential()
	} else if who.uid != uint32(ownUID) {
		return who, refuse(forbidden, "", "the guest is not root and cannot become %s", p.user)
	}
	return who, nil
}

// environment is the base, then the sandbox's own, then the request's.
func (g *Guest) environment(who account, asked [][]byte) (map[string]string, error) {
	env := map[string]string{
		"PATH": defaultPath, "LANG": "C.UTF-8",
		"HOME": filepath.Join(g.config.Scratch, who.home),
		"USER": who.name, "LOGNAME": who.name, "SHELL": who.shell,
	}
	maps.Copy(env, g.config.Env)
	for _, e := range asked {
		name, value, ok := strings.Cut(string(e), "=")
		if !ok || name == "" || strings.ContainsRune(string(e), 0) {
			return nil, refuse(invalid, "a variable is NAME=value, without a NUL", "environment variable %.80q is malformed", e)
		}
		env[name] = value
	}
	return env, nil
}

// enter settles the folder that the process starts in.
func (g *Guest) enter(p *plan) error {
	cwd := p.from.cwds[0]
	if len(p.from.cwds) > 1 {
		for _, c := range p.from.cwds {
			if info, err := g.files.stat(c); err == nil && info.IsDir() {
				cwd = c
				break
			}
		}
	}
	cwd, err := cleanPath(cwd)
	if err != nil {
		return err
	}
	p.cwd, p.dir = cwd, filepath.Join("/", g.config.Scratch, cwd)
	if !g.scratch() {
		return nil // the kernel looks; noFolder tells what it saw
	}
	info, err := g.files.stat(cwd)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return p.notThere(err)
	}
	return nil
}

// notThere explains why a process cannot start in its folder.
func (p *plan) notThere(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse(notFound, "make the folder first, or leave cwd out", "no folder %.200q to start in", p.cwd)
	case errors.Is(err, syscall.ENOTDIR):
		return refuse(invalid, "cwd names a folder", "%.200q to start in is not a folder", p.cwd)
	}
	e := fromOS(err)
	return refuse(codeOf(e), hintOf(e), "folder %.200q to start in: %s", p.cwd, textOf(e))
}

// noFolder is why the process cannot start in its folder; nil if it is there.
func (p *plan) noFolder() error {
	info, err := os.Stat(p.dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return p.notThere(err)
	}
	return nil
}

// command takes over what is to be executed.
func (p *plan) command(r *guestv1.StartRequest) error {
	for _, a := range r.Argv {
		p.argv = append(p.argv, string(a))
	}
	if (len(p.argv) == 0) == (len(r.Shell) == 0) {
		return refuse(invalid, "give argv or shell", "need exactly one of argv and shell")
	}
	if strings.ContainsRune(string(r.Shell)+strings.Join(p.argv, ""), 0) {
		return refuse(invalid, "", "the command holds a NUL byte")
	}
	p.from.shell = string(r.Shell)
	return nil
}

// shells are what runs a line, the first that is there.
var shells = []string{"bash", "sh"}

// program settles what is executed.
func (p *plan) program() (err error) {
	if p.from.shell == "" {
		p.path, err = lookUp(p.argv[0], p.from.search, p.dir)
		return err
	}
	for _, shell := range shells {
		p.argv = []string{shell, "-lc", p.from.shell}
		if p.path, err = lookUp(shell, p.from.search, p.dir); err == nil {
			break
		}
	}
	return err
}

// lookUp finds a program as a shell does: a name with a slash is a path, others
// are searched for in PATH.
func lookUp(name, search, dir string) (string, error) {
	if name == "" {
		return "", refuse(invalid, "argv[0] is the program", "argv[0] is empty")
	}
	if strings.Contains(name, "/") {
		file := name
		if !path.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		return file, checkProgram(name, file)
	}
	var worst error
	for file := range inPath(name, search, dir) {
		err := checkProgram(name, file)
		if err == nil {
			return file, nil
		}
		if codeOf(err) != notFound {
			worst = err
		}
	}
	if worst != nil {
		return "", worst
	}
	return "", refuse(notFound, "check the name and the PATH, or install it", "program %.200q not found", name)
}

// inPath gives where a program of that name may be.
func inPath(name, search, dir string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for d := range strings.SplitSeq(search, ":") {
			if !path.IsAbs(d) {
				d = filepath.Join(dir, d)
			}
			if !yield(filepath.Join(d, name)) {
				return
			}
		}
	}
}

func checkProgram(name, file string) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return refuse(notFound, "check the path", "program %.200q not found", name)
	case err != nil:
		return refuse(codeOf(fromOS(err)), "", "program %.200q: %s", name, textOf(fromOS(err)))
	case info.IsDir():
		return refuse(invalid, "name a program in it", "%.200q is a folder, not a program", name)
	case info.Mode()&0o111 == 0:
		return refuse(invalid, "make it executable with chmod +x, or name its interpreter first", "program %.200q is not executable", name)
	}
	return nil
}

// whyNot explains the kernel's refusal to start p.
func (p *plan) whyNot(err error) error {
	name := p.argv[0]
	if err := p.noFolder(); err != nil {
		return err
	}
	switch {
	case errors.Is(err, syscall.ENOENT):
		return refuse(notFound, "the script's first line, or the binary's loader, names a program that is not there", "interpreter of %.200q not found", name)
	case errors.Is(err, syscall.ENOEXEC):
		return refuse(invalid, "a script begins with a line such as #!/bin/sh; a binary is of this machine's kind", "%.200q is not a program that can be run", name)
	case errors.Is(err, syscall.EACCES):
		return refuse(forbidden, "check the modes of the program and of the folder to start in", "%s may not run %.200q in %.200q", p.user, name, p.cwd)
	}
	e := fromOS(err)
	return refuse(codeOf(e), hintOf(e), "start %.200q: %s", name, textOf(e))
}

// order is what the engine may be asked to start without a look at what is there; nil if
// that takes one, as a name does that depends on the folder.
func (p *plan) order() *order {
	o := order{argv: p.argv, env: p.env, credential: p.credential, dirs: p.from.cwds}
	if p.from.shell != "" {
		o.argv = []string{shells[0], "-lc", p.from.shell}
	}
	name := o.argv[0]
	if path.IsAbs(name) {
		o.paths = []string{name}
	} else if name != "" && !strings.Contains(name, "/") {
		for file := range inPath(name, p.from.search, "") {
			if !path.IsAbs(file) {
				return nil
			}
			o.paths = append(o.paths, file)
		}
	} else {
		return nil
	}
	return &o
}

// settled notes what the engine has found.
func (p *plan) settled(o *order, dir int) {
	p.argv, p.cwd = o.argv, o.dirs[dir]
	p.dir = p.cwd
}
