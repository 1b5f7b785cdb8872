package main

// initEdits keep the guest, the first process, from all others. The files under lay
// say which process that is.
var initEdits = []edit{
	{
		Why:  "nobody inside ends or stops the guest, root neither: the sandbox would end with it, and what it has written; as on Linux, whose first process gets no signal that it does not handle",
		File: "pkg/sentry/kernel/task_signals.go",
		At:   "\tif t.HasCapabilityIn(linux.CAP_KILL, target.UserNamespace()) {\n",
		Replace: "\tif (sig == linux.SIGKILL || sig == linux.SIGSTOP) && target.isFirst() {\n\t\treturn false\n\t}\n\n" +
			"\tif t.HasCapabilityIn(linux.CAP_KILL, target.UserNamespace()) {\n",
	},
	{
		Why:   "nor traces it, reads its memory or writes to it",
		File:  "pkg/sentry/kernel/ptrace.go",
		At:    "func (t *Task) canTraceStandard(target *Task, attach bool) bool {\n",
		After: "\tif attach && target.isFirst() {\n\t\treturn false\n\t}\n",
	},
}
