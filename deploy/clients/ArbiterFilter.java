// Reports the requests of a servlet app to the sidecar: answers of 500 and above and exceptions are errors.
// Copy it into the app and register it as the first filter (Spring Boot: a @Component with @Order(HIGHEST_PRECEDENCE)).
// Other code reports with ArbiterFilter.report(exception). It needs Java 17 and jakarta.servlet 5 or newer; for an
// older container write javax.servlet in the imports.
//
// A thread posts to ARBITER_SOCKET, else to ARBITER_LOCAL_LISTEN (127.0.0.1:9180; off: nowhere). The app never waits.
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.logging.Logger;

public final class ArbiterFilter implements Filter {
    private static final int MOST = 1_000_000; // in one report
    private static final int KINDS = 40; // with their messages they fit into one request
    private static final long KEEP_MS = 30_000; // older errors would count as new ones
    private static final String[][] DRIVERS = {
        {"redis", "redis.clients.", "io.lettuce.", "org.redisson.", "org.springframework.data.redis."},
        {"mysql", "com.mysql.", "org.mariadb."},
        {"postgres", "org.postgresql.", "io.r2dbc.postgresql."},
        {"mongodb", "com.mongodb."},
        {"rabbitmq", "com.rabbitmq.", "org.springframework.amqp."},
        {"kafka", "org.apache.kafka.", "org.springframework.kafka."},
        {"memcached", "net.spy.memcached.", "net.rubyeye.xmemcached."},
        {"elasticsearch", "org.elasticsearch.", "co.elastic.", "org.opensearch."},
    };
    private static final Map<String, Sum> ERRORS = new LinkedHashMap<>();
    private static final Set<String> SAID = new HashSet<>();
    private static int ok, failed;
    private static Thread poster;

    /** How often, and the newest message or null. */
    private record Sum(int count, String message) {}

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        try {
            chain.doFilter(request, response);
        } catch (IOException | ServletException | RuntimeException | Error error) {
            finish(500, error);
            throw error;
        }
        if (request.isAsyncStarted()) {
            request.getAsyncContext().addListener(new Ended(request, response));
        } else {
            finish(((HttpServletResponse) response).getStatus(), answered(request));
        }
    }

    /** Reports one error, of the kind of its driver or else of its class. Never waits, never fails. */
    public static void report(Throwable error) {
        add(kind(error), message(error), 0, 0);
    }

    /** Reports one error of this kind. */
    public static void report(String kind) {
        add(kind, null, 0, 0);
    }

    /** The driver whose package has the exception or one of its causes, else the name of the innermost class. */
    static String kind(Throwable error) {
        Throwable cause = error;
        for (int left = 16; left > 0; left--, cause = cause.getCause()) {
            for (Class<?> type = cause.getClass(); type != null; type = type.getSuperclass()) {
                for (String[] driver : DRIVERS) {
                    for (int at = 1; at < driver.length; at++) {
                        if (type.getName().startsWith(driver[at])) return driver[0];
                    }
                }
            }
            if (cause.getCause() == null) break;
        }
        return cause.getClass().getSimpleName();
    }

    /** The exception that the framework has turned into an answer, if it says so. */
    private static Throwable answered(ServletRequest request) {
        String[] names = {
            "jakarta.servlet.error.exception",
            "org.springframework.boot.web.servlet.error.DefaultErrorAttributes.ERROR", // Spring Boot 3
            "org.springframework.boot.webmvc.error.DefaultErrorAttributes.ERROR", // Spring Boot 4
        };
        for (String name : names) {
            if (request.getAttribute(name) instanceof Throwable error) return error;
        }
        return null;
    }

    private static void finish(int status, Throwable error) {
        if (status < 500) {
            add(null, null, 1, 0);
        } else {
            String kind = error == null ? "ResponseStatusException" : kind(error);
            boolean isAnswer = kind.equals("ResponseStatusException"); // Spring's way to send a status
            add(isAnswer ? "http_" + status : kind, message(error), 0, 1);
        }
    }

    /** Class and text, for JSON. */
    private static String message(Throwable error) {
        try {
            String text = error == null ? "" : error.toString();
            text = text.substring(0, Math.min(200, text.length()));
            return text.isEmpty() ? null : text.replaceAll("\\p{Cntrl}", " ").replaceAll("[\"\\\\]", "\\\\$0");
        } catch (RuntimeException noText) {
            return null;
        }
    }

    private static synchronized void add(String kind, String message, int succeeded, int unsuccessful) {
        if (kind != null) {
            String word = kind.replaceAll("[^A-Za-z0-9_.:/-]", "_");
            word = word.isEmpty() ? "unknown" : word.substring(0, Math.min(64, word.length()));
            String known = ERRORS.containsKey(word) || ERRORS.size() < KINDS ? word : "other";
            ERRORS.merge(known, new Sum(1, message), (old, one) ->
                    new Sum(Math.min(MOST, old.count + 1), one.message == null ? old.message : one.message));
        }
        ok = Math.min(MOST, ok + succeeded);
        failed = Math.min(MOST, failed + unsuccessful);
        if (poster == null) {
            poster = new Thread(ArbiterFilter::post, "health-arbiter");
            poster.setDaemon(true);
            poster.start();
        }
    }

    // -- the thread that posts

    private static void post() {
        long since = System.nanoTime();
        String errors = null;
        String results = null;
        try {
            for (int pause = 100; ; ) {
                Thread.sleep(pause);
                if (errors == null && results == null) {
                    synchronized (ArbiterFilter.class) {
                        errors = errorsAsJson();
                        results = ok + failed == 0 ? null : "{\"ok\":" + ok + ",\"failed\":" + failed + "}";
                        ERRORS.clear();
                        ok = failed = 0;
                        since = System.nanoTime();
                    }
                }
                boolean isOld = System.nanoTime() - since > KEEP_MS * 1_000_000;
                errors = errors == null || isOld || isPosted("/errors", errors) ? null : errors;
                results = results == null || isOld || errors != null || isPosted("/results", results) ? null : results;
                pause = errors == null ? 100 : 1000;
            }
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private static String errorsAsJson() {
        StringBuilder text = new StringBuilder();
        ERRORS.forEach((kind, sum) -> text.append(text.length() == 0 ? "[" : ",")
                .append("{\"count\":").append(sum.count).append(",\"kind\":\"").append(kind)
                .append(sum.message == null ? "" : "\",\"message\":\"" + sum.message).append("\"}"));
        return text.length() == 0 ? null : text.append("]").toString();
    }

    /** Whether the sidecar took it, or refused it for good. */
    private static boolean isPosted(String path, String body) {
        String socket = System.getenv().getOrDefault("ARBITER_SOCKET", "");
        String listen = System.getenv().getOrDefault("ARBITER_LOCAL_LISTEN", "127.0.0.1:9180");
        int length = body.getBytes(StandardCharsets.UTF_8).length;
        String head = "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "
                + length + "\r\n\r\n";
        byte[] request = (head + body).getBytes(StandardCharsets.UTF_8);
        if (socket.isEmpty() && listen.equals("off")) return true;
        try {
            if (!socket.isEmpty()) return isTaken(socket, overUnixSocket(socket, request));
        } catch (IOException | RuntimeException error) {
            // nobody answers there
        }
        try {
            if (!listen.equals("off")) return isTaken(listen, overTcp(listen, request));
        } catch (IOException | RuntimeException error) {
            // nor there
        }
        say("no sidecar answers at " + (socket + " " + listen).trim() + ": reports wait for at most 30 s");
        return false;
    }

    private static boolean isTaken(String place, String statusLine) {
        String status = statusLine.replaceFirst("^HTTP/1.. ", "").trim(); // empty: sent twice, it could count twice
        if (!status.isEmpty() && !status.startsWith("2") && !status.equals("503")) {
            say(place + " answers " + status + ": it is not the local listener of a sidecar");
        }
        return !status.equals("503");
    }

    /** Logs each text once. */
    private static void say(String text) {
        if (SAID.add(text)) Logger.getLogger("health-arbiter").warning("health-arbiter: " + text);
    }

    private static String overTcp(String listen, byte[] request) throws IOException {
        int colon = listen.lastIndexOf(':');
        String host = listen.substring(0, colon).replace("[", "").replace("]", "");
        try (Socket connection = new Socket()) {
            connection.connect(new InetSocketAddress(host, Integer.parseInt(listen.substring(colon + 1))), 1000);
            connection.setSoTimeout(1000);
            return exchange(connection.getInputStream(), connection.getOutputStream(), request);
        }
    }

    private static String overUnixSocket(String path, byte[] request) throws IOException {
        try (SocketChannel connection = SocketChannel.open(UnixDomainSocketAddress.of(path))) {
            return exchange(Channels.newInputStream(connection), Channels.newOutputStream(connection), request);
        }
    }

    private static String exchange(InputStream in, OutputStream out, byte[] request) throws IOException {
        out.write(request);
        out.flush();
        byte[] start = in.readNBytes(12); // HTTP/1.1 202
        in.skip(4096);
        return new String(start, StandardCharsets.US_ASCII);
    }

    /** Reports a request that is answered after the filter. */
    private static final class Ended implements AsyncListener {
        private final ServletRequest request;
        private final ServletResponse response;
        private Throwable error;

        Ended(ServletRequest request, ServletResponse response) {
            this.request = request;
            this.response = response;
        }

        @Override
        public void onComplete(AsyncEvent event) {
            int status = ((HttpServletResponse) response).getStatus();
            finish(error == null ? status : Math.max(500, status), error == null ? answered(request) : error);
        }

        @Override
        public void onTimeout(AsyncEvent event) {}

        @Override
        public void onError(AsyncEvent event) {
            error = event.getThrowable();
        }

        @Override
        public void onStartAsync(AsyncEvent event) {
            event.getAsyncContext().addListener(this);
        }
    }
}
