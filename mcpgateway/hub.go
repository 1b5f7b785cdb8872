package mcpgateway

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// hub shows what all servers have as one server's.
//
// A tool keeps its name, and so does a prompt, unless another server has one of that
// name: then each has the name of its server before it. Of two resources of one URI that
// of the first server, by name, is shown.
type hub struct {
	server *mcp.Server
	log    io.Writer

	mu     sync.Mutex
	offers map[string]*offer            // by server
	shown  map[string]map[string]string // what is shown, by kind and name
}

// item is one thing to show.
type item struct {
	text string // changes when it does
	add  func()
}

func newHub(server *mcp.Server, log io.Writer) *hub {
	return &hub{server: server, log: log, offers: map[string]*offer{}, shown: map[string]map[string]string{}}
}

// tell takes what a server has in place of what it had.
func (h *hub) tell(o *offer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offers[o.from.plan.name] = o
	h.show("tool", h.tools(), h.server.RemoveTools)
	h.show("prompt", h.prompts(), h.server.RemovePrompts)
	h.show("resource", h.resources(), h.server.RemoveResources)
	h.show("resource template", h.templates(), h.server.RemoveResourceTemplates)
}

// show makes what is shown of one kind what is wanted. Clients are told of changes only.
func (h *hub) show(kind string, want map[string]item, remove func(...string)) {
	shown := h.shown[kind]
	if shown == nil {
		shown = map[string]string{}
		h.shown[kind] = shown
	}
	var gone []string
	for name := range shown {
		if _, ok := want[name]; !ok {
			gone = append(gone, name)
			delete(shown, name)
		}
	}
	if len(gone) > 0 {
		remove(gone...)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		w := want[name]
		if shown[name] == w.text {
			continue
		}
		if err := guarded(w.add); err != nil {
			say(h.log, "gateway", "the %s %.200q is not shown: %v", kind, name, err)
		}
		shown[name] = w.text
	}
}

// guarded makes an error of what the library has to say against an entry.
func guarded(add func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	add()
	return nil
}

func (h *hub) tools() map[string]item {
	return items(h, func(o *offer) []*mcp.Tool { return o.tools }, func(t *mcp.Tool) *string { return &t.Name }, true,
		func(o *offer, shown, own *mcp.Tool) { h.server.AddTool(shown, o.from.callTool(own.Name)) })
}

func (h *hub) prompts() map[string]item {
	return items(h, func(o *offer) []*mcp.Prompt { return o.prompts }, func(p *mcp.Prompt) *string { return &p.Name }, true,
		func(o *offer, shown, own *mcp.Prompt) { h.server.AddPrompt(shown, o.from.getPrompt(own.Name)) })
}

func (h *hub) resources() map[string]item {
	return items(h, func(o *offer) []*mcp.Resource { return o.resources }, func(r *mcp.Resource) *string { return &r.URI }, false,
		func(o *offer, shown, _ *mcp.Resource) { h.server.AddResource(shown, o.from.readResource) })
}

func (h *hub) templates() map[string]item {
	return items(h, func(o *offer) []*mcp.ResourceTemplate { return o.templates }, func(r *mcp.ResourceTemplate) *string { return &r.URITemplate }, false,
		func(o *offer, shown, _ *mcp.ResourceTemplate) {
			h.server.AddResourceTemplate(shown, o.from.readResource)
		})
}

// items gathers the entries of one kind of all servers under the names that they are
// shown with.
func items[T any](h *hub, of func(*offer) []*T, nameOf func(*T) *string, rename bool, add func(o *offer, shown, own *T)) map[string]item {
	count := map[string]int{}
	for _, o := range h.offers {
		for _, e := range of(o) {
			count[*nameOf(e)]++
		}
	}
	all := map[string]item{}
	for _, server := range slices.Sorted(maps.Keys(h.offers)) {
		o := h.offers[server]
		for _, e := range of(o) {
			shown := *e
			name := nameOf(&shown)
			if rename && count[*name] > 1 {
				*name = label(server) + "_" + *name
			}
			text, err := json.Marshal(&shown)
			if _, taken := all[*name]; taken || err != nil {
				continue
			}
			all[*name] = item{server + "\n" + string(text), func() { add(o, &shown, e) }}
		}
	}
	return all
}

// label is a server's name as a part of a tool's, for which clients take few characters.
func label(server string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' {
			return c
		}
		return '_'
	}, strings.TrimPrefix(server, "github/"))
}
