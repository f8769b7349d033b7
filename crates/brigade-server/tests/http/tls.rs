//! TLS by certificate files.

use brigade_server::http::{ListenOptions, TlsFiles};
use reqwest::{Certificate, Client};

use crate::support::TestServer;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_certificate_speaks_tls_alone() {
    let dir = tempfile::tempdir().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let files =
        TlsFiles { certificate: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let mut options = ListenOptions::serve("127.0.0.1:0".parse().unwrap());
    options.tls = Some(files.clone());
    let server = TestServer::start_with(options, |builder| builder).await;
    let root = Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
    let client = Client::builder().no_proxy().tls_certs_only([root]).build().unwrap();
    let url = format!("https://localhost:{}/v1/whoami", server.address.port());
    let answer = client.get(&url).bearer_auth(&server.operator).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let origin = format!("https://localhost:{}", server.address.port());
    let request = client.get(&url).bearer_auth(&server.operator);
    assert_eq!(request.header("origin", origin).send().await.unwrap().status(), 200);
    let plain = Client::builder().no_proxy().build().unwrap();
    let url = format!("http://localhost:{}/healthz", server.address.port());
    assert!(plain.get(url).send().await.is_err());

    // A wrong file is named, and its content is not shown.
    std::fs::write(&files.key, "SECRET").unwrap();
    let mut options = ListenOptions::serve("127.0.0.1:0".parse().unwrap());
    options.tls = Some(files);
    let refusal = TestServer::try_start(options).await.unwrap_err();
    assert!(refusal.contains("key.pem") && !refusal.contains("SECRET"), "{refusal}");
}
