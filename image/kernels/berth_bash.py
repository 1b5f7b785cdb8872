"""A kernel of Bash that can be interrupted at any moment.

It is bash_kernel with another way to break off what runs. There a signal raises an
exception wherever the kernel is just then, asks the shell once, and takes the next
prompt for the answer: asked between two commands, a shell goes on with the second, and
a prompt too many gives each later run the output of the one before it. Here the signal's
handler asks, and asks again until the shell is at its prompt; then what is left of the
answers is read away.
"""

import random
import signal
import string

import pexpect
from bash_kernel.kernel import BashKernel

AGAIN = 1  # seconds from one interrupt to the next, while the shell does not heed it


class Kernel(BashKernel):
    running = broken_off = False

    def pre_handler_hook(self):
        self.broken_off = False
        self._before = [(s, signal.signal(s, self._break_off)) for s in (signal.SIGALRM, signal.SIGINT)]

    def post_handler_hook(self):
        signal.setitimer(signal.ITIMER_REAL, 0)
        for s, handler in self._before:
            signal.signal(s, handler)

    def _break_off(self, *_):
        self.broken_off = True
        if self.running:
            self.bashwrapper.child.sendintr()
            signal.setitimer(signal.ITIMER_REAL, AGAIN)

    def _start_bash(self):
        super()._start_bash()
        self.bashwrapper.child.delaybeforesend = None  # which is for programs that ask for passwords
        # An interrupt while the terminal changes hands between jobs would end the shell.
        self.bashwrapper.run_command("set +m")

    def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False):
        self.silent = silent
        code = code.strip("\n").rstrip()
        if not code.strip():
            return self._done()
        if code.endswith("\\"):
            return self._failed("the code ends with a backslash")
        try:
            whole = self._submit(code)
            if self.broken_off:
                self._settle()
                return self._failed("130", "KeyboardInterrupt")
            if not whole:
                return self._failed("the code is not complete")
            status = self.bashwrapper.run_command("{ echo $?; } 2>/dev/null").split()
        except pexpect.EOF:
            self._restart(self.bashwrapper.child.before)
            return self._failed("130", "KeyboardInterrupt") if self.broken_off else self._done()
        except pexpect.TIMEOUT:  # of its status: it is none that can be used again
            self._restart("")
            return self._failed("the shell did not answer")
        if self.broken_off:  # after the code, as far as it matters
            self._settle()
        return self._done() if status[:1] == ["0"] else self._failed((status or ["1"])[0])

    def _submit(self, code):
        """Runs the code line by line, unless it is broken off; False: it goes on beyond
        its last line.
        """
        shell, whole = self.bashwrapper, True
        for line in code.split("\n"):
            if self.broken_off:
                break
            shell.child.sendline(line)
            self.running = True  # not before: the line would follow its interrupt
            if self.broken_off:
                self._break_off()
            try:
                whole = shell._expect_prompt(timeout=None) == 0
            finally:
                self.running = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        if not whole:
            shell.child.sendintr()
            self._settle()
        return whole

    def _settle(self):
        """Reads away what interrupts have left, up to an answer that the shell gives to
        nothing else, and to which none came in between. What heeds none may go on for long.
        """
        shell, asked = self.bashwrapper, True
        while True:
            answer = "".join(random.choices(string.ascii_uppercase, k=16))
            shell.child.sendline(f"echo '{answer[:8]}''{answer[8:]}'")
            try:
                shell.child.expect(answer + "\r?\n" + shell.ps1_re, timeout=AGAIN)
            except pexpect.TIMEOUT:
                shell.child.sendintr()
                asked = True
                continue
            if not asked:
                return
            asked = False

    def _restart(self, said):
        self.bashwrapper.child.close(force=True)
        self.process_output(said + "Restarting Bash")
        self._start_bash()

    def _done(self):
        return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}

    def _failed(self, value, name=""):
        error = {"ename": name, "evalue": value, "traceback": []}
        self.send_response(self.iopub_socket, "error", error)
        return {"status": "error", "execution_count": self.execution_count, **error}


if __name__ == "__main__":
    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.launch_instance(kernel_class=Kernel)
