package mcpgateway

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Place is where servers are installed, and as whom they run.
type Place struct {
	Root    string   // what came with the gateway, and what it installs; absolute
	Account *Account // nil: the gateway's own
	Sources string   // what OWNER/NAME is appended to, to clone it; "" is the public host
	Log     io.Writer
}

// Account is whom servers run as.
type Account struct {
	Name     string
	Home     string // absolute
	UID, GID uint32
}

// killDelay is how long a process may take to end once it was asked to.
const killDelay = 3 * time.Second

// command is a program that ends with ctx, and with all that it started; asAccount
// makes it the account's.
func (p *Place) command(ctx context.Context, asAccount bool, dir string, env, argv []string) *exec.Cmd {
	program := argv[0]
	if !filepath.IsAbs(program) && strings.ContainsRune(program, '/') {
		program = filepath.Join(p.Root, program)
	}
	cmd := exec.CommandContext(ctx, program, argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(p.environment(asAccount), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if a := p.Account; asAccount && a != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.UID, Gid: a.GID}
		if dir == "" {
			cmd.Dir = a.Home
		}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killDelay
	return cmd
}

// environment is the gateway's own, without what is nobody else's.
func (p *Place) environment(asAccount bool) []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch {
		case name == TokenVariable:
		case asAccount && p.Account != nil && (name == "HOME" || name == "USER" || name == "LOGNAME"):
		default:
			env = append(env, v)
		}
	}
	if a := p.Account; asAccount && a != nil {
		env = append(env, "HOME="+a.Home, "USER="+a.Name, "LOGNAME="+a.Name)
	}
	return env
}

// home is the folder in which the account's files lie.
func (p *Place) home() string {
	if p.Account != nil {
		return p.Account.Home
	}
	return filepath.Join(p.Root, "home")
}

// run runs a program to its end; the error tells its last words.
func (p *Place) run(ctx context.Context, name string, cmd *exec.Cmd) error {
	out := &lineLog{to: p.Log, name: name}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	said := out.last()
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", filepath.Base(cmd.Path), ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, said)
	}
	return nil
}
