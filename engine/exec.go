package engine

import (
	"context"
	"maps"

	"github.com/berth-dev/berth/sandbox"
)

// Exec starts a process and streams what it does; the first event is Started.
// The stream lives no longer than ctx, and the process no longer than the
// stream unless cmd.Detach is set. A pause ends neither: the stream goes on when the
// sandbox runs again.
//
// The process gets the template's environment, then the sandbox's, then the
// command's; a later one counts. User and directory fall back to the template's.
func (e *Engine) Exec(ctx context.Context, id string, cmd sandbox.Command) (sandbox.Events, error) {
	const op = "exec"
	if err := cmd.Check(); err != nil {
		return nil, fail(op, "", err)
	}
	t := e.timed(op)
	activity := sandbox.ActivityExec
	if cmd.Detach {
		activity = sandbox.ActivityStream
	}
	events, err := e.streaming(ctx, op, id, activity, !cmd.Detach, func(s *stored, l *live) (sandbox.Events, error) {
		t.stage("wake")
		whole, err := s.complete(cmd)
		if err != nil {
			return nil, err
		}
		return l.guest.StartTimed(ctx, whole, t.guest)
	})
	t.end(&err)
	return events, err
}

// complete fills in what the command leaves open.
func (s *stored) complete(cmd sandbox.Command) (sandbox.Command, error) {
	env := make(map[string]string, len(s.Base.Env)+len(s.Env)+len(cmd.Env))
	s.Trust.environment(env)
	maps.Copy(env, s.Base.Env)
	maps.Copy(env, s.Env)
	maps.Copy(env, cmd.Env)
	cmd.Env = env
	cmd.User = orElse(cmd.User, s.Base.User)
	cmd.Cwd = orElse(cmd.Cwd, s.Base.Workdir)
	return cmd, sandbox.CheckEnv(env)
}
