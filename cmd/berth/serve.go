package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/refusal"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/timerslack"
)

const defaultListen = "127.0.0.1:7070"

// serveFlags is the whole configuration of a server.
type serveFlags struct {
	data, listen, driver, domain string
	logFormat, logLevel          string
	drain                        time.Duration
	egress                       egressFlags
	ingress                      ingressFlags
	credentials                  credentialFlags
	archive                      archiveFlags
	docker                       dockerFlags
	warm                         int
	engines                      int // negative: as many as suit warm

	configPath  string
	checkConfig bool
	config      config.File
	level       slog.LevelVar
	levelFixed  bool // by a flag
}

func (p *program) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: "Run the server until SIGTERM or SIGINT. It prints one line when it is ready and\n" +
			"logs to standard error. Sandboxes outlive it: the next server on the same data\n" +
			"directory takes them up again.",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{ownSignals: "yes"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.configure(cmd); err != nil {
				return err
			}
			if f.checkConfig {
				return p.reportConfig(&f)
			}
			return p.serve(cmd.Context(), &f)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *serveFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.data, "data", dataDir(), "directory that holds everything (BERTH_DATA)")
	flags.StringVar(&f.listen, "listen", defaultListen, "address to listen on; port 0 picks a free one")
	flags.StringVar(&f.domain, "domain", "berth.localhost", "domain of the server and its sandboxes")
	flags.StringVar(&f.driver, "driver", "gvisor", "isolation class: gvisor, or fake (none at all, for tests)")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.DurationVar(&f.drain, "drain", 20*time.Second, "how long requests may go on after a signal to stop")
	flags.IntVar(&f.warm, "warm", defaultWarm, "sandboxes that run ahead of their creates, of each kind at most; 0 for none")
	flags.IntVar(&f.engines, "engines", -1, "engines that wait ahead of forks, wakes and creates, at most; 0 for none, -1 for 3 for each of --warm")
	f.egress.register(flags)
	f.ingress.register(flags)
	f.credentials.register(flags)
	f.archive.register(flags)
	f.docker.register(flags)
	f.addConfigFlags(flags)
	flags.MarkHidden("driver")
}

// serve runs one server to its end. What is opened is closed in reverse.
func (p *program) serve(ctx context.Context, f *serveFlags) (err error) {
	log, err := newLogger(p.err, f.logFormat, f.logLevel, &f.level)
	if err != nil {
		return err
	}
	if err := errors.Join(checkClass(f.driver), checkEngines(f.engines)); err != nil {
		return err
	}
	if err := errors.Join(keepDescriptors(), timerslack.Watcher(os.Getpid())); err != nil {
		return err
	}
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(stop)

	opening, release := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer release()
	data, err := openDataDirectory(opening, f.data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	key, err := data.adminKey()
	if err != nil {
		return err
	}
	listener, err := listen(ctx, f.listen)
	if err != nil {
		return err
	}
	defer listener.Close()

	in, err := openIngress(opening, f, data.path, listener.Addr(), log)
	if err != nil {
		return err
	}
	defer in.close()
	h, err := openHouse(opening, f, data.path, key, in, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	defer reloadOnSignal(ctx, f, h, log)()
	defer whileServing(ctx, rest)()

	address := "http://" + listener.Addr().String()
	ready := fmt.Sprintf("berth: serving %s, key in %s\n", address, filepath.Join(data.path, adminKeyFile))
	if p.json {
		ready = fmt.Sprintf("{\"url\":%q,\"key_file\":%q}\n", address, filepath.Join(data.path, adminKeyFile))
	}
	if _, err := io.WriteString(p.out, ready); err != nil {
		return err
	}
	return serveUntilSignal(ctx, append(in.listeners(), netutil.LimitListener(listener, maxConnections)), h, stop, f.drain, log)
}

// listen opens the server's door.
func listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err == nil {
		return l, nil
	}
	e := &sandbox.Error{Op: "listen on " + address, Kind: sandbox.Invalid, Err: err, Hint: "give --listen HOST:PORT"}
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		e.Kind, e.Err = sandbox.Conflict, errors.New("another program uses this address")
		e.Hint = "stop it, or choose another address with --listen"
	case errors.Is(err, unix.EACCES):
		e.Kind, e.Hint = sandbox.Forbidden, "ports below 1024 need root; choose another with --listen"
	}
	return nil, e
}

// newLogger makes a logger whose level is in l, and changes with it.
func newLogger(w io.Writer, format, level string, l *slog.LevelVar) (*slog.Logger, error) {
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usage("take debug, info, warn or error", "%q is no log level", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, usage("take text or json", "%q is no log format", format)
}

// newServer bounds what a client may hold without speaking. There is no bound
// on a whole request: a process may run for days.
func newServer(h http.Handler, base context.Context, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           refusal.Heard(h),
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		Protocols:         protocols,
	}
}
