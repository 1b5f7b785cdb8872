package image

import (
	"embed"
	"io/fs"

	"github.com/berth-dev/berth/sandbox"
)

//go:embed kernels/bun/package.json kernels/bun/package-lock.json
var bunFiles embed.FS

const (
	bunPackages = "/usr/local/lib/bun"

	// installBun takes the runtime's program out of the package for this processor. The
	// packages are optional each, so that one suffices: that it is there is what counts.
	installBun = `set -e; cd ` + bunPackages + `
npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --cache /tmp/npm --cafile /tmp/ca.crt
mv node_modules/@oven/*/bin/bun /usr/local/bin/bun; ln -s bun /usr/local/bin/bunx
cd /; rm -rf ` + bunPackages + ` /tmp/npm; bun --version`
)

// nodeNames gives the kernel of JavaScript what programs written for Node find without
// asking, and has it hear what they write to their standard output and error.
const nodeNames = `globalThis.require ??= (await import('node:module')).createRequire(Deno.cwd() + '/'); ` +
	`for (const [stream, err] of [[process.stdout, false], [process.stderr, true]]) ` +
	`stream.write = (chunk, encoding, done) => { ` +
	`Deno[Deno.internal].core.print(typeof chunk === 'string' ? chunk : new TextDecoder().decode(chunk), err); ` +
	`(typeof encoding === 'function' ? encoding : done)?.(); return true }; undefined`

// bunPart is one file of what says which packages are installed.
type bunPart struct {
	path, text string
}

func bunParts() []bunPart {
	var all []bunPart
	for _, name := range []string{"package.json", "package-lock.json"} {
		b, _ := fs.ReadFile(bunFiles, "kernels/bun/"+name) // embedded: it is there
		all = append(all, bunPart{bunPackages[1:] + "/" + name, string(b)})
	}
	return all
}

// prepareBun puts the list of packages into the root.
func prepareBun(t *tree) error {
	if err := t.mkdir(bunPackages[1:], 0o755, rootOwner); err != nil {
		return err
	}
	for _, p := range bunParts() {
		if err := t.write(p.path, []byte(p.text), 0o644, rootOwner); err != nil {
			return err
		}
	}
	return nil
}

// explainBun adds what can be done if the packages cannot be had.
func explainBun(err error) error {
	return &sandbox.Error{Kind: sandbox.Unavailable, Err: err,
		Hint: "the index of JavaScript's packages cannot be reached from this machine: check the network and the proxy settings, or set NPM_CONFIG_REGISTRY for the server"}
}
