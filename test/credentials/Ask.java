import java.net.URL;

/** Prints what a URL answers, by Java's own means and whom it trusts by itself. */
public class Ask {
    public static void main(String[] arguments) throws Exception {
        System.out.write(new URL(arguments[0]).openStream().readAllBytes());
        System.out.flush();
    }
}
