import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A webhook that answers both handshakes and keeps the notifications that it gets, in order for each path. */
final class Webhook {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final Map<String, BlockingQueue<Received>> received = new ConcurrentHashMap<>();
    private final HttpServer server;

    /** A notification. */
    record Received(Map<String, String> headers, byte[] body) {
        String text() {
            return new String(body, StandardCharsets.UTF_8);
        }
    }

    Webhook() throws IOException {
        server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.createContext("/", this::serve);
        server.start();
    }

    String url(String path) {
        return "http://127.0.0.1:" + server.getAddress().getPort() + path;
    }

    private void serve(HttpExchange exchange) throws IOException {
        byte[] body = exchange.getRequestBody().readAllBytes();
        Map<String, String> headers = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        exchange.getRequestHeaders().forEach((name, values) -> headers.put(name, values.get(0)));
        byte[] answer = {};
        if (exchange.getRequestMethod().equals("OPTIONS")) {
            exchange.getResponseHeaders().set("WebHook-Allowed-Origin", headers.get("WebHook-Request-Origin"));
            exchange.getResponseHeaders().set("WebHook-Allowed-Rate", "*");
        } else if ("SubscriptionValidation".equals(headers.get("aeg-event-type"))) {
            String code = JSON.readTree(body).get(0).get("data").get("validationCode").asText();
            answer = JSON.writeValueAsBytes(Map.of("validationResponse", code));
        } else {
            queue(exchange.getRequestURI().getPath()).add(new Received(headers, body));
        }
        exchange.sendResponseHeaders(200, answer.length == 0 ? -1 : answer.length);
        exchange.getResponseBody().write(answer);
        exchange.close();
    }

    private BlockingQueue<Received> queue(String path) {
        return received.computeIfAbsent(path, key -> new LinkedBlockingQueue<>());
    }

    /** Waits for a notification at this path. */
    Received take(String path) throws InterruptedException {
        Received next = queue(path).poll(60, TimeUnit.SECONDS);
        Scenarios.check(next != null, "no notification came to " + path);
        return next;
    }
}
