package main

// spawnEdits let the guest, the first process, start a program by one call, and wait for
// a short one by another. The files under lay say what they do.
var spawnEdits = []edit{
	{
		Why:  "two calls that there are for the first process alone, beyond the numbers of any kernel",
		File: "pkg/sentry/syscalls/linux/linux64.go",
		At:   "\t\t441: syscalls.Supported(\"epoll_pwait2\", EpollPwait2),\n\t},\n\tEmulate: map[hostarch.Addr]uintptr{\n\t\t0xffffffffff600000: 96,  // vsyscall gettimeofday(2)\n",
		Replace: "\t\t441: syscalls.Supported(\"epoll_pwait2\", EpollPwait2),\n\n" +
			"\t\t1990: syscalls.Supported(\"spawn\", Spawn),\n\t\t1991: syscalls.Supported(\"await_exit\", AwaitExit),\n" +
			"\t},\n\tEmulate: map[hostarch.Addr]uintptr{\n\t\t0xffffffffff600000: 96,  // vsyscall gettimeofday(2)\n",
	},
	{
		Why: "the watcher of the first process's runtime would look every 20 microseconds whether anything has become stuck, " +
			"which costs the machine more than what the process does meanwhile",
		File:    "pkg/sentry/syscalls/linux/sys_time.go",
		At:      "\tdur := time.Duration(ts.ToNsecCapped()) * time.Nanosecond\n\tc := t.Kernel().MonotonicClock()\n\treturn 0, nil, clockNanosleepUntil(",
		Replace: "\tdur := t.Rested(time.Duration(ts.ToNsecCapped()) * time.Nanosecond)\n\tc := t.Kernel().MonotonicClock()\n\treturn 0, nil, clockNanosleepUntil(",
	},
	{
		Why: "a program asks the processor eighty times what it can before it begins: that answers itself, as one does that leaves " +
			"no choice. A machine's memory is only used where there is all that its programs may have found",
		File:    "pkg/sentry/platform/systrap/subprocess_linux.go",
		At:      "\t// Enable cpuid-faulting.\n\tenableCpuidFault()\n",
		Replace: "\t_ = enableCpuidFault\n",
	},
	{
		Why: "who wakes a sandbox wants a moment of it: to spin for programs, and they for the engine, pays in what takes longer. " +
			"A burst begins without, and one that goes on for some twenty milliseconds is tried with it as ever",
		File:    "pkg/sentry/platform/systrap/metrics.go",
		At:      "\tfastPathBackoffMin             = 2\n",
		Replace: "\tfastPathBackoffMin             = 50\n",
	},
	{
		Why:   "as the first does, so each after a rest",
		File:  "pkg/sentry/platform/systrap/metrics.go",
		At:    "\t\t<-s.monitorWakeup\n\t}\n\ts.monitorParked.Store(false)\n",
		After: "\ts.sentryFPBackoff = max(s.sentryFPBackoff, fastPathBackoffMin)\n\ts.stubFPBackoff = max(s.stubFPBackoff, fastPathBackoffMin)\n",
	},
}
