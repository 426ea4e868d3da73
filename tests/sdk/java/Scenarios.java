import com.azure.core.credential.AccessToken;
import com.azure.core.credential.AzureKeyCredential;
import com.azure.core.credential.AzureSasCredential;
import com.azure.core.exception.HttpResponseException;
import com.azure.core.models.CloudEvent;
import com.azure.core.models.CloudEventDataFormat;
import com.azure.core.util.BinaryData;
import com.azure.messaging.eventgrid.EventGridEvent;
import com.azure.messaging.eventgrid.EventGridPublisherClient;
import com.azure.messaging.eventgrid.EventGridPublisherClientBuilder;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.cloudevents.core.builder.CloudEventBuilder;
import io.cloudevents.http.HttpMessageFactory;
import io.cloudevents.jackson.JsonFormat;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import reactor.core.publisher.Mono;

/** The scenarios of the Java clients: ends with status 0, or with an exception that says what was wrong. */
public final class Scenarios {
    static final String URL = System.getenv("GRIDHOOK_URL");
    static final String TOKEN = System.getenv("GRIDHOOK_ADMIN_TOKEN");
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, Object> DATA = Map.of("total", 12.5, "name", "höhe ✓");
    static HttpClient http;
    static Webhook webhook;

    public static void main(String[] arguments) {
        int status = 1;
        try {
            Trust.authorityOfTheEnvironment();
            http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
            webhook = new Webhook();
            eventGrid();
            cloudEvents();
            custom();
            errors();
            cloudEventsSdk();
            status = 0;
        } catch (Throwable error) {
            error.printStackTrace();
        }
        // The client keeps threads that are no daemons.
        System.exit(status);
    }

    /** A topic: where it takes events, and a key of it. */
    record Topic(String endpoint, String key) {}

    static JsonNode arm(String method, String path, Object body) throws Exception {
        String group = "/subscriptions/s-java/resourceGroups/java/providers/Microsoft.EventGrid";
        HttpRequest request = HttpRequest.newBuilder(URI.create(URL + group + path))
            .header("authorization", "Bearer " + TOKEN)
            .header("content-type", "application/json")
            .method(method, HttpRequest.BodyPublishers.ofString(body == null ? "" : JSON.writeValueAsString(body)))
            .build();
        HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
        check(answer.statusCode() / 100 == 2, method + " " + path + ": " + answer.body());
        return JSON.readTree(answer.body());
    }

    static Topic topic(String name, Object properties) throws Exception {
        JsonNode made = arm("PUT", "/topics/" + name, Map.of("location", "local", "properties", properties));
        String key = arm("POST", "/topics/" + name + "/listKeys", null).get("key1").asText();
        return new Topic(made.get("properties").get("endpoint").asText(), key);
    }

    static void subscribe(String topic, String path, String schema, int batch) throws Exception {
        Object hook = Map.of("endpointUrl", webhook.url(path), "maxEventsPerBatch", batch);
        Object destination = Map.of("endpointType", "WebHook", "properties", hook);
        Object properties = Map.of("destination", destination, "eventDeliverySchema", schema);
        arm("PUT", "/topics/" + topic + "/eventSubscriptions/all", Map.of("properties", properties));
    }

    static EventGridPublisherClientBuilder builder(Topic topic) {
        return new EventGridPublisherClientBuilder().endpoint(topic.endpoint());
    }

    /** A builder for each kind of credential. */
    static Map<String, EventGridPublisherClientBuilder> builders(Topic topic) {
        String endpoint = topic.endpoint(), key = topic.key();
        OffsetDateTime end = OffsetDateTime.now().plusHours(1);
        String sas = EventGridPublisherClient.generateSas(endpoint, new AzureKeyCredential(key), end);
        AccessToken token = new AccessToken(TOKEN, end);
        return Map.of(
            "key", new EventGridPublisherClientBuilder().endpoint(endpoint).credential(new AzureKeyCredential(key)),
            "sas", builder(topic).credential(new AzureSasCredential(sas)),
            "bearer", builder(topic).credential(context -> Mono.just(token)));
    }

    static void eventGrid() throws Exception {
        Topic topic = topic("java-eventgrid", Map.of("inputSchema", "EventGridSchema"));
        subscribe("java-eventgrid", "/eg", "EventGridSchema", 1);
        for (var entry : builders(topic).entrySet()) {
            EventGridEvent sent = new EventGridEvent("/s", "Order.Placed", BinaryData.fromObject(DATA), "2.0");
            entry.getValue().buildEventGridEventPublisherClient().sendEvent(sent);
            EventGridEvent got = EventGridEvent.fromString(webhook.take("/eg").text()).get(0);
            equal(entry.getKey(), got.getId(), sent.getId());
            equal("type", got.getEventType() + got.getSubject() + got.getDataVersion(), "Order.Placed/s2.0");
            equal("time", got.getEventTime().toInstant(), sent.getEventTime().toInstant());
            equal("data", JSON.readValue(got.getData().toString(), Map.class), DATA);
            check(got.getTopic().endsWith("/topics/java-eventgrid"), got.getTopic());
        }
        EventGridPublisherClient<EventGridEvent> client = builders(topic).get("key").buildEventGridEventPublisherClient();
        client.sendEvents(List.of(
            new EventGridEvent("/b1", "Order.Placed", BinaryData.fromObject(1), "1"),
            new EventGridEvent("/b2", "Order.Placed", BinaryData.fromObject(2), "1")));
        Map<String, Integer> batch = new TreeMap<>();
        for (int number = 0; number < 2; number++) {
            EventGridEvent got = EventGridEvent.fromString(webhook.take("/eg").text()).get(0);
            batch.put(got.getSubject(), Integer.parseInt(got.getData().toString()));
        }
        equal("batch", batch, Map.of("/b1", 1, "/b2", 2));
    }

    static void cloudEvents() throws Exception {
        Topic topic = topic("java-cloudevents", Map.of("inputSchema", "CloudEventSchemaV1_0"));
        subscribe("java-cloudevents", "/ce", "CloudEventSchemaV1_0", 1);
        for (var entry : builders(topic).entrySet()) {
            CloudEvent sent = cloudEvent().setSubject("/s").addExtensionAttribute("tenant", "a");
            entry.getValue().buildCloudEventPublisherClient().sendEvent(sent);
            CloudEvent got = CloudEvent.fromString(webhook.take("/ce").text()).get(0);
            equal(entry.getKey(), got.getId(), sent.getId());
            equal("type", got.getType() + got.getSource() + got.getSubject(), "Order.Placed/orders/s");
            equal("extensions", got.getExtensionAttributes(), Map.of("tenant", "a"));
            equal("data", JSON.readValue(got.getData().toString(), Map.class), DATA);
        }
        EventGridPublisherClient<CloudEvent> client = builders(topic).get("key").buildCloudEventPublisherClient();
        byte[] bytes = {0, -1, 7};
        CloudEvent binary = new CloudEvent("/orders", "Bytes", BinaryData.fromBytes(bytes), CloudEventDataFormat.BYTES, "x/y");
        client.sendEvent(binary);
        CloudEvent got = CloudEvent.fromString(webhook.take("/ce").text()).get(0);
        check(java.util.Arrays.equals(got.getData().toBytes(), bytes), "bytes");

        Topic batched = topic("java-batches", Map.of("inputSchema", "CloudEventSchemaV1_0"));
        subscribe("java-batches", "/batch", "CloudEventSchemaV1_0", 10);
        List<CloudEvent> three = List.of(cloudEvent().setId("1"), cloudEvent().setId("2"), cloudEvent().setId("3"));
        builders(batched).get("key").buildCloudEventPublisherClient().sendEvents(three);
        Map<String, String> found = new TreeMap<>();
        while (found.size() < 3) {
            for (CloudEvent event : CloudEvent.fromString(webhook.take("/batch").text())) {
                found.put(event.getId(), event.getType());
            }
        }
        equal("batch", found, Map.of("1", "Order.Placed", "2", "Order.Placed", "3", "Order.Placed"));
    }

    static CloudEvent cloudEvent() {
        return new CloudEvent("/orders", "Order.Placed", BinaryData.fromObject(DATA), CloudEventDataFormat.JSON, null);
    }

    static void custom() throws Exception {
        Object properties = Map.of(
            "eventType", Map.of("sourceField", "kind"),
            "subject", Map.of("defaultValue", "orders"),
            "dataVersion", Map.of("defaultValue", ""));
        Object mapping = Map.of("inputSchemaMappingType", "Json", "properties", properties);
        Topic topic = topic("java-custom", Map.of("inputSchema", "CustomEventSchema", "inputSchemaMapping", mapping));
        subscribe("java-custom", "/custom", "CustomInputSchema", 1);
        Map<String, Object> sent = Map.of("kind", "Order.Placed", "total", 12.5);
        builders(topic).get("key").buildCustomEventPublisherClient().sendEvent(BinaryData.fromObject(sent));
        equal("custom", JSON.readValue(webhook.take("/custom").text(), List.class), List.of(sent));
    }

    static void errors() throws Exception {
        Topic topic = topic("java-errors", Map.of("inputSchema", "EventGridSchema"));
        EventGridEvent event = new EventGridEvent("/s", "Order.Placed", BinaryData.fromObject(1), "1");
        EventGridPublisherClient<EventGridEvent> good = builders(topic).get("key").buildEventGridEventPublisherClient();
        Topic wrongKey = new Topic(topic.endpoint(), "d3Jvbmc=");
        fails(401, "Unauthorized",
            () -> builders(wrongKey).get("key").buildEventGridEventPublisherClient().sendEvent(event));
        Topic nowhere = new Topic(topic.endpoint().replace("/java-errors/", "/java-none/"), topic.key());
        fails(404, "NotFound",
            () -> builders(nowhere).get("key").buildEventGridEventPublisherClient().sendEvent(event));
        EventGridEvent large = new EventGridEvent("/s", "T", BinaryData.fromObject("x".repeat(1_100_000)), "1");
        fails(413, "RequestEntityTooLarge", () -> good.sendEvent(large));
        fails(400, "BadRequest",
            () -> builders(topic).get("key").buildCloudEventPublisherClient().sendEvent(cloudEvent()));
    }

    /** The call fails with the SDK's exception, which has this status and the server's code. */
    static void fails(int status, String code, Runnable call) throws Exception {
        try {
            call.run();
        } catch (HttpResponseException error) {
            equal("status", error.getResponse().getStatusCode(), status);
            check(error.getMessage().contains("\"" + code + "\""), error.getMessage());
            return;
        }
        throw new AssertionError(code + " was to be thrown");
    }

    /** The SDK of CloudEvents alone: writes in both modes, and reads what is delivered. */
    static void cloudEventsSdk() throws Exception {
        Topic topic = topic("java-ce-sdk", Map.of("inputSchema", "CloudEventSchemaV1_0"));
        subscribe("java-ce-sdk", "/sdk", "CloudEventSchemaV1_0", 1);
        for (String mode : List.of("binary", "structured")) {
            io.cloudevents.CloudEvent sent = CloudEventBuilder.v1()
                .withId(mode).withType("Order.Placed").withSource(URI.create("/orders")).withSubject("/s")
                .withTime(OffsetDateTime.now()).withExtension("tenant", "a")
                .withDataContentType("application/json").withData(JSON.writeValueAsBytes(DATA)).build();
            equal(mode, send(topic, topic.key(), mode, sent).statusCode(), 200);
            Webhook.Received received = webhook.take("/sdk");
            io.cloudevents.CloudEvent got =
                HttpMessageFactory.createReader(received.headers(), received.body()).toEvent();
            equal("id", got.getId(), mode);
            equal("type", got.getType() + got.getSource() + got.getSubject(), "Order.Placed/orders/s");
            equal("time", got.getTime().toInstant(), sent.getTime().toInstant());
            equal("extension", got.getExtension("tenant"), "a");
            equal("data", JSON.readValue(got.getData().toBytes(), Map.class), DATA);
        }
        io.cloudevents.CloudEvent refused = CloudEventBuilder.v1()
            .withId("refused").withType("T").withSource(URI.create("/orders")).build();
        HttpResponse<String> answer = send(topic, "d3Jvbmc=", "binary", refused);
        equal("wrong key", answer.statusCode(), 401);
        equal("code", JSON.readTree(answer.body()).get("error").get("code").asText(), "Unauthorized");
    }

    static HttpResponse<String> send(Topic topic, String key, String mode, io.cloudevents.CloudEvent event)
        throws Exception {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(topic.endpoint()))
            .timeout(Duration.ofSeconds(30)).header("aeg-sas-key", key);
        var writer = HttpMessageFactory.createWriter(request::header, body -> request.POST(
            body == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofByteArray(body)));
        if (mode.equals("binary")) {
            writer.writeBinary(event);
        } else {
            writer.writeStructured(event, JsonFormat.CONTENT_TYPE);
        }
        return http.send(request.build(), HttpResponse.BodyHandlers.ofString(StandardCharsets.UTF_8));
    }

    static void equal(String what, Object got, Object wanted) {
        check(wanted.equals(got), what + ": " + got + " instead of " + wanted);
    }

    static void check(boolean so, String otherwise) {
        if (!so) {
            throw new AssertionError(otherwise);
        }
    }
}
