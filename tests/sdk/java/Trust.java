import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;

/** Java reads the authorities that it trusts from a key store of its own, and not from `SSL_CERT_FILE`. */
final class Trust {
    private static final String PASSWORD = "password";

    private Trust() {}

    static void authorityOfTheEnvironment() throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (InputStream pem = Files.newInputStream(Path.of(System.getenv("SSL_CERT_FILE")))) {
            store.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        Path file = Path.of("trust.p12").toAbsolutePath();
        try (OutputStream out = Files.newOutputStream(file)) {
            store.store(out, PASSWORD.toCharArray());
        }
        System.setProperty("javax.net.ssl.trustStore", file.toString());
        System.setProperty("javax.net.ssl.trustStorePassword", PASSWORD);
    }
}
