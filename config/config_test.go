package config_test

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/sandbox"
)

func parse(t *testing.T, text string) config.File {
	t.Helper()
	f, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return f
}

func TestParse(t *testing.T) {
	f := parse(t, `
drain = "1m30s"
[limits]
wake = "5s"
[[types]]
name = "huge"
memory = "1.5GiB"
disk = "20GB"
[webhooks]
allow = ["10.0.0.0/8", "::1", "192.0.2.7"]
[temporary]
enabled = true
[temporary.quota]
sandboxes = 9
`)
	if f.Drain != (config.Duration{Duration: 90 * time.Second}) || f.Limits.Wake != (config.Duration{Duration: 5 * time.Second}) {
		t.Errorf("%+v", f)
	}
	types := f.InstanceTypes()
	if len(types) != 1 || types[0] != (sandbox.InstanceType{Name: "huge", Limits: sandbox.Limits{MemoryBytes: 3 << 29, DiskBytes: 20e9}}) {
		t.Errorf("%+v", types)
	}
	if r := f.WebhookRanges(); len(r) != 3 || r[1].String() != "::1/128" || r[2].String() != "192.0.2.7/32" {
		t.Errorf("%v", r)
	}
	want := config.DefaultTemporaryQuota()
	want.Sandboxes = 9
	if got := f.TemporaryQuota(); got != want {
		t.Errorf("%+v", got)
	}
	if f := parse(t, ""); !reflect.DeepEqual(f, config.File{}) {
		t.Errorf("nothing is read as %+v", f)
	}
}

func TestParseSaysWhere(t *testing.T) {
	for text, want := range map[string]string{
		"listen = \"a:1\"\nlisten_on = 1":                  "line 2: listen_on is not a key",
		"\n\n[quotas]\nsandboxes = 1":                      "line 3: quotas is not a key",
		"[quota]\nsandbox = 1":                             "line 2: quota.sandbox is not a key",
		"drain = \"1 minute\"":                             "line 1",
		"drain = 5":                                        `"5" is not a time`,
		"[quota]\nmemory = \"lots\"":                       "line 2",
		"[quota]\nmemory = \"NaNGiB\"":                     "line 2",
		"[quota]\nmemory = \"1e300GiB\"":                   "line 2",
		"[quota]\nsandboxes = \"1\"":                       "line 2",
		"[webhooks]\nallow = [\"10.0.0.1/8\"]":             "line 2",
		"listen = ":                                        "line 1",
		"listen = \"here\"":                                "check listen",
		"url = \"ftp://x\"":                                "check url",
		"log_level = \"loud\"":                             "check log_level",
		"[limits]\ncreates = -1":                           "check limits",
		"[limits]\nengines = 1001":                         "check limits.engines",
		"[quota]\nsandboxes = -1":                          "check quota",
		"[temporary]\nwork_bits = 33":                      "check temporary.work_bits",
		"[temporary]\nlifetime = \"1s\"":                   "check temporary.lifetime",
		"[[types]]\nname = \"A\"":                          "check types",
		"[[types]]\nname = \"a\"\n[[types]]\nname = \"a\"": "the type a comes twice",
		"[[types]]\nname = \"a\"\nmemory = \"1MiB\"":       "check type a",
	} {
		_, err := config.Parse([]byte(text))
		if sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), want) || sandbox.HintOf(err) == "" {
			t.Errorf("%q: %v (hint %q), want %q", text, err, sandbox.HintOf(err), want)
		}
	}
}

// keysOf lists the keys of a struct's fields, as a file has them.
func keysOf(typ reflect.Type, prefix string) (keys []string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		key := prefix + f.Tag.Get("toml")
		inner := f.Type
		if inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner.NumField() > 0 && inner.Field(0).Tag.Get("toml") != "" {
			keys = append(keys, keysOf(inner, key+".")...)
		} else {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestDocument holds the keys and docs/config.md to each other, and its example.
func TestDocument(t *testing.T) {
	b, err := os.ReadFile("../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\|").FindAllStringSubmatch(string(b), -1) {
		described = append(described, m[1])
	}
	keys := keysOf(reflect.TypeFor[config.File](), "")
	slices.Sort(described)
	slices.Sort(keys)
	if !slices.Equal(described, keys) {
		t.Errorf("described:\n%s\nread:\n%s", strings.Join(described, "\n"), strings.Join(keys, "\n"))
	}
	_, example, _ := strings.Cut(string(b), "```toml\n")
	example, _, _ = strings.Cut(example, "```")
	if f := parse(t, example); f.Quota.Memory != 64<<30 || len(f.Types) != 1 {
		t.Errorf("%+v", f)
	}
}

func TestDoorsAreChecked(t *testing.T) {
	for _, text := range []string{
		"[https]\nlisten = \"nowhere\"", "[https]\ncertificate = \"/c.pem\"", "[acme]\ndirectory = \"http://acme.example.com\"",
		"[egress]\nallow = [\"10.0.0.1/8\"]", "[egress]\nconnections = 65537", "[egress]\nresolvers = [\"dns.example.com\"]",
		"[egress.handlers]\na = \"program\"", "[egress.handlers]\n\"a b\" = \"/bin/true\"", "[audit]\ndays = -1",
	} {
		if _, err := config.Parse([]byte(text)); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", text, err)
		}
	}
	f := parse(t, `
[https]
listen = "0.0.0.0:443"
[egress]
deny = ["192.0.2.0/24"]
resolvers = ["192.0.2.53", "[2001:db8::53]:5353"]
[egress.handlers]
sign = "/usr/lib/sign --quick"
`)
	if f.HTTPS.Listen != "0.0.0.0:443" || len(f.Egress.Resolvers) != 2 || f.Egress.Handlers["sign"] != "/usr/lib/sign --quick" {
		t.Errorf("%+v", f)
	}
}

func TestFixed(t *testing.T) {
	old := parse(t, "listen = \"a:1\"\nlog_level = \"info\"\n[quota]\nsandboxes = 1")
	next := parse(t, "listen = \"a:2\"\nlog_level = \"warn\"\n[limits]\ncreates = 1\n[quota]\nsandboxes = 2\n[temporary]\nenabled = true")
	if got := config.Fixed(old, next); !slices.Equal(got, []string{"listen", "limits"}) {
		t.Errorf("%q", got)
	}
	if got := config.Fixed(old, old); got != nil {
		t.Errorf("%q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("listen = \"a:1\"\n[quota]\nmemory = \"1GiB\"\n[webhooks]\nallow = [\"::1/128\"]")
	f.Add("[[types]]\nname = \"a\"\n[temporary]\nlifetime = \"1h\"")
	f.Add("x = [[[[{}]]]]")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := config.Parse([]byte(text))
		if err != nil {
			if sandbox.KindOf(err) != sandbox.Invalid {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if err := c.TemporaryQuota().Check(); err != nil {
			t.Errorf("%q passes with %v", text, err)
		}
		for _, typ := range c.InstanceTypes() {
			if err := typ.Limits.WithDefaults(sandbox.DefaultLimits()).Check(); err != nil {
				t.Errorf("%q passes with %v", text, err)
			}
		}
	})
}
