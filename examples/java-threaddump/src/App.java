import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Executors;

/** A web app that greets, and that tells how large its heap may become. */
public class App {
    public static void main(String[] args) throws IOException {
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "8080"));
        HttpServer server = HttpServer.create(new InetSocketAddress(port), 0);
        server.createContext("/", exchange -> answer(exchange, "hello from Java\n"));
        server.createContext("/heap", exchange -> answer(exchange, (Runtime.getRuntime().maxMemory() >> 20) + "\n"));
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
        System.out.println("listening on port " + port);
    }

    private static void answer(HttpExchange exchange, String text) throws IOException {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
        System.out.println(exchange.getRequestMethod() + " " + exchange.getRequestURI());
    }
}
