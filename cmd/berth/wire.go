package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/account"
	"github.com/berth-dev/berth/api"
	blobdisk "github.com/berth-dev/berth/blob/disk"
	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/dialect/e2b"
	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/fake"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/edge"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/image"
	"github.com/berth-dev/berth/meter"
	"github.com/berth-dev/berth/netgw"
	"github.com/berth-dev/berth/record/bolt"
	"github.com/berth-dev/berth/sandbox"
)

// Where the parts of a server live beneath its data directory.
const (
	recordsFile  = "records.db"
	templatesDir = "templates"
	machinesDir  = "machines"
	contextsDir  = "contexts" // what template builds copy from
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

// openHouse opens the parts from the ground up. A failure closes those that
// are open.
func openHouse(ctx context.Context, f *serveFlags, data, key string, in *ingress, log *slog.Logger) (_ *house, err error) {
	h := &house{}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	records, err := bolt.Open(filepath.Join(data, recordsFile))
	if err != nil {
		return nil, err
	}
	h.parts = append(h.parts, part{"records", records.Close})
	outward, err := f.egress.config()
	if err != nil {
		return nil, err
	}
	told, err := f.egress.openAudit(filepath.Join(data, auditDir))
	if err != nil {
		return nil, err
	}
	h.parts = append(h.parts, part{"audit", told.Close})
	outward.Audit = told
	keeping, err := openSecrets(ctx, &f.credentials, data, records, log)
	if err != nil {
		return nil, err
	}
	h.parts = append(h.parts, part{"interception", keeping.proxy.Close})
	outward.Intercept = looking{keeping.proxy}
	gateway, err := netgw.New(outward)
	if err != nil {
		return nil, err
	}
	keeping.gateway = gateway
	d, err := openDriver(f.driver, filepath.Join(data, machinesDir), gateway, int64(f.config.Store.Size))
	if err != nil {
		return nil, err
	}
	h.parts = append(h.parts, part{"driver", d.Close})
	templates, err := image.Open(filepath.Join(data, templatesDir), image.Options{})
	if err != nil {
		return nil, err
	}
	contexts, err := blobdisk.Open(filepath.Join(data, contextsDir))
	if err != nil {
		return nil, err
	}
	archive, err := f.archive.open(ctx, data)
	if err != nil {
		return nil, err
	}
	book := account.New(account.Config{Records: records, Logger: log, Terms: termsOf(&f.config)})
	sums, err := meter.Open(ctx, meter.Config{Records: records, Prices: pricesOf(&f.config)})
	if err != nil {
		return nil, err
	}
	secret, err := signSecret(data)
	if err != nil {
		return nil, err
	}
	measures := newMetrics(log, gateway, sums)
	e, err := engine.New(engine.Config{
		Drivers:     []driver.Driver{d},
		Records:     records,
		Templates:   templates,
		Archive:     archive,
		Contexts:    contexts,
		Gateway:     gateway,
		Audit:       told,
		Credentials: keeping.proxy,
		Vault:       keeping.vault,
		Logger:      log,
		Version:     version,
		Boot:        bootID(),
		Meter:       sums,
		Egress:      gateway,
		Room:        roomOf(data, &f.config),
		Observer:    measures,
		Pool:        poolOf(f),
		Quotas:      book,
		Types:       f.config.InstanceTypes(),
		Creates:     f.config.Limits.Creates,
		Queue:       f.config.Limits.Queue,
		Forks:       f.config.Limits.Forks,
		Wake:        f.config.Limits.Wake.Duration,
		Events:      f.config.Limits.Events,
		SignSecret:  secret,
		Domain:      f.domain,
		Proofs:      &edge.Prover{},
	})
	if err != nil {
		return nil, err
	}
	e.SetWebhookRanges(f.config.WebhookRanges())
	h.parts = append(h.parts, part{"engine", e.Close})
	if err := e.Open(ctx); err != nil {
		return nil, err
	}
	if err := book.Open(ctx, e); err != nil {
		return nil, err
	}
	h.parts = append(h.parts, part{"accounts", book.Close})
	h.reload = func(c *config.File) {
		book.SetTerms(termsOf(c))
		e.SetWebhookRanges(c.WebhookRanges())
	}
	a := api.New(api.Config{Engine: e, AdminKey: key, SignSecret: secret, Hosts: []string{f.domain}, Logger: log,
		Previews: in.preview, Accounts: book, Used: e.Used, ClaimURL: f.config.URL,
		LowDisk: e.LowDisk, Metrics: measures.Handler(), PublicMetrics: f.config.Metrics.Public, Counter: measures})
	askEngine(measures, e)
	compatible := e2b.New(e2b.Config{Engine: e, Domain: f.domain, Enter: enterByDigits(key, book.EnterDigits), Secret: secret, Logger: log})
	handler, door := in.doors(e, f.domain, a, log)
	h.handler, h.streams, h.endless = doors(handler, compatible), a.Close, door.Close
	return h, nil
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
		_, err := guestProgram()
		return err
	case "fake":
		return nil
	}
	return usage("take gvisor", "%q is no isolation class", class)
}

// openDriver makes the driver of a class that checkClass has let pass.
func openDriver(class, dir string, gateway *netgw.Gateway, store int64) (driver.Driver, error) {
	if class == "fake" {
		return fake.New(fake.Config{Dir: dir})
	}
	guest, err := guestProgram()
	if err != nil {
		return nil, err
	}
	return gvisor.New(gvisor.Config{Dir: dir, Guest: guest, Gateway: gateway, Store: store})
}

// probeGVisor starts a tiny sandbox in a directory of its own, and removes it.
func probeGVisor(ctx context.Context) (found driver.Capabilities, err error) {
	dir, err := os.MkdirTemp("", "berth-doctor-")
	if err != nil {
		return found, &sandbox.Error{Op: "probe", Kind: sandbox.Internal, Err: err}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d, err := openDriver("gvisor", dir, nil, 0)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Probe(ctx)
}

// bootID names this boot of the host, or is "" where the kernel does not tell.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
