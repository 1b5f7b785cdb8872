package mcpgateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// publicHost is where repositories are cloned from.
const publicHost = "https://github.com/"

// ready installs what a plan needs, unless it is there. A folder is whole when a file
// of its name and ".ready" stands beside it; any other is made anew.
func (p *Place) ready(ctx context.Context, pl *plan) error {
	var err error
	switch n := pl.need; {
	case n.npm != "":
		err = p.whole(filepath.Join(p.Root, folderOf(n.npm)), func(dir string) error { return p.installNode(ctx, pl.name, n.npm, dir) })
	case n.pypi != "":
		err = p.whole(filepath.Join(p.Root, folderOf(n.pypi)), func(dir string) error { return p.installPython(ctx, pl.name, n, dir) })
	case n.repository != "":
		pl.dir = filepath.Join(p.home(), ".mcp-gateway", filepath.FromSlash(n.repository))
		err = p.whole(pl.dir, func(dir string) error { return p.clone(ctx, pl, dir) })
	}
	if err != nil {
		return fmt.Errorf("install it: %w", err)
	}
	return nil
}

// whole makes the folder unless it is whole.
func (p *Place) whole(dir string, fill func(dir string) error) error {
	mark := dir + ".ready"
	if _, err := os.Stat(mark); err == nil {
		return nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := fill(dir); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return os.WriteFile(mark, nil, 0o644)
}

// installNode installs a package of npm's index. Nothing of it runs.
func (p *Place) installNode(ctx context.Context, name, spec, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	cmd := p.command(ctx, false, dir, nil, []string{"npm", "install", "--prefix", dir, "--cache", filepath.Join(p.Root, "cache"),
		"--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", spec})
	return p.run(ctx, name, cmd)
}

// installPython installs a package of Python's index, of wheels alone: nothing of it
// runs.
func (p *Place) installPython(ctx context.Context, name string, n need, dir string) error {
	env := []string{"UV_CACHE_DIR=" + filepath.Join(p.Root, "cache"), "UV_PYTHON_DOWNLOADS=never", "UV_LINK_MODE=copy", "UV_NO_CONFIG=1"}
	install := []string{"uv", "pip", "install", "--quiet", "--no-build", "--python", dir, n.pypi}
	if n.beside != "" {
		install = append(install, n.beside)
	}
	for _, argv := range [][]string{{"uv", "venv", "--quiet", "--python", "/usr/bin/python3", dir}, install} {
		if err := p.run(ctx, name, p.command(ctx, false, p.Root, env, argv)); err != nil {
			return err
		}
	}
	return nil
}

// clone fetches a repository and runs its own installation in it, both as the account.
func (p *Place) clone(ctx context.Context, pl *plan, dir string) error {
	if a := p.Account; a != nil { // the folders above were made by whoever runs this
		for d := filepath.Dir(dir); strings.HasPrefix(d, a.Home+"/"); d = filepath.Dir(d) {
			if err := os.Lchown(d, int(a.UID), int(a.GID)); err != nil {
				return err
			}
		}
	}
	host := p.Sources
	if host == "" {
		host = publicHost
	}
	env := []string{"GIT_TERMINAL_PROMPT=0"}
	cmd := p.command(ctx, true, filepath.Dir(dir), env, []string{"git", "clone", "--quiet", "--depth", "1", host + pl.need.repository, dir})
	if err := p.run(ctx, pl.name, cmd); err != nil {
		return err
	}
	if strings.TrimSpace(pl.need.command) == "" {
		return nil
	}
	cmd = p.command(ctx, true, dir, append(env, pl.env...), []string{"/bin/bash", "-c", pl.need.command})
	if err := p.run(ctx, pl.name, cmd); err != nil {
		return fmt.Errorf("installCmd: %w", err)
	}
	return nil
}

// Pull installs servers of the catalogue, so that they are there when they are asked
// for.
func (p *Place) Pull(ctx context.Context, names []string) error {
	for _, name := range names {
		r, ok := catalogue[name]
		if !ok {
			return unknown(name)
		}
		pl := plan{name: name, need: r.need()}
		if err := p.ready(ctx, &pl); err != nil {
			return fmt.Errorf("server %s: %w", name, err)
		}
	}
	return nil
}
