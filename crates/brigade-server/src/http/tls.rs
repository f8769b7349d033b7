//! TLS by certificate files.

use std::path::Path;
use std::sync::Arc;

use brigade_model::refusal::Refusal;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::listeners::TlsFiles;

/// Reads a certificate chain and its key. An error names the file and never its content.
pub(crate) fn load_tls(files: &TlsFiles) -> Result<TlsAcceptor, Refusal> {
    let wrong =
        |path: &Path, problem: &str| Refusal::invalid(format!("{}: {problem}", path.display()));
    let unreadable = "cannot be read as PEM; write the file with a certificate or a key in it";
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|_| wrong(&files.certificate, unreadable))?;
    if chain.is_empty() {
        return Err(wrong(&files.certificate, "has no certificate"));
    }
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|_| wrong(&files.key, unreadable))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| wrong(&files.certificate, &error.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
