__berth_dir=$1 __berth_r=$2 __berth_m= __berth_s=0 __berth_t= __berth_a= __berth_c= __berth_f=
set -- "$BASHOPTS:$SHELLOPTS"
__berth_ret() { builtin return "$__berth_s"; }
__berth_dump() {
	__berth_c=
	{
		builtin printf 'builtin cd -- %q\n' "$PWD"
		builtin umask -p
		builtin declare -p
		builtin declare -f
		builtin declare -F
		builtin alias -p
		# Options are many lines, and seldom other than at first.
		case $BASHOPTS:$SHELLOPTS in "$__berth_o") ;; *)
			builtin shopt -p
			builtin set +o
			;;
		esac
		builtin printf '#%s\n' "$__berth_t"
	} >|"$__berth_dir/state.$__berth_a"
} 2>/dev/null
# A substitution that is never closed leaves some shells' parser in disorder:
# the shell is then to be replaced.
__berth_broken() {
	(builtin eval "__berth_x() { $__berth_c
}") && return
	__berth_dump
	builtin trap - EXIT
	builtin exit 2
} 2>/dev/null
if [ -n "$__berth_r" ]; then
	builtin . "$__berth_dir/$__berth_r" 2>/dev/null >&2
fi
__berth_o=$1
set --
builtin trap '{ builtin set +x; } 2>/dev/null; __berth_dump' EXIT
builtin printf 'ready 0 %s %s\0' "$-" "$PWD" >&201
while builtin read -r -u 200 -N 28 __berth_m; do __berth_t=${__berth_m:8:16} __berth_a=${__berth_m:24:1} __berth_r=$__berth_dir/${__berth_m:0:8}; builtin read -r -N 2097152 __berth_c <"$__berth_r.c" || :; case ${__berth_m:25:1} in 1) __berth_f=$__berth_r.i;; *) __berth_f=/dev/null;; esac; { builtin printf x >&201; case $__berth_s in 0) builtin eval -- "$__berth_c";; *) __berth_ret || builtin eval -- "$__berth_c";; esac; } <"$__berth_f" >"$__berth_r.o" 2>"$__berth_r.${__berth_m:26:1}" 200<&- 201>"$__berth_r.l"; __berth_s=$? __berth_f=$-; builtin set +x; case $__berth_s$__berth_c in 2*'$('*) __berth_broken;; esac; __berth_dump || :; builtin printf '%s %s %s %s\0' "$__berth_t" "$__berth_s" "$__berth_f" "$PWD" >&201; done
