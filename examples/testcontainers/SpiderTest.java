// tapeway in a container, from Java: org.testcontainers:junit-jupiter and any HTTP client.

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import org.junit.jupiter.api.Test;
import org.testcontainers.containers.BindMode;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.junit.jupiter.Container;
import org.testcontainers.junit.jupiter.Testcontainers;

@Testcontainers
class SpiderTest {
  @Container
  static final GenericContainer<?> TAPEWAY =
      new GenericContainer<>("tapeway")
          .withEnv("TAPEWAY_MODE", "replay")
          .withFileSystemBind("cassettes", "/cassettes", BindMode.READ_ONLY)
          .withExposedPorts(8080)
          .waitingFor(Wait.forLogMessage(".*\"event\":\"ready\".*", 1));

  @Test
  void namesASpider() throws Exception {
    String proxy = "http://" + TAPEWAY.getHost() + ":" + TAPEWAY.getMappedPort(8080);
    String body = "{\"model\":\"gpt-4o\",\"input\":\"Name a spider.\"}";
    HttpRequest request =
        HttpRequest.newBuilder(URI.create(proxy + "/@spider/openai/v1/responses"))
            .header("Content-Type", "application/json")
            .POST(BodyPublishers.ofString(body))
            .build();
    assertEquals(200, HttpClient.newHttpClient().send(request, BodyHandlers.ofString()).statusCode());
  }
}
