"""A kernel of Java: JShell, in a program of its own beside this one, which speaks Jupyter."""

import base64
import os
import signal
import subprocess

from ipykernel.kernelbase import Kernel as Base

CLASSES = os.environ.get("BERTH_JAVA_CLASSES", "/usr/local/share/jupyter/kernels/java")
AGAIN = 1  # seconds from one interrupt to the next, while the code does not heed it


class Kernel(Base):
    implementation = "berth_java"
    implementation_version = "1"
    language_info = {"name": "java", "mimetype": "text/x-java-source", "file_extension": ".java"}
    banner = "Java"

    running = broken_off = False

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.java = subprocess.Popen(
            ["java", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-cp", CLASSES, "BerthJava"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # interrupts are for this process, which passes them on
        )
        self.told = os.fdopen(os.dup(self.java.stdout.fileno()), "rb")
        self._hear({})

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
            self._say(b"stop")
            signal.setitimer(signal.ITIMER_REAL, AGAIN)

    def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False):
        reply = {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}

        def stream(name):
            return lambda text: self.send_response(self.iopub_socket, "stream", {"name": name, "text": text})

        def value(text):
            self.send_response(self.iopub_socket, "execute_result",
                               {"execution_count": self.execution_count, "data": {"text/plain": text}, "metadata": {}})

        def error(name, text, trace):
            told = {"ename": name, "evalue": text, "traceback": trace.splitlines()}
            reply.update(told, status="error")
            if not silent:
                self.send_response(self.iopub_socket, "error", told)

        self._say(b"run " + base64.b64encode(code.encode("utf-8", "replace")))
        self.running = True  # not before: an interrupt would stand within the line
        if self.broken_off:
            self._break_off()
        try:
            shown = {"error": error}
            if not silent:
                shown.update(out=stream("stdout"), err=stream("stderr"), value=value)
            self._hear(shown)
        finally:
            self.running = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        return reply

    def _say(self, line):
        rest = line + b"\n"
        while rest:
            rest = rest[os.write(self.java.stdin.fileno(), rest):]

    def _hear(self, shown):
        """Passes on what Java tells, until it is done. Its end is this program's too."""
        for line in self.told:
            what, *texts = line.decode("ascii").rstrip("\n").split(" ")
            if what == "done":
                return
            if what in shown:
                shown[what](*(base64.b64decode(t).decode("utf-8", "replace") for t in texts))
        os._exit(self.java.wait() % 256)


if __name__ == "__main__":
    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.launch_instance(kernel_class=Kernel)
