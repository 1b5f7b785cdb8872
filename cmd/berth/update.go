package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

// updateFlags say what is to change; what is not given stays.
type updateFlags struct {
	cpu, memory, disk, kind            string
	idle, onIdle, lifetime, onLifetime string
	budget, onBudget, checkpoint       string
	metadata, unset, tags, ignore, env []string
	wake                               bool
}

func (p *program) updateCommand() *cobra.Command {
	var f updateFlags
	cmd := &cobra.Command{
		Use:   "update ID",
		Short: "Change a sandbox's limits, policies, tags and metadata",
		Long: "Change what is given; the rest stays. Memory and processor share of a sandbox that\n" +
			"runs change at once, other limits hold from its next start. With 0 or never a policy\n" +
			"ends. It prints the sandbox's id.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkID(args[0]); err != nil {
				return err
			}
			u, err := f.update(cmd)
			if err != nil {
				return err
			}
			return p.update(cmd.Context(), args[0], u)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.cpu, "cpu", "", "cores, such as 0.5 or 2")
	flags.StringVar(&f.memory, "memory", "", "memory, such as 512MiB or 4GiB")
	flags.StringVar(&f.disk, "disk", "", "disk, such as 10GiB; from its next start")
	flags.StringVar(&f.kind, "type", "", "instance type, whose limits it gets")
	flags.StringVar(&f.idle, "idle", "", "time without use after which it is idle, or never")
	flags.StringVar(&f.onIdle, "on-idle", "pause", "what happens then: pause, stop or remove")
	flags.StringSliceVar(&f.ignore, "idle-ignore", nil, "what does not count as use: exec, stream, connection, cpu")
	flags.StringVar(&f.lifetime, "max-lifetime", "", "time after which it ends, or never")
	flags.StringVar(&f.onLifetime, "on-max-lifetime", "remove", "what happens then: pause, stop or remove")
	flags.StringVar(&f.budget, "cpu-budget", "", "processor time for all its life, as milliseconds or as 90s or 2h; 0: no bound")
	flags.StringVar(&f.onBudget, "on-cpu-budget", "pause", "what happens once it is used up: pause or stop")
	flags.StringVar(&f.checkpoint, "checkpoint", "", "time between checkpoints while it runs, or never")
	flags.StringArrayVar(&f.metadata, "metadata", nil, "KEY=VALUE to add or change; may be repeated")
	flags.StringArrayVar(&f.unset, "unset-metadata", nil, "KEY to remove; may be repeated")
	flags.StringArrayVar(&f.tags, "tag", nil, "tag, in place of all there are; may be repeated, and \"\" leaves none")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "KEY=VALUE of the environment, in place of all there is; for processes that start from now on")
	flags.BoolVar(&f.wake, "wake", true, "whether calls wake it; --wake=false: only resume and start do")
	return cmd
}

// update puts the flags that were given into an update.
func (f *updateFlags) update(cmd *cobra.Command) (sandbox.Update, error) {
	u := sandbox.Update{Type: f.kind}
	given := cmd.Flags().Changed
	for _, part := range []func(*sandbox.Update, func(string) bool) error{f.limits, f.policies, f.notes} {
		if err := part(&u, given); err != nil {
			return u, err
		}
	}
	if given("wake") {
		u.Wake = &f.wake
	}
	if cmd.Flags().NFlag() == 0 {
		return u, usage("berth update --help lists what can change", "nothing is to change")
	}
	return u, u.Check()
}

func (f *updateFlags) limits(u *sandbox.Update, _ func(string) bool) (err error) {
	var l sandbox.Limits
	if l.CPUMilli, err = parseCPU(f.cpu); err != nil {
		return err
	}
	if l.MemoryBytes, err = parseSize(f.memory); err != nil {
		return err
	}
	if l.DiskBytes, err = parseSize(f.disk); err != nil {
		return err
	}
	if l != (sandbox.Limits{}) {
		u.Limits = &l
	}
	return nil
}

func (f *updateFlags) policies(u *sandbox.Update, given func(string) bool) error {
	if given("idle") {
		seconds, err := parseSeconds(f.idle)
		if err != nil {
			return err
		}
		u.Idle = &sandbox.Idle{TimeoutSeconds: seconds, Action: sandbox.Action(f.onIdle)}
		for _, a := range f.ignore {
			u.Idle.Ignore = append(u.Idle.Ignore, sandbox.Activity(a))
		}
	}
	if given("max-lifetime") {
		seconds, err := parseSeconds(f.lifetime)
		if err != nil {
			return err
		}
		u.Lifetime = &sandbox.Lifetime{Seconds: seconds, Action: sandbox.Action(f.onLifetime)}
	}
	var err error
	if u.Budget, err = parseBudget(f.budget, f.onBudget); err != nil {
		return err
	}
	u.Checkpoint, err = parseCheckpoint(f.checkpoint)
	return err
}

func (f *updateFlags) notes(u *sandbox.Update, given func(string) bool) error {
	pairs, err := parsePairs("metadata", f.metadata)
	if err != nil {
		return err
	}
	u.Metadata = map[string]*string{}
	for k, v := range pairs {
		u.Metadata[k] = &v
	}
	for _, k := range f.unset {
		u.Metadata[k] = nil
	}
	if given("env") {
		env, err := parsePairs("variable", f.env)
		if err != nil {
			return err
		}
		u.Env = &env
	}
	if given("tag") {
		tags := []string{}
		for _, t := range f.tags {
			if t != "" {
				tags = append(tags, t)
			}
		}
		u.Tags = &tags
	}
	return nil
}

// parseBudget reads a budget of processor time: milliseconds, or a time. "" is nil.
func parseBudget(s, action string) (*sandbox.Budget, error) {
	if s == "" {
		return nil, nil
	}
	b := &sandbox.Budget{Action: sandbox.Action(action)}
	var err error
	if b.CPUMillis, err = strconv.ParseInt(s, 10, 64); err != nil {
		seconds, serr := parseSeconds(strings.ToLower(s))
		if serr != nil {
			return nil, usage("give milliseconds of processor time, or a time such as 90s or 2h; 0 for no bound", "%q is no budget", s)
		}
		b.CPUMillis = seconds * 1000
	}
	return b, b.Check()
}

// parseCheckpoint reads the time between two checkpoints. "" is nil.
func parseCheckpoint(s string) (*sandbox.Checkpoint, error) {
	if s == "" {
		return nil, nil
	}
	seconds, err := parseSeconds(s)
	if err != nil {
		return nil, err
	}
	c := &sandbox.Checkpoint{EverySeconds: seconds}
	return c, c.Check()
}

func (p *program) update(ctx context.Context, id string, u sandbox.Update) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	s, err := c.Update(ctx, id, u)
	if err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, s)
	}
	_, err = fmt.Fprintln(p.out, s.ID)
	return err
}

func (p *program) keepAliveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keepalive ID TIME",
		Short: "Keep a running sandbox from being idle for a time",
		Long: "Keep a sandbox that runs from being idle for so long from now on, such as 10m or 2h,\n" +
			"whatever its idle timeout. A time that ends sooner than one before changes nothing;\n" +
			"never takes it back.",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkID(args[0]); err != nil {
				return err
			}
			seconds, err := parseSeconds(args[1])
			if err != nil {
				return err
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			s, err := c.KeepAlive(cmd.Context(), args[0], seconds)
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, s)
			}
			_, err = fmt.Fprintln(p.out, s.ID)
			return err
		},
	}
}
