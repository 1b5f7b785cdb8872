package cloudflare

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// quote makes one word of s for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// variable is what a shell takes as a variable's name.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkEnv refuses what a shell cannot export.
func checkEnv(env map[string]string) error {
	for name := range env {
		if !variable.MatchString(name) {
			return invalid(fmt.Sprintf("%.80q is not a variable's name", name))
		}
	}
	return nil
}

// within is a command's text that runs in a folder and with variables of its own,
// and leaves both behind as they were. The command itself runs in the session's
// shell, so that what else it changes stays. undo is for the shell of a command that
// did not come to its end; "" where there is nothing to undo.
func within(command, cwd string, env map[string]string) (text, undo string) {
	if cwd == "" && len(env) == 0 {
		return command, ""
	}
	var b, after strings.Builder
	for i, name := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&b, "__cf_h%[1]d=${%[2]s+x} __cf_v%[1]d=${%[2]s-} __cf_a%[1]d=${%[2]s@a}\nexport %[2]s=%[3]s\n", i, name, quote(env[name]))
		fmt.Fprintf(&after, `if [ -z "${__cf_h%[1]d+x}" ]; then :; elif [ -n "$__cf_h%[1]d" ]; then %[2]s=$__cf_v%[1]d; case $__cf_a%[1]d in *x*) ;; *) export -n %[2]s;; esac; else unset -v %[2]s; fi`+"\n", i, name)
		fmt.Fprintf(&after, "unset -v __cf_h%[1]d __cf_v%[1]d __cf_a%[1]d\n", i)
	}
	run := "builtin eval -- " + quote(command)
	if cwd != "" {
		fmt.Fprintf(&b, "__cf_d=$PWD\n")
		run = "builtin cd -- " + quote(cwd) + " && " + run
		after.WriteString("if [ -n \"${__cf_d+x}\" ]; then builtin cd -- \"$__cf_d\"; unset -v __cf_d; fi\n")
	}
	b.WriteString(run + "\n__cf_s=$?\n")
	b.WriteString(after.String())
	b.WriteString("__cf_r() { builtin return \"$1\"; }\n__cf_r \"$__cf_s\"\n")
	return b.String(), after.String()
}

// describe is a session's command that prints what makes another shell the same:
// its folder, variables, functions, aliases and options. What changes how functions
// are read comes before them, the other options last.
const describe = `builtin printf 'builtin cd -- %q\n' "$PWD"; builtin shopt -p extglob; builtin declare -p; builtin declare -f; builtin alias -p; builtin umask -p; builtin shopt -p; builtin set +o`

// resume is a program for "bash -c" that goes on from a state, and then runs a
// command. Its arguments are: two words that are only to be seen in the list of
// processes, which shows no more than the first few KiB; the command; "stay" to return
// to the folder that it was started in, or ""; and "file" or "". The state, or the path
// of the file that holds it, is in the environment, which other users cannot read.
//
// When the process's group is asked to end, this shell waits for the program that it
// runs, which may need a moment.
const resume = `__cf_x=$` + stateVariable + ` __cf_d=$PWD __cf_c=$3 __cf_w=$4
builtin unset -v ` + stateVariable + `
if [ "$5" = file ]; then builtin . "$__cf_x"; rm -f -- "$__cf_x"; else builtin eval -- "$__cf_x"; fi 2>/dev/null
case $__cf_w in stay) builtin cd -- "$__cf_d";; esac
builtin unset -v ${!__berth_@} __cf_d __cf_w __cf_x 2>/dev/null
builtin set --
builtin trap 'builtin exit 143' TERM
builtin eval -- "builtin unset -v __cf_c
$__cf_c"`

const stateVariable = "__cf_state"

// Where the words and the command stand in the arguments of a process that resumed.
const (
	argFirst   = 4
	argSecond  = 5
	argCommand = 6
)

// resumption is what resume takes.
type resumption struct {
	first, second string
	command       string
	stay, file    string
	state         string
}

// argv is the program.
func (c *resumption) argv() []string {
	return []string{"bash", "-c", resume, "bash", c.first, c.second, c.command, c.stay, c.file}
}

// environ is the variables given, and the state.
func (c *resumption) environ(env map[string]string) map[string]string {
	all := map[string]string{stateVariable: c.state}
	maps.Copy(all, env)
	return all
}
