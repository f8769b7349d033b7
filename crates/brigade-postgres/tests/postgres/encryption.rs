//! Encrypted connections and passwords.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use brigade_postgres::test_server::TestServer;
use brigade_postgres::{PostgresOptions, PostgresStore};
use brigade_store::StoreError;
use tempfile::TempDir;

/// A server whose certificate is for an address, and files of certificates.
struct EncryptedServer {
    server: TestServer,
    dir: TempDir,
}

static ENCRYPTED: LazyLock<EncryptedServer> = LazyLock::new(|| {
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("own.pem"), own.cert.pem()).unwrap();
    fs::write(dir.path().join("other.pem"), other.cert.pem()).unwrap();
    fs::write(dir.path().join("empty.pem"), "").unwrap();
    let server = TestServer::start_on_loopback(&own.cert.pem(), &own.signing_key.serialize_pem());
    server.execute(
        "CREATE ROLE ada LOGIN PASSWORD 'se@cret'; GRANT CREATE ON DATABASE postgres TO ada",
    );
    EncryptedServer { server, dir }
});

/// Opens a store over the loopback interface.
async fn open(login: &str, host: &str, settings: &str) -> Result<PostgresStore, StoreError> {
    let url = format!("{}?{settings}", ENCRYPTED.server.loopback_url(login, host));
    PostgresStore::open(&PostgresOptions::from_url(&url).unwrap()).await
}

fn root(name: &str) -> String {
    let path: &Path = ENCRYPTED.dir.path();
    format!("sslrootcert={}", path.join(name).to_string_lossy().replace('/', "%2F"))
}

const LOGIN: &str = "ada:se%40cret";

#[tokio::test]
async fn a_certificate_is_checked_as_the_mode_says() {
    for settings in ["sslmode=disable", "sslmode=prefer", "sslmode=require"] {
        open(LOGIN, "localhost", settings).await.unwrap();
    }
    // The certificate is trusted, but is for another name.
    let own = root("own.pem");
    open(LOGIN, "localhost", &format!("sslmode=require&{own}")).await.unwrap();
    open(LOGIN, "localhost", &format!("sslmode=verify-ca&{own}")).await.unwrap();
    open(LOGIN, "127.0.0.1", &format!("sslmode=verify-full&{own}")).await.unwrap();
    let error = open(LOGIN, "localhost", &format!("sslmode=verify-full&{own}")).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    // The certificate is not trusted.
    for mode in ["require", "verify-ca", "verify-full"] {
        let settings = format!("sslmode={mode}&{}", root("other.pem"));
        let error = open(LOGIN, "127.0.0.1", &settings).await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{mode}: {error}");
    }
}

#[tokio::test]
async fn the_connection_is_encrypted() {
    let store = open(LOGIN, "127.0.0.1", "sslmode=require&application_name=encrypted").await;
    let shown = "SELECT bool_and(s.ssl) FROM pg_stat_activity AS a JOIN pg_stat_ssl AS s USING (pid) \
                 WHERE a.application_name = 'encrypted'";
    assert_eq!(ENCRYPTED.server.execute(shown), "t");
    drop(store.unwrap());
}

#[tokio::test]
async fn a_file_without_certificates_is_named() {
    for (name, reason) in [("empty.pem", "there are none"), ("missing.pem", "missing.pem")] {
        let settings = format!("sslmode=verify-full&{}", root(name));
        let error = open(LOGIN, "127.0.0.1", &settings).await.unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(reason), "{error}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    for login in ["ada:wr0ng", "ada"] {
        let error = open(login, "127.0.0.1", "sslmode=require").await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("password") && !text.contains("wr0ng"), "{text}");
    }
}
