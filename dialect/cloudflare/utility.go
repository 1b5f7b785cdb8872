package cloudflare

import (
	"context"
	"encoding/json"

	"github.com/berth-dev/berth/sandbox"
)

// ClientVersion is of the clients that this server speaks with; they warn if theirs
// is another.
const ClientVersion = "0.12.10"

func (b *box) ping(context.Context) (any, error) {
	return pingAnswer{Success: true, Status: "healthy", Message: "healthy", Timestamp: now()}, nil
}

func (b *box) version(context.Context) (any, error) {
	return versionAnswer{Success: true, Version: ClientVersion, Timestamp: now()}, nil
}

func (b *box) commands(context.Context) (any, error) {
	return commandsAnswer{Success: true, Available: []string{}, Timestamp: now()}, nil
}

// createSession makes a session; one that is there is an error.
func (b *box) createSession(ctx context.Context, r sessionRequest) (any, error) {
	if err := checkEnv(r.Env); err != nil {
		return nil, err
	}
	cwd := ""
	if r.Cwd != "" {
		var err error
		if cwd, err = b.resolve(ctx, "", r.Cwd); err != nil {
			return nil, err
		}
	}
	_, created, err := b.open(ctx, r.ID, cwd, r.Env)
	switch {
	case err != nil:
		return nil, err
	case !created:
		return nil, &fault{code: sessionExists, text: "Session '" + bounded(r.ID) + "' already exists", op: "session.create",
			context: map[string]any{"sessionId": bounded(r.ID), "containerPlacementId": nil}}
	}
	if err := b.limit(ctx, r.ID, r.CommandTimeoutMs); err != nil {
		return nil, err
	}
	const text = "Session created successfully"
	return sessionAnswer{Success: true, ID: r.ID, Message: text, Timestamp: now(), Placement: json.RawMessage("null"),
		Data: createdSession{ID: r.ID, Message: text}}, nil
}

// deleteSession ends a session with the processes that were started in it.
func (b *box) deleteSession(ctx context.Context, r sessionRequest) (any, error) {
	if err := checkID("session", r.SessionID); err != nil {
		return nil, err
	}
	if _, err := b.endThose(ctx, func(p processInfo) bool { return p.SessionID == r.SessionID }); err != nil {
		return nil, err
	}
	name := b.names.of(r.SessionID)
	if err := b.engine.CloseTerminal(ctx, b.id, name); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return nil, err
	}
	err := b.close(ctx, r.SessionID)
	if sandbox.KindOf(err) == sandbox.NotFound {
		if _, gerr := b.engine.Get(ctx, b.id); gerr != nil {
			return nil, gerr
		}
		return nil, &fault{code: internalError, status: 500, text: "Session '" + bounded(r.SessionID) + "' not found", op: "session.delete"}
	}
	if err != nil {
		return nil, err
	}
	return sessionAnswer{Success: true, SessionID: r.SessionID, Timestamp: now()}, nil
}

// sessionIDs lists the sessions that were made here.
func (b *box) sessionIDs(ctx context.Context) ([]string, error) {
	all, err := b.engine.Sessions(ctx, b.id)
	ids := []string{}
	for _, one := range all {
		if id, ok := b.names.id(one.Name); ok {
			ids = append(ids, id)
		}
	}
	return ids, err
}

func (b *box) listSessions(ctx context.Context) (any, error) {
	ids, err := b.sessionIDs(ctx)
	return sessionAnswer{Success: true, Timestamp: now(), Data: ids}, err
}
