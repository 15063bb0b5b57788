// Asks Tidegate whether each of four logins may go on. Without an answer in time they go on: it fails open.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

public class Check {
    record Decision(int status, Map<String, String> headers) {}

    static final String URL = setting("TIDEGATE_URL", "http://127.0.0.1:8080");
    static final String TOKEN = setting("TIDEGATE_TOKEN", "");
    static final Duration TIMEOUT = Duration.ofMillis((long) (1000 * Double.parseDouble(setting("TIDEGATE_TIMEOUT", "1"))));
    static final List<String> PASSED_ON =
        List.of("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "ratelimit-policy", "retry-after");

    static {
        // Shorter than the server keeps an idle connection; must be set before the client is made.
        System.setProperty("jdk.httpclient.keepalive.timeout", "5");
    }

    // One client for the whole program: it keeps connections open between calls.
    static final HttpClient CLIENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(TIMEOUT).build();

    static String setting(String name, String standard) {
        return Optional.ofNullable(System.getenv(name)).orElse(standard);
    }

    /** What the client gets: 200 to go on, or 429 or 503; and the headers of its response. */
    static Decision check(String attributes) throws InterruptedException {
        try {
            var body = HttpRequest.BodyPublishers.ofString("{\"attributes\": " + attributes + "}");
            var request = HttpRequest.newBuilder(URI.create(URL + "/v1/check"))
                .timeout(TIMEOUT)
                .header("Content-Type", "application/json")
                .header("Authorization", "Bearer " + TOKEN)
                .POST(body)
                .build();
            var answer = CLIENT.send(request, BodyHandlers.ofString());
            if (!List.of(200, 429, 503).contains(answer.statusCode())) {
                // A mistake in this program or its token, and no decision.
                throw new java.io.IOException(answer.statusCode() + " " + answer.body());
            }
            var headers = new TreeMap<String, String>();
            for (var name : PASSED_ON) {
                answer.headers().firstValue(name).ifPresent(value -> headers.put(name, value));
            }
            return new Decision(answer.statusCode(), headers);
        } catch (java.io.IOException error) {
            System.err.println("no decision: " + error);
            return new Decision(200, Map.of());
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        for (int count = 0; count < 4; count++) {
            // Use your JSON library for values that come from a client.
            var decision = check("{\"path\": \"/login\", \"method\": \"POST\", \"ip\": \"203.0.113.5\"}");
            var name = decision.status() == 200 ? "x-ratelimit-remaining" : "retry-after";
            var value = decision.headers().get(name);
            System.out.println(decision.status() + (value == null ? "" : " " + name + ": " + value));
        }
    }
}
