package image

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/sandbox"
)

// withMCP, behind what a distribution's root is called, asks for the gateway of MCP
// servers.
const withMCP = "+mcp"

//go:embed mcp/package.json mcp/package-lock.json mcp/requirements.txt
var mcpFiles embed.FS

const (
	mcpFolder = "opt/mcp-gateway"

	// installMCP installs the servers that come with the gateway, of both indexes, and what
	// it installs others with. Node and npm are newer than the release's, for which many
	// servers are too new. Nothing of npm's packages runs; Python's are compiled,
	// at the same time. What a shell starts behind itself reads /dev/null; the folder /dev,
	// empty as yet, is emptied again afterwards.
	installMCP = `set -e; : >/dev/null
(
set -e; cd /` + mcpFolder + `
python3 -m venv --without-pip python
python3 -m pip --python python/bin/python install --no-cache-dir --no-deps --only-binary :all: --require-hashes --disable-pip-version-check \
  --retries 10 --progress-bar off --cert /tmp/ca.crt -r /tmp/requirements.txt
mv python/bin/uv python/bin/uvx /usr/local/bin/
uv --version
) & python=$!
cd /` + mcpFolder + `/node
npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --cache /tmp/npm --cafile /tmp/ca.crt
mkdir -p /usr/local/lib/node_modules
mv node_modules/node-linux-*/bin/node /usr/local/bin/node
mv node_modules/npm /usr/local/lib/node_modules/npm
rm -rf node_modules/node-linux-* node_modules/.bin/npm node_modules/.bin/npx node_modules/.bin/node /tmp/npm
for name in npm npx; do ln -s ../lib/node_modules/npm/bin/$name-cli.js /usr/local/bin/$name; done
/usr/local/bin/npm --version
wait $python
rm -f /tmp/ca.crt /tmp/requirements.txt`
)

// mcpRoot is a distribution's root with the gateway, servers that come with it, and what
// it installs others with. It is filled on the host, as that is: packages are pinned by
// their digests.
type mcpRoot struct {
	store *Store
	from  string // the source of the other
	inner root
	bin   []byte
}

// parseMCP is the source of a root that is like another with the gateway.
func parseMCP(s *Store, from string, inner source) (source, error) {
	r, ok := inner.(root) // a distribution's are settled without being looked up
	if !ok {
		return nil, invalid(sourceHint, "the gateway of MCP servers cannot be added to %.80q", from)
	}
	if s.mcpGateway == nil {
		return nil, &sandbox.Error{Kind: sandbox.Unsupported, Err: errors.New("there is no gateway of MCP servers to put into templates"), Hint: "build the server with: make build"}
	}
	bin, err := s.mcpGateway()
	if err != nil {
		return nil, err
	}
	return mcpRoot{s, from, r, bin}, nil
}

func (r mcpRoot) resolve(context.Context) (root, error) { return r, nil }

func (r mcpRoot) Close() error { return nil }

func (r mcpRoot) key() string {
	sum := sha256.Sum256(r.bin)
	parts := []any{"mcp", r.inner.key(), installMCP, enter, hex.EncodeToString(sum[:])}
	for _, name := range []string{"package-lock.json", "requirements.txt"} {
		b, _ := mcpFiles.ReadFile("mcp/" + name) // embedded: it is there
		parts = append(parts, string(b))
	}
	return keyOf(parts...)
}

func (r mcpRoot) fill(ctx context.Context, w *work, say func(sandbox.Progress)) (config, error) {
	base, err := r.store.Import(ctx, r.from, nil, false, say)
	if err != nil {
		return config{}, err
	}
	say(sandbox.Progress{Step: "copy " + r.from})
	if err := unpackImage(ctx, w, r.store.RootPath(base)); err != nil {
		return config{}, fmt.Errorf("copy the root: %w", err)
	}
	if err := r.prepare(w); err != nil {
		return config{}, err
	}
	const step = "install MCP servers"
	say(sandbox.Progress{Step: step})
	argv := append(append([]string{"sh", "-c", enter, w.root(), "/usr/bin/env", "-i"}, chrootEnv()...), "sh", "-c", installMCP)
	run := command{argv: argv, lock: w.lock, enclosed: true}
	if err := run.run(ctx, func(line string) { say(sandbox.Progress{Step: step, Log: line}) }); err != nil {
		return config{}, explainPackages(err)
	}
	return config{env: base.Env, workdir: base.Workdir, user: base.User}, nil
}

// prepare puts into the root what is to be installed, and what that needs of the host.
func (r mcpRoot) prepare(w *work) (err error) {
	t, err := openTree(w.root())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	ca, err := hostAuthorities()
	if err != nil {
		return err
	}
	if err := t.write("tmp/ca.crt", ca, 0o644, rootOwner); err != nil {
		return err
	}
	for _, dir := range []string{mcpFolder, mcpFolder + "/node", mcpFolder + "/servers"} {
		if err := t.mkdir(dir, 0o755, rootOwner); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{
		"package.json": mcpFolder + "/node/package.json", "package-lock.json": mcpFolder + "/node/package-lock.json", "requirements.txt": "tmp/requirements.txt",
	} {
		b, err := mcpFiles.ReadFile("mcp/" + name)
		if err != nil {
			return err
		}
		if err := t.write(to, b, 0o644, rootOwner); err != nil {
			return err
		}
	}
	if err := t.write("usr/local/bin/mcp-gateway", r.bin, 0o755, rootOwner); err != nil {
		return err
	}
	return lendNames(t)
}
