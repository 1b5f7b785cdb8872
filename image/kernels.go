package image

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// withCode, behind the name of a release, asks for a root with interpreters for code.
const withCode = "+code"

//go:embed kernels/requirements.txt kernels/berth_bash.py kernels/berth_display.py kernels/berth_java.py kernels/BerthJava.java
var kernelFiles embed.FS

// kernelModules are those of kernelFiles that Python finds.
var kernelModules = []string{"berth_bash.py", "berth_display.py", "berth_java.py"}

// kernelParts are the files that make packages of Python's index into kernels.
var kernelParts = []struct{ path, text string }{
	{"usr/local/share/jupyter/kernels/python3/kernel.json", `{"argv": ["/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "{connection_file}", ` +
		`"--HistoryManager.enabled=False", "--InteractiveShellApp.extra_extensions=berth_display"], "display_name": "Python 3", "language": "python"}` + "\n"},
	{"usr/local/share/jupyter/kernels/deno/kernel.json", `{"argv": ["/usr/local/bin/deno", "jupyter", "--kernel", "--conn", "{connection_file}"], ` +
		`"env": {"NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"}, "display_name": "Deno", "language": "typescript", "metadata": {"berth_transport": "tcp", "berth_prelude": "` + nodeNames + `", "berth_fence": "` + denoFence + `"}}` + "\n"},
	{"usr/local/share/jupyter/kernels/bash/kernel.json", `{"argv": ["/usr/bin/python3", "-m", "berth_bash", "-f", "{connection_file}"], ` +
		`"env": {"PS1": "$"}, "display_name": "Bash", "language": "bash"}` + "\n"},
	{javaKernel + "/kernel.json", `{"argv": ["/usr/bin/python3", "-m", "berth_java", "-f", "{connection_file}"], ` +
		`"display_name": "Java", "language": "java"}` + "\n"},
	{"etc/pip.conf", "[global]\nbreak-system-packages = true\n"},
}

const (
	kernelPackages = "/usr/local/lib/python3.11/dist-packages"

	javaKernel = "usr/local/share/jupyter/kernels/java"

	// installRelease installs the kernel of the release's own R, and the release's Java,
	// for which the kernel's program is compiled. There is no /dev, and apt's own user
	// could not write to what is put in the place of /dev/null. Java links the pages of
	// its manual, for which the release has no folder.
	installRelease = `set -e; export DEBIAN_FRONTEND=noninteractive
mkdir -p /usr/share/man/man1
apt-get -q -o APT::Sandbox::User=root update
apt-get -q -y -o APT::Sandbox::User=root install --no-install-recommends r-cran-irkernel openjdk-17-jre-headless
apt-get clean; rm -rf /var/lib/apt/lists/*
java --module jdk.compiler/com.sun.tools.javac.Main -d /` + javaKernel + ` /tmp/BerthJava.java`

	// enter runs a command in the root that it is given first, with a /proc of its own,
	// without which no Java starts.
	enter = `mount -t proc proc "$0/proc" && exec chroot "$0" "$@"`

	// denoFence shows a nonce on each way that what TypeScript shows takes: what it
	// prints, what it displays, and its value. The word that a run is over overtakes all
	// three on a busy machine.
	denoFence = `Deno[Deno.internal].core.print('{nonce}', false); ` +
		`await Deno.jupyter.broadcast('display_data', {data: {'application/x-fence': '{nonce}'}, metadata: {}, transient: {}}); ` +
		`({[Symbol.for('Jupyter.display')]: () => ({'application/x-fence': '{nonce}'})})`

	// compileKernels makes the bytecode in two halves, one for each processor, after
	// the packages' own tests have gone; and the list of fonts, which every first
	// figure would make anew. The folder /dev, empty as yet, is emptied again afterwards.
	compileKernels = `set -e; : >/dev/null; cd ` + kernelPackages + `
find . -type d -name tests -prune -exec rm -rf {} +
python3 -m compileall -q scipy sklearn seaborn & half=$!
python3 -m compileall -q -x '^\./(scipy|sklearn|seaborn)/' . ; wait $half
python3 -c 'import matplotlib.font_manager'
cp -a /root/.cache /home/user/ && chown -R 1000:1000 /home/user/.cache
rm -f /tmp/ca.crt /tmp/requirements.txt /tmp/BerthJava.java`
)

// codeRoot is the root of a release with Python's packages for data beside it, and
// kernels of Python, TypeScript, JavaScript, Bash, R and Java, and Bun. It is filled on the
// host, as the release's own is: Python's packages are pinned by their digests, and nothing
// of them runs but what is compiled; R and Java are the release's.
type codeRoot struct {
	store *Store
	base  distribution
}

// parseCode refuses releases whose Python the packages are not for.
func parseCode(s *Store, d distribution) (source, error) {
	if d.suite != defaultSuite {
		return nil, invalid("take distribution:"+defaultSuite+withCode, "no interpreters are known for the release %s", d.suite)
	}
	return codeRoot{s, d}, nil
}

func (c codeRoot) resolve(context.Context) (root, error) { return c, nil }

func (c codeRoot) Close() error { return nil }

func (c codeRoot) key() string {
	parts := []any{"code", c.base.key(), installRelease, enter, installBun, bunParts(), compileKernels, kernelParts}
	for _, name := range append([]string{"requirements.txt", "BerthJava.java"}, kernelModules...) {
		b, _ := fs.ReadFile(kernelFiles, "kernels/"+name) // embedded: it is there
		parts = append(parts, string(b))
	}
	return keyOf(parts...)
}

func (c codeRoot) fill(ctx context.Context, w *work, say func(sandbox.Progress)) (config, error) {
	base, err := c.store.Import(ctx, "distribution:"+c.base.suite, nil, false, say)
	if err != nil {
		return config{}, err
	}
	say(sandbox.Progress{Step: "copy the release"})
	if err := unpackImage(ctx, w, c.store.RootPath(base)); err != nil {
		return config{}, fmt.Errorf("copy the release: %w", err)
	}
	if err := c.prepare(w); err != nil {
		return config{}, err
	}
	for _, step := range []struct {
		name string
		argv []string
	}{
		{"install R and Java", []string{"sh", "-c", installRelease}},
		{"install packages", []string{"python3", "-m", "pip", "install", "--root-user-action=ignore", "--no-cache-dir", "--no-deps", "--only-binary", ":all:", "--require-hashes",
			"--no-compile", "--disable-pip-version-check", "--break-system-packages", "--retries", "10", "--progress-bar", "off", "--cert", "/tmp/ca.crt", "-r", "/tmp/requirements.txt"}},
		{"install bun", []string{"sh", "-c", installBun}},
		{"compile packages", []string{"sh", "-c", compileKernels}},
	} {
		say(sandbox.Progress{Step: step.name})
		run := command{argv: append(append([]string{"sh", "-c", enter, w.root(), "/usr/bin/env", "-i"}, chrootEnv()...), step.argv...), lock: w.lock, enclosed: true}
		if err := run.run(ctx, func(line string) { say(sandbox.Progress{Step: step.name, Log: line}) }); err != nil {
			return config{}, explainPackages(err)
		}
	}
	return config{env: map[string]string{"LANG": "C.UTF-8"}}, c.finish(w)
}

// chrootEnv is what programs inside get: nothing of the server's but the way out.
func chrootEnv() []string {
	env := []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "MPLBACKEND=agg"}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "NPM_CONFIG_REGISTRY"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// authorities are where hosts keep the certificates that they trust.
var authorities = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"}

// hostAuthorities is whom the host trusts, as certificates.
func hostAuthorities() (ca []byte, err error) {
	trusted := authorities
	for _, name := range []string{"SSL_CERT_FILE", "PIP_CERT"} {
		if v := os.Getenv(name); v != "" {
			trusted = append([]string{v}, trusted...)
		}
	}
	for _, file := range trusted {
		if ca, err = os.ReadFile(file); err == nil {
			return ca, nil
		}
	}
	return nil, &sandbox.Error{Kind: sandbox.Unsupported, Err: fmt.Errorf("find the host's certificates: %w", err), Hint: "install ca-certificates"}
}

// prepare puts into the root what the installation needs of the host: its way to
// names, whom it trusts, and what is to be installed.
func (c codeRoot) prepare(w *work) (err error) {
	t, err := openTree(w.root())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	ca, err := hostAuthorities()
	if err != nil {
		return err
	}
	lock, err := kernelFiles.ReadFile("kernels/requirements.txt")
	if err != nil {
		return err
	}
	java, err := kernelFiles.ReadFile("kernels/BerthJava.java")
	if err != nil {
		return err
	}
	if err := prepareBun(t); err != nil {
		return err
	}
	for _, f := range []struct {
		path string
		text []byte
	}{{"tmp/ca.crt", ca}, {"tmp/requirements.txt", lock}, {"tmp/BerthJava.java", java}} {
		if err := t.write(f.path, f.text, 0o644, rootOwner); err != nil {
			return err
		}
	}
	return lendNames(t)
}

// finish writes the kernels' own files.
func (c codeRoot) finish(w *work) (err error) {
	t, err := openTree(w.root())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	for _, name := range kernelModules {
		b, err := kernelFiles.ReadFile("kernels/" + name)
		if err != nil {
			return err
		}
		if err := t.write(path.Join(kernelPackages, name)[1:], b, 0o644, rootOwner); err != nil {
			return err
		}
	}
	for _, f := range kernelParts {
		if err := t.mkdir(path.Dir(f.path), 0o755, rootOwner); err != nil {
			return err
		}
		if err := t.write(f.path, []byte(f.text), 0o644, rootOwner); err != nil {
			return err
		}
	}
	return nil
}

// unpackImage makes w.root() what an image of the store holds. The program that does
// it gives files their owners last, and so takes from them that they change who runs
// them: those few are read from a copy without owners.
func unpackImage(ctx context.Context, w *work, image string) error {
	modes := filepath.Join(w.temp(), "modes")
	if err := os.Remove(w.root()); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"fsck.erofs", "--no-preserve-owner", "--preserve-perms", "--extract=" + modes, image},
		{"fsck.erofs", "--preserve-owner", "--preserve-perms", "--extract=" + w.root(), image},
	} {
		c := command{argv: argv, lock: w.lock, enclosed: true}
		if err := c.run(ctx, func(string) {}); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(w.root())
	if err != nil {
		return err
	}
	defer root.Close()
	err = filepath.WalkDir(modes, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) == 0 {
			return err
		}
		rel, err := filepath.Rel(modes, name)
		if err != nil {
			return err
		}
		return root.Chmod(rel, info.Mode())
	})
	return errors.Join(err, removeTree(modes))
}

// explainPackages adds what can be done about a failure to install.
func explainPackages(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	text := err.Error()
	if strings.Contains(text, "npm ERR! network") || strings.Contains(text, "node_modules/@oven") {
		return explainBun(err)
	}
	for _, sign := range []string{"Temporary failure in name resolution", "NewConnectionError", "Read timed out", "ConnectTimeoutError", "SSLError", "No matching distribution found"} {
		if strings.Contains(text, sign) {
			return &sandbox.Error{Kind: sandbox.Unavailable, Err: err,
				Hint: "the index of Python's packages cannot be reached from this machine: check the network and the proxy settings, or set PIP_INDEX_URL for the server"}
		}
	}
	return &sandbox.Error{Kind: sandbox.Internal, Err: err, Hint: "the last lines of the output say why"}
}
