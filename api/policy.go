package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Policies are the verbs on what a sandbox may reach, and on what it did reach.
type Policies interface {
	Policy(ctx context.Context, id string) (sandbox.Policy, error)
	SetPolicy(ctx context.Context, id string, p sandbox.Policy) (warnings []string, err error)
	Audit(ctx context.Context, q sandbox.AuditQuery) (sandbox.AuditPage, error)
	FollowAudit(ctx context.Context, q sandbox.AuditQuery) (sandbox.AuditStream, error)
}

func (a *API) policy(w http.ResponseWriter, r *http.Request) error {
	p, err := a.engine.Policy(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, p)
}

func (a *API) setPolicy(w http.ResponseWriter, r *http.Request) error {
	var p sandbox.Policy
	if err := decode(w, r, &p); err != nil {
		return err
	}
	warnings, err := a.engine.SetPolicy(r.Context(), r.PathValue("id"), p)
	if err != nil {
		return err
	}
	shown, _ := p.Detach()
	return writeJSON(w, http.StatusOK, wire.PolicySet{Policy: *shown, Warnings: warnings})
}

// policySchema serves the schema of a policy's document: the part of this API's
// own document that is about it.
func (a *API) policySchema(w http.ResponseWriter, _ *http.Request) error {
	b, err := policySchemaOnce()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/schema+json")
	_, err = w.Write(b)
	return err
}

var policySchemaOnce = sync.OnceValues(func() ([]byte, error) {
	return schemaOf("Policy", "what a sandbox may reach")
})

// schemaOf makes a JSON schema of its own from one of the document's.
func schemaOf(name, title string) ([]byte, error) {
	const prefix = "#/components/schemas/"
	var doc struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, sandbox.Errorf("read the API's document", sandbox.Internal, "%w", err)
	}
	defs := map[string]json.RawMessage{}
	var add func(raw json.RawMessage) json.RawMessage
	add = func(raw json.RawMessage) json.RawMessage {
		for _, part := range strings.Split(string(raw), prefix)[1:] {
			used, _, _ := strings.Cut(part, `"`)
			if _, known := defs[used]; !known {
				defs[used] = nil // it may use itself
				defs[used] = add(doc.Components.Schemas[used])
			}
		}
		return json.RawMessage(strings.ReplaceAll(string(raw), prefix, "#/$defs/"))
	}
	var schema map[string]json.RawMessage
	if err := json.Unmarshal(add(doc.Components.Schemas[name]), &schema); err != nil {
		return nil, sandbox.Errorf("read the schema "+name, sandbox.Internal, "%w", err)
	}
	for key, value := range map[string]any{"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, "$defs": defs} {
		b, err := json.Marshal(value)
		if err != nil {
			return nil, sandbox.Errorf("write the schema "+name, sandbox.Internal, "%w", err)
		}
		schema[key] = b
	}
	b, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return nil, sandbox.Errorf("write the schema "+name, sandbox.Internal, "%w", err)
	}
	return append(b, '\n'), nil
}
