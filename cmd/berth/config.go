package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-dev/berth/account"
	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/meter"
)

func (f *serveFlags) addConfigFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.configPath, "config", "", "file to configure the server with; other flags win over it")
	flags.BoolVar(&f.checkConfig, "check-config", false, "read the configuration, say what is wrong with it, and end")
}

// configure reads the file, if there is one, and takes from it what no flag says.
func (f *serveFlags) configure(cmd *cobra.Command) error {
	if f.configPath == "" {
		if f.checkConfig {
			return usage("give --config FILE", "there is no configuration to check")
		}
		return nil
	}
	c, err := config.Read(f.configPath)
	if err != nil {
		return err
	}
	f.config, f.levelFixed = c, cmd.Flags().Changed("log-level")
	for _, k := range []struct {
		flag, value string
		to          *string
	}{
		{"listen", c.Listen, &f.listen}, {"domain", c.Domain, &f.domain},
		{"log-format", c.LogFormat, &f.logFormat}, {"log-level", c.LogLevel, &f.logLevel},
	} {
		if k.value != "" && !cmd.Flags().Changed(k.flag) {
			*k.to = k.value
		}
	}
	if err := settle(cmd.Flags(), doorSettings(&c)); err != nil {
		return err
	}
	f.archive.configure(cmd, c.Snapshots)
	f.docker.configure(cmd.Flags().Changed("docker-socket"), c.Containers)
	if n := c.Limits.Engines; n != nil && !cmd.Flags().Changed("engines") {
		f.engines = *n
	}
	if c.Drain.Duration != 0 && !cmd.Flags().Changed("drain") {
		f.drain = c.Drain.Duration
	}
	return pricesOf(&c).Check()
}

// reportConfig says that the configuration can be served with.
func (p *program) reportConfig(f *serveFlags) error {
	if p.json {
		return writeJSON(p.out, map[string]string{"config": f.configPath, "listen": f.listen, "domain": f.domain})
	}
	_, err := fmt.Fprintf(p.out, "berth: %s is fine\n", f.configPath)
	return err
}

// termsOf are the terms of accounts.
func termsOf(c *config.File) account.Terms {
	t := account.Terms{Quota: c.Quota.Quota()}
	if c.Temporary.Enabled {
		t.Temporary = &account.Temporary{Quota: c.TemporaryQuota(), Lifetime: c.Temporary.Lifetime.Duration,
			Hourly: c.Temporary.Hourly, Most: c.Temporary.Most, WorkBits: c.Temporary.WorkBits}
	}
	return t
}

func pricesOf(c *config.File) meter.Prices {
	return meter.Prices{CPU: c.Prices.CPU, Memory: c.Prices.Memory, Disk: c.Prices.Disk, Egress: c.Prices.Egress}
}

// reloadOnSignal reads the configuration again at each SIGHUP, until the result is
// called. A file that cannot be used changes nothing. Without a file the signal
// ends the server, as that of a terminal which closes.
func reloadOnSignal(ctx context.Context, f *serveFlags, h *house, log *slog.Logger) (stop func()) {
	if f.configPath == "" {
		return func() {}
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-hangups:
				reload(f, h, log)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		cancel()
		<-done
	}
}

func reload(f *serveFlags, h *house, log *slog.Logger) {
	next, err := config.Read(f.configPath)
	if err != nil {
		log.Error("read the configuration again; nothing changes", "error", err)
		return
	}
	if !f.levelFixed && next.LogLevel != "" && next.LogLevel != f.config.LogLevel {
		if err := f.level.UnmarshalText([]byte(next.LogLevel)); err != nil {
			log.Error("change the log level", "error", err)
		}
	}
	h.reload(&next)
	if fixed := config.Fixed(f.config, next); len(fixed) > 0 {
		log.Warn("some of the configuration holds from the next start on", "keys", strings.Join(fixed, ", "))
	}
	f.config = next
	log.Info("the configuration was read again")
}
