package runsc

import (
	"context"
	"errors"

	"github.com/google/subcommands"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
)

// shell is the engine's create, after which a start or a restore is one call to the
// sandbox's process and no command any more.
type shell struct{ cmd.Create }

// Name implements subcommands.Command.
func (*shell) Name() string { return "shell" }

// Synopsis implements subcommands.Command.
func (*shell) Synopsis() string {
	return "create a container that is started or restored by its caller"
}

// Usage implements subcommands.Command.
func (*shell) Usage() string { return "shell [flags] <container id>\n" }

// Execute implements subcommands.Command.
func (s *shell) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	if status := s.Create.Execute(ctx, f, args...); status != subcommands.ExitSuccess {
		return status
	}
	conf := args[0].(*config.Config)
	c, err := container.Load(conf.RootDir, container.FullID{ContainerID: f.Arg(0)}, container.LoadOpts{SkipCheck: true})
	if err == nil {
		err = ready(conf, c)
	}
	if err != nil {
		return util.Errorf("ready: %v", err)
	}
	return subcommands.ExitSuccess
}

// ready calls a method that the engine has by an edit.
func ready(conf *config.Config, c *container.Container) error {
	s, ok := any(c.Sandbox).(interface {
		Ready(*config.Config, *specs.Spec) error
	})
	if !ok {
		return errors.New("the engine was built without its edits (make build does them)")
	}
	return s.Ready(conf, c.Spec)
}
