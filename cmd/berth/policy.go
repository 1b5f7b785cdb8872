package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

// policyFlags say what a sandbox is called and what becomes of it.
type policyFlags struct {
	name, kind           string
	tags, ignore         []string
	idle, onIdle         string
	lifetime, onLifetime string
	budget, onBudget     string
	checkpoint           string
	noWake               bool
}

func (f *policyFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "name of the sandbox to get or create")
	flags.StringVar(&f.kind, "type", "", "instance type: lite, basic, standard-1 to standard-4, or one of the server's")
	flags.StringArrayVar(&f.tags, "tag", nil, "tag kept with the sandbox, for ls")
	flags.StringVar(&f.idle, "idle", "never", "time without use after which it is idle, such as 10m, 2h or 7d")
	flags.StringVar(&f.onIdle, "on-idle", "pause", "what happens then: pause, stop or remove")
	flags.StringSliceVar(&f.ignore, "idle-ignore", nil, "what does not count as use: exec, stream, connection, cpu")
	flags.StringVar(&f.lifetime, "max-lifetime", "never", "time after which it ends, idle or not")
	flags.StringVar(&f.onLifetime, "on-max-lifetime", "remove", "what happens then: pause, stop or remove")
	flags.StringVar(&f.budget, "cpu-budget", "", "processor time for all its life, as milliseconds or as 90s or 2h")
	flags.StringVar(&f.onBudget, "on-cpu-budget", "pause", "what happens once it is used up: pause or stop")
	flags.StringVar(&f.checkpoint, "checkpoint", "", "time between checkpoints while it runs, from which it goes on if its host goes down")
	flags.BoolVar(&f.noWake, "no-wake", false, "calls do not wake it: only resume and start do")
	actions := cobra.FixedCompletions([]cobra.Completion{"pause", "stop", "remove"}, cobra.ShellCompDirectiveNoFileComp)
	cmd.RegisterFlagCompletionFunc("on-idle", actions)
	cmd.RegisterFlagCompletionFunc("on-max-lifetime", actions)
}

// fill puts what the flags say into a request, checked.
func (f *policyFlags) fill(r *sandbox.CreateRequest) error {
	r.Name, r.Get, r.Type, r.Tags = f.name, f.name != "", f.kind, f.tags
	idle, err := parseSeconds(f.idle)
	if err != nil {
		return err
	}
	if idle > 0 {
		r.Idle = &sandbox.Idle{TimeoutSeconds: idle, Action: sandbox.Action(f.onIdle)}
		for _, a := range f.ignore {
			r.Idle.Ignore = append(r.Idle.Ignore, sandbox.Activity(a))
		}
	}
	lifetime, err := parseSeconds(f.lifetime)
	if err != nil {
		return err
	}
	if lifetime > 0 {
		r.Lifetime = &sandbox.Lifetime{Seconds: lifetime, Action: sandbox.Action(f.onLifetime)}
	}
	if r.Budget, err = parseBudget(f.budget, f.onBudget); err != nil {
		return err
	}
	if r.Checkpoint, err = parseCheckpoint(f.checkpoint); err != nil {
		return err
	}
	if f.noWake {
		r.Wake = new(bool)
	}
	return r.Check()
}

// parseSeconds reads a time of whole seconds; "never" is 0.
func parseSeconds(s string) (int64, error) {
	const hint = "give a time such as 90s, 10m, 2h or 7d, or never"
	if s == "never" {
		return 0, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 32)
		if err != nil || n < 1 || n > sandbox.MaxTimer/(24*60*60) {
			return 0, usage(hint, "%q is no time", s)
		}
		return n * 24 * 60 * 60, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d%time.Second != 0 {
		return 0, usage(hint, "%q is no time of whole seconds", s)
	}
	return int64(d / time.Second), nil
}
