package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/account"
	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/audit"
	blobdisk "github.com/berth-dev/berth/blob/disk"
	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/dialect/cloudflare"
	"github.com/berth-dev/berth/dialect/cloudflare/bridge"
	"github.com/berth-dev/berth/dialect/cloudflare/docker"
	"github.com/berth-dev/berth/dialect/e2b"
	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/fake"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/edge"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/image"
	"github.com/berth-dev/berth/meter"
	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/netgw"
	"github.com/berth-dev/berth/record/bolt"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/volume"
)

// Where the parts of a server live beneath its data directory.
const (
	recordsFile  = "records.db"
	templatesDir = "templates"
	machinesDir  = "machines"
	contextsDir  = "contexts" // what template builds copy from
	volumesDir   = "volumes"
	auditDir     = "audit"
)

// house is a server's parts, wired: the one place that names concrete bodies.
type house struct {
	handler http.Handler
	streams func() // ends the streams under way
	endless func() // ends those that would not end by themselves
	reload  func(*config.File)
	parts   []part // in the order of opening
}

// part is what close closes.
type part struct {
	name  string
	close func() error
}

// closeLimit bounds the closing of one part. All that lives on is safe by then:
// a part that hangs must not keep the server from ending.
const closeLimit = 30 * time.Second

// ground is the mechanisms of a server, which the engine stands on.
type ground struct {
	records   *bolt.Store
	audit     *audit.Log
	keeping   *secretKeeping
	gateway   *netgw.Gateway
	names     *net.Resolver
	driver    driver.Driver
	templates *image.Store
	contexts  *blobdisk.Store
	archive   engine.Archive
	volumes   *volume.Store
	book      *account.Book
	sums      *meter.Book
	measures  *metrics.Registry
	secret    []byte // signs URLs and tokens
	egress    *docker.Egress
}

// openHouse opens the parts from the ground up. A failure closes those that
// are open.
func openHouse(ctx context.Context, f *serveFlags, data, key string, in *ingress, log *slog.Logger) (_ *house, err error) {
	h := &house{}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	g := &ground{}
	if err := h.openOutward(ctx, f, data, g, log); err != nil {
		return nil, err
	}
	if err := h.openStores(ctx, f, data, g, log); err != nil {
		return nil, err
	}
	e, err := h.openEngine(ctx, f, data, g, log)
	if err != nil {
		return nil, err
	}
	guests := h.openDoors(f, key, in, g, e, log)
	if err := h.openContainers(ctx, f, g, docker.Config{Engine: e, Server: guests}, log); err != nil {
		return nil, err
	}
	return h, nil
}

// openOutward opens the records, and what stands between sandboxes and the outside.
func (h *house) openOutward(ctx context.Context, f *serveFlags, data string, g *ground, log *slog.Logger) (err error) {
	if g.records, err = bolt.Open(filepath.Join(data, recordsFile)); err != nil {
		return err
	}
	h.parts = append(h.parts, part{"records", g.records.Close})
	outward, err := f.egress.config()
	if err != nil {
		return err
	}
	if g.audit, err = f.egress.openAudit(filepath.Join(data, auditDir)); err != nil {
		return err
	}
	h.parts = append(h.parts, part{"audit", g.audit.Close})
	if g.keeping, err = openSecrets(ctx, &f.credentials, data, g.records, log); err != nil {
		return err
	}
	h.parts = append(h.parts, part{"interception", g.keeping.proxy.Close})
	outward.Audit, outward.Intercept = g.audit, looking{g.keeping.proxy}
	g.egress = docker.NewEgress(authority{g.keeping.proxy})
	outward.Diverters = map[string]netgw.Diverter{docker.DiverterName: diverting{g.egress}}
	g.names = lookup(outward)
	if g.gateway, err = netgw.New(outward); err != nil {
		return err
	}
	g.keeping.gateway = g.gateway
	if g.driver, err = openDriver(f.driver, filepath.Join(data, machinesDir), g.gateway, int64(f.config.Store.Size), shellsOf(f, log)); err != nil {
		return err
	}
	h.parts = append(h.parts, part{"driver", g.driver.Close})
	return nil
}

// openStores opens what is kept of templates, snapshots, accounts and use.
func (h *house) openStores(ctx context.Context, f *serveFlags, data string, g *ground, log *slog.Logger) (err error) {
	if g.templates, err = image.Open(filepath.Join(data, templatesDir), image.Options{MCPGateway: mcpProgram}); err != nil {
		return err
	}
	if g.contexts, err = blobdisk.Open(filepath.Join(data, contextsDir)); err != nil {
		return err
	}
	if g.volumes, err = volume.Open(filepath.Join(data, volumesDir)); err != nil {
		return err
	}
	h.parts = append(h.parts, part{"volumes", g.volumes.Close})
	archive, err := f.archive.open(ctx, data)
	if err != nil {
		return err
	}
	g.archive = archive
	h.parts = append(h.parts, part{"archive", archive.Close})
	g.book = account.New(account.Config{Records: g.records, Logger: log, Terms: termsOf(&f.config)})
	if g.sums, err = meter.Open(ctx, meter.Config{Records: g.records, Prices: pricesOf(&f.config)}); err != nil {
		return err
	}
	g.measures = newMetrics(log, g.gateway, g.sums)
	g.secret, err = signSecret(data)
	return err
}

// openEngine makes the engine and lets it take up where the one before left off.
func (h *house) openEngine(ctx context.Context, f *serveFlags, data string, g *ground, log *slog.Logger) (*engine.Engine, error) {
	e, err := engine.New(engine.Config{
		Drivers:     []driver.Driver{g.driver},
		Records:     g.records,
		Templates:   g.templates,
		Archive:     g.archive,
		Contexts:    g.contexts,
		Volumes:     g.volumes,
		Gateway:     g.gateway,
		Audit:       g.audit,
		Credentials: g.keeping.proxy,
		Vault:       g.keeping.vault,
		Logger:      log,
		Version:     version,
		Boot:        bootID(),
		Meter:       g.sums,
		Egress:      g.gateway,
		Room:        roomOf(data, &f.config),
		Observer:    g.measures,
		Pool:        poolOf(f),
		Quotas:      g.book,
		Types:       f.config.InstanceTypes(),
		Creates:     f.config.Limits.Creates,
		Queue:       f.config.Limits.Queue,
		Forks:       f.config.Limits.Forks,
		Wake:        f.config.Limits.Wake.Duration,
		Events:      f.config.Limits.Events,
		SignSecret:  g.secret,
		Domain:      f.domain,
		Proofs:      &edge.Prover{Resolver: g.names},
	})
	if err != nil {
		return nil, err
	}
	e.SetWebhookRanges(f.config.WebhookRanges())
	h.parts = append(h.parts, part{"engine", e.Close})
	if err := e.Open(ctx); err != nil {
		return nil, err
	}
	if err := g.book.Open(ctx, e); err != nil {
		return nil, err
	}
	h.parts = append(h.parts, part{"accounts", g.book.Close})
	h.reload = func(c *config.File) {
		g.book.SetTerms(termsOf(c))
		e.SetWebhookRanges(c.WebhookRanges())
	}
	askEngine(g.measures, e)
	return e, nil
}

// openDoors puts the doors before the engine; a request goes to the first that
// claims it. guests answers what a container's own program would.
func (h *house) openDoors(f *serveFlags, key string, in *ingress, g *ground, e *engine.Engine, log *slog.Logger) (guests func(sandbox.ID) http.Handler) {
	native := api.New(api.Config{Engine: e, AdminKey: key, SignSecret: g.secret, Hosts: []string{f.domain}, Logger: log,
		Previews: in.preview, Accounts: g.book, Used: e.Used, ClaimURL: f.config.URL,
		LowDisk: e.LowDisk, Metrics: g.measures.Handler(), PublicMetrics: f.config.Metrics.Public, Counter: g.measures})
	compatible := e2b.New(e2b.Config{Engine: e, Keys: g.book, Domain: f.domain, Enter: enterByDigits(key, g.book.EnterDigits), Secret: g.secret, Logger: log})
	containers := cloudflare.New(cloudflare.Config{Engine: e, Enter: enterByDigits(key, g.book.EnterDigits), Logger: log})
	previews, door := in.doors(e, f.domain, native, log)
	plain := bridge.New(bridge.Config{Engine: e, Enter: enterByDigits(key, g.book.EnterDigits), Inside: containers.Sandbox, PortURL: in.preview,
		Template: f.config.Containers.Bridge, Warm: poolOf(f).Ceiling, Logger: log})
	h.handler, h.streams = doors(previews, compatible, containers, plain), native.Close
	h.endless = func() { door.Close(); containers.Close() }
	return func(id sandbox.ID) http.Handler { return containers.Sandbox(string(id)) }
}

// close closes the parts in reverse. Sandboxes live on. After a part that does
// not close in time, those beneath it are left as they are: it may still use
// them, and they are made to survive that.
func (h *house) close() error {
	var errs []error
	for _, p := range slices.Backward(h.parts) {
		err := p.closeInTime(closeLimit)
		errs = append(errs, err)
		if sandbox.KindOf(err) == sandbox.Timeout {
			break
		}
	}
	h.parts = nil
	return errors.Join(errs...)
}

func (p part) closeInTime(limit time.Duration) error {
	closed := make(chan error, 1)
	go func() { closed <- p.close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(limit):
		return &sandbox.Error{Op: "close " + p.name, Kind: sandbox.Timeout,
			Err:  fmt.Errorf("it did not close in %v", limit),
			Hint: "the next server takes the sandboxes up all the same"}
	}
}

// checkClass reports what keeps a server of this class from starting, before
// anything of it is made.
func checkClass(class string) error {
	switch class {
	case "gvisor":
		if os.Geteuid() != 0 {
			return &sandbox.Error{Op: "serve", Kind: sandbox.Unsupported, Err: unix.EPERM,
				Hint: "run it as root: sandboxes need namespaces, cgroups and network links"}
		}
		guestErr := hasGuest()
		f, err := engineProgram()
		if err == nil {
			err = f.Close()
		}
		return errors.Join(guestErr, err)
	case "fake":
		return nil
	}
	return usage("take gvisor", "%q is no isolation class", class)
}

// shellsOf is how many engines wait for forks, wakes and creates. One costs some
// 12 MiB.
func shellsOf(f *serveFlags, log *slog.Logger) gvisor.Shells {
	c := gvisor.Shells{Most: f.engines, Logger: log}
	if f.engines < 0 {
		c.Most = shellsEach * max(0, f.warm)
	}
	c.Available, c.Reserve = spareMemory()
	return c
}

// openDriver makes the driver of a class that checkClass has let pass.
func openDriver(class, dir string, gateway *netgw.Gateway, store int64, shells gvisor.Shells) (driver.Driver, error) {
	if class == "fake" {
		return fake.New(fake.Config{Dir: dir})
	}
	return gvisor.New(gvisor.Config{Dir: dir, Guest: guestProgram, Engine: engineProgram, Gateway: gateway, Store: store, Shells: shells})
}

// openProbe makes a driver to try sandboxes with, in a folder of its own.
func openProbe(dir string) (driver.Driver, error) {
	return openDriver("gvisor", dir, nil, 0, gvisor.Shells{})
}

// bootID names this boot of the host, or is "" where the kernel does not tell.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
