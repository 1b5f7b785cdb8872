import java.io.ByteArrayInputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.Collectors;

import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.UnresolvedReferenceException;

/**
 * Runs Java as it is given, with JShell, in this process. Each line of standard input is a
 * word and a text in base 64: "run" some code, or "stop" what runs. What the code does is
 * told on standard output in the same way, its own output too.
 */
public final class BerthJava {
    private static final List<String> IMPORTS = List.of("java.io.*", "java.math.*", "java.net.*", "java.nio.file.*", "java.util.*",
            "java.util.concurrent.*", "java.util.function.*", "java.util.regex.*", "java.util.stream.*");

    private final PrintStream told = System.out;
    private final JShell shell;
    private volatile boolean stopped;

    private BerthJava() {
        System.setIn(new ByteArrayInputStream(new byte[0]));
        System.setOut(new Printed("out"));
        System.setErr(new Printed("err"));
        shell = JShell.builder().executionEngine("local").out(System.out).err(System.err).in(System.in).build();
    }

    public static void main(String[] args) throws Exception {
        // What is in the environment can be changed only here.
        System.getenv().forEach((name, value) -> System.getProperties().putIfAbsent(name, value));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        new BerthJava().serve(in);
    }

    private void serve(BufferedReader in) throws Exception {
        LinkedBlockingQueue<String> runs = new LinkedBlockingQueue<>();
        Thread work = new Thread(() -> {
            for (String name : IMPORTS) {
                shell.eval("import " + name + ";");
            }
            tell("done", "ok");
            try {
                while (true) {
                    run(runs.take());
                }
            } catch (InterruptedException e) {
                System.exit(1);
            }
        });
        work.start();
        for (String line; (line = in.readLine()) != null; ) {
            if (line.equals("stop")) {
                stopped = true;
                shell.stop();
            } else {
                stopped = false;
                runs.put(new String(Base64.getDecoder().decode(line.substring("run ".length())), StandardCharsets.UTF_8));
            }
        }
        System.exit(0);
    }

    /** Tells one thing: a word, and texts. */
    private void tell(String what, String... texts) {
        String line = what + Arrays.stream(texts)
                .map(t -> " " + Base64.getEncoder().encodeToString(t.getBytes(StandardCharsets.UTF_8)))
                .collect(Collectors.joining()) + "\n";
        synchronized (told) {
            told.print(line);
            told.flush();
        }
    }

    private void run(String code) {
        SourceCodeAnalysis.CompletionInfo part;
        String shown = null;
        for (String rest = code; !rest.isBlank(); rest = part.remaining()) {
            part = shell.sourceCodeAnalysis().analyzeCompletion(rest);
            if (stopped) {
                failed("Interrupted", "", List.of());
                return;
            }
            String source = part.source() == null ? rest : part.source();
            shown = null;
            for (SnippetEvent e : shell.eval(source)) {
                if (!succeeded(e)) {
                    return;
                }
                if (e.causeSnippet() == null && isExpression(e.snippet()) && e.value() != null && !e.value().isEmpty()
                        && (part.completeness() == SourceCodeAnalysis.Completeness.COMPLETE_WITH_SEMI || !source.stripTrailing().endsWith(";"))) {
                    shown = e.value();
                }
            }
            if (stopped) {
                failed("Interrupted", "", List.of());
                return;
            }
            if (part.source() == null) {
                break;
            }
        }
        if (shown != null) {
            tell("value", shown);
        }
        tell("done", "ok");
    }

    private static boolean isExpression(Snippet s) {
        return s.kind() == Snippet.Kind.EXPRESSION || s.subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND;
    }

    /** Says whether a snippet did what it was to do, and tells why not. */
    private boolean succeeded(SnippetEvent e) {
        if (e.exception() != null && !stopped) {
            JShellException cause = e.exception();
            String name = cause instanceof EvalException ? ((EvalException) cause).getExceptionClassName() : "UnresolvedReference";
            String message = cause instanceof UnresolvedReferenceException
                    ? shell.unresolvedDependencies(((UnresolvedReferenceException) cause).getSnippet()).collect(Collectors.joining(", "))
                    : String.valueOf(cause.getMessage());
            List<String> trace = new ArrayList<>();
            trace.add(name + ": " + message);
            for (StackTraceElement at : cause.getStackTrace()) {
                trace.add("\tat " + at);
            }
            failed(name, message, trace);
            return false;
        }
        if (e.status() == Snippet.Status.REJECTED && e.causeSnippet() == null) {
            List<String> reasons = shell.diagnostics(e.snippet()).map(d -> d.getMessage(Locale.ENGLISH)).collect(Collectors.toList());
            List<String> trace = new ArrayList<>(e.snippet().source().lines().collect(Collectors.toList()));
            trace.addAll(reasons);
            failed("CompilationError", String.join("\n", reasons), trace);
            return false;
        }
        return true;
    }

    private void failed(String name, String value, List<String> trace) {
        tell("error", name, value, String.join("\n", trace));
        tell("done", "error");
    }

    /** What code prints. Not a plain PrintStream: that joins a line and its end. */
    private final class Printed extends PrintStream {
        Printed(String kind) {
            super(new OutputStream() {
                @Override
                public void write(int b) {
                    write(new byte[] {(byte) b}, 0, 1);
                }

                @Override
                public void write(byte[] b, int from, int count) {
                    if (count > 0) {
                        tell(kind, new String(b, from, count, StandardCharsets.UTF_8));
                    }
                }
            }, true, StandardCharsets.UTF_8);
        }
    }
}
