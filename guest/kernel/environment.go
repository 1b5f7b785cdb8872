package kernel

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// setTime bounds how long a kernel takes to change its environment.
const setTime = 30 * time.Second

// setters gives the code that sets one variable, or with value nil unsets it, in
// each language that has one.
var setters = map[string]func(name string, value *string) string{
	"python": func(name string, value *string) string {
		if value == nil {
			return `__import__("os").environ.pop(` + quote(name) + `, None)`
		}
		return `__import__("os").environ[` + quote(name) + `] = ` + quote(*value)
	},
	"javascript": setProcessEnv,
	"typescript": setProcessEnv,
	"bash": func(name string, value *string) string {
		if value == nil {
			return "unset " + shellQuote(name)
		}
		return "export " + shellQuote(name+"="+*value)
	},
	"java": func(name string, value *string) string { // its environment is fixed: programs ask for properties
		if value == nil {
			return "System.clearProperty(" + quote(name) + ");"
		}
		return "System.setProperty(" + quote(name) + ", " + quote(*value) + ");"
	},
	"r": func(name string, value *string) string {
		if value == nil {
			return "Sys.unsetenv(" + quote(name) + ")"
		}
		return "Sys.setenv(" + quote(name) + " = " + quote(*value) + ")"
	},
}

func setProcessEnv(name string, value *string) string {
	if value == nil {
		return "delete globalThis.process.env[" + quote(name) + "];"
	}
	return "globalThis.process.env[" + quote(name) + "] = " + quote(*value) + ";"
}

// quote makes a text literal that Python, JavaScript, Java and R read alike: what is
// beyond ASCII is left as it is.
func quote(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil { // a string always can be
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// setting is the code that sets env; with base it puts those names back to what
// they are there.
func setting(language string, env, base map[string]string, back bool) string {
	set := setters[language]
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		old, was := base[name]
		switch {
		case !back:
			lines = append(lines, set(name, &value))
		case was:
			lines = append(lines, set(name, &old))
		default:
			lines = append(lines, set(name, nil))
		}
	}
	return strings.Join(lines, "\n")
}

// quietly runs code that nobody is shown, and reports whether it went well.
func (k *interpreter) quietly(code string) bool {
	id, err := k.request(shell, "execute_request", executeRequest{Code: code, Silent: true, Expressions: map[string]string{}})
	if err != nil {
		return false
	}
	late := time.NewTimer(setTime)
	defer late.Stop()
	ok, replied, idle := false, false, false
	for !replied || !idle {
		select {
		case a := <-k.in:
			switch {
			case a.err != nil:
				return false
			case a.msg.Parent != id:
			case a.from == shell && a.msg.Type == "execute_reply":
				var r struct {
					Status string `json:"status"`
				}
				replied = true
				ok = json.Unmarshal(a.msg.Content, &r) == nil && r.Status == "ok"
			case a.from == iopub && a.msg.Type == "status":
				idle = idle || isIdle(a.msg.Content)
			}
		case <-k.process.Done():
			return false
		case <-late.C:
			return replied && ok // what was published is lost
		}
	}
	return ok
}
