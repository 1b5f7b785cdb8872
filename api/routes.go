package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// route is one line of the API's surface. openapi.json describes each.
type route struct {
	method string
	path   string
	handle handler
	open   bool          // needs no key
	scope  sandbox.Scope // that a key must have; a route that states none takes the operator alone

	// socket is what a key must have beyond that, to take the route as a WebSocket:
	// what comes in through it is input.
	socket sandbox.Scope

	// operator says that only the operator's key will do.
	operator bool

	// secret says that the path holds a secret: the log has the pattern instead.
	secret bool

	// anywhere lets pages of other sites use it too: its URL itself is the
	// permission, and a browser adds none.
	anywhere bool
}

// handler serves a request or says why not; its error is rendered by guarded.
type handler func(w http.ResponseWriter, r *http.Request) error

func (a *API) routes() []route {
	const (
		box   = "/v1/sandboxes/{id}"
		procs = box + "/processes"
		proc  = procs + "/{process}"
		terms = box + "/terminals"
		term  = terms + "/{terminal}"
		files = box + "/files"
		codes = box + "/contexts"

		read, work, admin = sandbox.ScopeRead, sandbox.ScopeExec, sandbox.ScopeAdmin
	)
	return []route{
		{method: "GET", path: "/healthz", handle: a.health, open: true},
		{method: "GET", path: "/metrics", handle: a.metrics, open: a.public, operator: !a.public},
		{method: "GET", path: "/v1/openapi.json", handle: a.openapi, open: true},
		{method: "GET", path: "/v1/status", handle: a.status, scope: read},

		{method: "POST", path: "/v1/sandboxes", handle: a.create, scope: admin},
		{method: "GET", path: "/v1/sandboxes", handle: a.list, scope: read},
		{method: "GET", path: box, handle: a.get, scope: read},
		{method: "PATCH", path: box, handle: a.update, scope: admin},
		{method: "DELETE", path: box, handle: a.remove, scope: admin},
		{method: "POST", path: box + "/pause", handle: a.change(a.engine.Pause), scope: work},
		{method: "POST", path: box + "/resume", handle: a.change(a.engine.Resume), scope: work},
		{method: "POST", path: box + "/stop", handle: a.change(a.engine.Stop), scope: work},
		{method: "POST", path: box + "/start", handle: a.change(a.engine.Start), scope: work},
		{method: "POST", path: box + "/keepalive", handle: a.keepAlive, scope: work},
		{method: "POST", path: box + "/fork", handle: a.fork, scope: admin},
		{method: "POST", path: box + "/snapshots", handle: a.takeSnapshot, scope: admin},
		{method: "POST", path: box + "/rollback", handle: a.rollback, scope: admin},
		{method: "POST", path: box + "/backups", handle: a.takeBackup, scope: work},
		{method: "POST", path: box + "/restore-backup", handle: a.restoreBackup, scope: work},
		{method: "GET", path: "/v1/snapshots", handle: a.snapshots, scope: read},
		{method: "POST", path: "/v1/snapshots", handle: a.importSnapshot, operator: true},
		{method: "GET", path: "/v1/snapshots/{snapshot}", handle: a.snapshot, scope: read},
		{method: "DELETE", path: "/v1/snapshots/{snapshot}", handle: a.removeSnapshot, scope: admin},
		{method: "GET", path: "/v1/snapshots/{snapshot}/export", handle: a.exportSnapshot, scope: admin},
		{method: "GET", path: "/v1/backups", handle: a.backups, scope: read},
		{method: "GET", path: "/v1/backups/{backup}", handle: a.backup, scope: read},
		{method: "DELETE", path: "/v1/backups/{backup}", handle: a.removeBackup, scope: admin},

		{method: "GET", path: box + "/policy", handle: a.policy, scope: read},
		{method: "PUT", path: box + "/policy", handle: a.setPolicy, scope: admin},
		{method: "GET", path: box + "/grants", handle: a.grants, scope: read},
		{method: "PUT", path: box + "/grants/{secret}", handle: a.restoreGrant, scope: admin},
		{method: "DELETE", path: box + "/grants/{secret}", handle: a.revokeGrant, scope: admin},
		{method: "GET", path: "/v1/secrets", handle: a.secrets, scope: read},
		{method: "GET", path: "/v1/secrets/{secret}", handle: a.secret, scope: read},
		{method: "PUT", path: "/v1/secrets/{secret}", handle: a.setSecret, scope: admin},
		{method: "DELETE", path: "/v1/secrets/{secret}", handle: a.removeSecret, scope: admin},
		{method: "GET", path: "/v1/policy.schema.json", handle: a.policySchema, open: true},
		{method: "GET", path: "/v1/audit", handle: a.audit, scope: read},

		{method: "POST", path: box + "/exec", handle: a.exec, scope: work},
		{method: "GET", path: procs, handle: a.processes, scope: read},
		{method: "POST", path: procs, handle: a.startProcess, scope: work},
		{method: "GET", path: proc, handle: a.process, scope: read},
		{method: "DELETE", path: proc, handle: a.removeProcess, scope: work},
		{method: "GET", path: proc + "/output", handle: a.attach, scope: read},
		{method: "GET", path: proc + "/wait", handle: a.wait, scope: read},
		{method: "POST", path: proc + "/input", handle: a.input, scope: work},
		{method: "POST", path: proc + "/signal", handle: a.signal, scope: work},
		{method: "GET", path: box + "/usage", handle: a.usage, scope: read},
		{method: "GET", path: box + "/metrics", handle: a.history, scope: read},

		{method: "GET", path: box + "/sessions", handle: a.sessions, scope: read},
		{method: "POST", path: box + "/sessions", handle: a.openSession, scope: work},
		{method: "POST", path: box + "/sessions/{session}/run", handle: a.runInSession, scope: work},
		{method: "POST", path: box + "/sessions/{session}/cancel", handle: a.cancelSession, scope: work},
		{method: "DELETE", path: box + "/sessions/{session}", handle: a.closeSession, scope: work},

		{method: "GET", path: box + "/languages", handle: a.codeLanguages, scope: read},
		{method: "GET", path: codes, handle: a.codeContexts, scope: read},
		{method: "POST", path: codes, handle: a.createCodeContext, scope: work},
		{method: "GET", path: codes + "/{context}", handle: a.codeContext, scope: read},
		{method: "DELETE", path: codes + "/{context}", handle: a.removeCodeContext, scope: work},
		{method: "POST", path: codes + "/{context}/restart", handle: a.restartCodeContext, scope: work},
		{method: "POST", path: codes + "/{context}/interrupt", handle: a.interruptCodeContext, scope: work},
		{method: "POST", path: box + "/code", handle: a.runCode, scope: work},
		{method: "GET", path: box + "/code/{run}", handle: a.attachCode, scope: read},
		{method: "DELETE", path: box + "/code/{run}", handle: a.cancelCode, scope: work},

		{method: "GET", path: terms, handle: a.terminals, scope: read},
		{method: "POST", path: terms, handle: a.openTerminal, scope: work},
		{method: "GET", path: term, handle: a.terminal, scope: read, socket: work},
		{method: "DELETE", path: term, handle: a.closeTerminal, scope: work},
		{method: "POST", path: term + "/input", handle: a.typeTerminal, scope: work},
		{method: "POST", path: term + "/resize", handle: a.resizeTerminal, scope: work},
		{method: "POST", path: term + "/signal", handle: a.signalTerminal, scope: work},

		{method: "GET", path: files, handle: a.readFile, scope: read},
		{method: "HEAD", path: files, handle: a.headFile, scope: read},
		{method: "PUT", path: files, handle: a.writeFile, scope: work},
		{method: "DELETE", path: files, handle: a.removeFile, scope: work},
		{method: "GET", path: files + "/stat", handle: a.stat, scope: read},
		{method: "GET", path: files + "/list", handle: a.listDir, scope: read},
		{method: "POST", path: files + "/mkdir", handle: a.makeDir, scope: work},
		{method: "POST", path: files + "/move", handle: a.move, scope: work},
		{method: "POST", path: files + "/change", handle: a.changeFile, scope: work},
		{method: "POST", path: files + "/copy", handle: a.copyFile, scope: work},
		{method: "POST", path: files + "/link", handle: a.linkFile, scope: work},
		{method: "GET", path: files + "/hash", handle: a.hashFile, scope: read},
		{method: "GET", path: files + "/attributes", handle: a.attributes, scope: read},
		{method: "POST", path: files + "/attributes", handle: a.setAttributes, scope: work},
		{method: "GET", path: files + "/archive", handle: a.archive, scope: read},
		{method: "PUT", path: files + "/archive", handle: a.unpack, scope: work},
		{method: "POST", path: files + "/sign", handle: a.signFile, scope: work},
		{method: "GET", path: files + "/signed", handle: a.readSigned, open: true, anywhere: true},
		{method: "HEAD", path: files + "/signed", handle: a.readSigned, open: true, anywhere: true},
		{method: "PUT", path: files + "/signed", handle: a.writeSigned, open: true, anywhere: true},
		{method: "GET", path: box + "/watch", handle: a.watch, scope: read},

		{method: "GET", path: box + "/ports", handle: a.ports, scope: read},
		{method: "POST", path: box + "/ports/{port}/share", handle: a.sharePort, scope: work},
		{method: "GET", path: box + "/ports/{port}/tunnel", handle: a.tunnelPort, scope: work},
		{method: "GET", path: "/v1/domains", handle: a.domains, scope: read},
		{method: "POST", path: "/v1/domains", handle: a.addDomain, scope: admin},
		{method: "GET", path: "/v1/domains/{domain}", handle: a.domain, scope: read},
		{method: "DELETE", path: "/v1/domains/{domain}", handle: a.removeDomain, scope: admin},
		{method: "POST", path: "/v1/domains/{domain}/verify", handle: a.verifyDomain, scope: admin},

		{method: "GET", path: "/v1/volumes", handle: a.volumes, scope: read},
		{method: "POST", path: "/v1/volumes", handle: a.createVolume, scope: admin},
		{method: "GET", path: "/v1/volumes/{volume}", handle: a.volume, scope: read},
		{method: "DELETE", path: "/v1/volumes/{volume}", handle: a.removeVolume, scope: admin},
		{method: "GET", path: "/v1/volumes/{volume}/list", handle: a.listVolume, scope: read},
		{method: "GET", path: "/v1/volumes/{volume}/files", handle: a.readVolume, scope: read},
		{method: "PUT", path: "/v1/volumes/{volume}/files", handle: a.writeVolume, scope: work},
		{method: "DELETE", path: "/v1/volumes/{volume}/files", handle: a.removeFromVolume, scope: work},

		{method: "POST", path: "/v1/gc", handle: a.collectGarbage, operator: true},
		{method: "GET", path: "/v1/usage", handle: a.consumption, scope: read},
		{method: "GET", path: "/v1/events", handle: a.changes, scope: read},
		{method: "GET", path: "/v1/webhooks", handle: a.webhooks, scope: admin},
		{method: "POST", path: "/v1/webhooks", handle: a.createWebhook, scope: admin},
		{method: "GET", path: "/v1/webhooks/{webhook}", handle: a.webhook, scope: admin},
		{method: "DELETE", path: "/v1/webhooks/{webhook}", handle: a.removeWebhook, scope: admin},

		{method: "GET", path: "/v1/account", handle: a.ownAccount, scope: read},
		{method: "GET", path: "/v1/keys", handle: a.keys, scope: admin},
		{method: "POST", path: "/v1/keys", handle: a.createKey, scope: admin},
		{method: "PATCH", path: "/v1/keys/{key}", handle: a.updateKey, scope: admin},
		{method: "DELETE", path: "/v1/keys/{key}", handle: a.removeKey, scope: admin},
		{method: "GET", path: "/v1/accounts", handle: a.allAccounts, operator: true},
		{method: "POST", path: "/v1/accounts", handle: a.createAccount, operator: true},
		{method: "GET", path: "/v1/accounts/{account}", handle: a.account, operator: true},
		{method: "PATCH", path: "/v1/accounts/{account}", handle: a.setQuota, operator: true},
		{method: "DELETE", path: "/v1/accounts/{account}", handle: a.removeAccount, operator: true},
		{method: "GET", path: "/v1/accounts/temporary/challenge", handle: a.challenge, open: true},
		{method: "POST", path: "/v1/accounts/temporary", handle: a.makeTemporary, open: true},
		{method: "GET", path: "/claim/{claim}", handle: a.claimPage, open: true, anywhere: true, secret: true},
		{method: "POST", path: "/claim/{claim}", handle: a.claim, open: true, secret: true},

		{method: "GET", path: "/v1/templates", handle: a.templates, scope: read},
		{method: "POST", path: "/v1/templates", handle: a.buildTemplate, operator: true},
		{method: "POST", path: "/v1/builds", handle: a.startBuild, operator: true},
		{method: "GET", path: "/v1/builds/{build}", handle: a.getBuild, scope: read},
		{method: "DELETE", path: "/v1/builds/{build}", handle: a.cancelBuild, operator: true},
		{method: "POST", path: "/v1/contexts", handle: a.putContext, scope: admin},
		{method: "GET", path: "/v1/contexts/{context}", handle: a.hasContext, scope: admin},
		{method: "GET", path: "/v1/templates/{name}", handle: a.template, scope: read},
		{method: "DELETE", path: "/v1/templates/{name}", handle: a.removeTemplate, operator: true},
	}
}

// noRoute answers what no route takes, and says which methods the path has.
func (a *API) noRoute(_ http.ResponseWriter, r *http.Request) error {
	e := &sandbox.Error{Kind: sandbox.NotFound, Err: fmt.Errorf("nothing is served at %s %.200q", r.Method, r.URL.Path),
		Hint: "/v1/openapi.json lists what is"}
	var has []string
	for _, m := range []string{"GET", "PUT", "POST", "PATCH", "DELETE"} {
		other := r.Clone(r.Context())
		other.Method = m
		if _, pattern := a.mux.Handler(other); pattern != "/" && pattern != "" {
			has = append(has, m)
		}
	}
	if len(has) > 0 && !slices.Contains(has, r.Method) {
		e.Hint = "this path takes " + strings.Join(has, ", ")
	}
	return e
}
