__berth_dir=$1 __berth_r=$2 __berth_n= __berth_s=0 __berth_t= __berth_a= __berth_i= __berth_e= __berth_f=
set --
__berth_ret() { return "$__berth_s"; }
__berth_dump() {
	{
		set
		export -p
		printf 'umask '
		umask
		set +o
		printf '#%s\n' "$__berth_t"
	} >|"$__berth_dir/state.$__berth_a"
} 2>/dev/null
if [ -n "$__berth_r" ]; then
	{ command . "$__berth_dir/$__berth_r"; command cd -- "$PWD"; } >/dev/null 2>&1
fi
trap 'exit 143' TERM
trap '{ set +x; } 2>/dev/null; __berth_dump' EXIT
printf 'ready 0 %s %s\0' "$-" "$PWD" >&9
while IFS=' ' read -r __berth_n __berth_t __berth_a __berth_i __berth_e <&8; do __berth_r=$__berth_dir/$__berth_n; case $__berth_i in 1) __berth_f=$__berth_r.i;; *) __berth_f=/dev/null;; esac; { printf x >&9; case $__berth_s in 0) command . "$__berth_r.c";; *) __berth_ret || command . "$__berth_r.c";; esac; } <"$__berth_f" >"$__berth_r.o" 2>"$__berth_r.$__berth_e" 8<&- 9>"$__berth_r.l"; __berth_s=$? __berth_f=$-; { set +x; } 2>/dev/null; __berth_dump || :; printf '%s %s %s %s\0' "$__berth_t" "$__berth_s" "$__berth_f" "$PWD" >&9; done
