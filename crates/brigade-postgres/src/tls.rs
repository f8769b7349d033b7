//! Encrypted connections.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use brigade_store::BoxFuture;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use crate::error::{Result, unavailable};

/// The check of the server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CertificateCheck {
    /// None (`sslmode=prefer`, and `require` without `sslrootcert`).
    None,
    /// It is signed by a trusted authority (`verify-ca`).
    Authority,
    /// It is signed by a trusted authority and names the host (`verify-full`).
    Host,
}

/// The settings of encrypted connections.
#[derive(Clone, Debug)]
pub(crate) struct TlsOptions {
    pub(crate) check: CertificateCheck,
    /// The file of trusted authorities; those of the system if there is none.
    pub(crate) root_certificates: Option<PathBuf>,
}

/// Makes encrypted connections for the driver.
#[derive(Clone)]
pub(crate) struct TlsConnector(tokio_rustls::TlsConnector);

impl std::fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsConnector")
    }
}

impl TlsConnector {
    pub(crate) fn new(options: &TlsOptions) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| unavailable(format!("TLS: {error}")))?;
        let config = match options.check {
            CertificateCheck::None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(SignatureVerifier {
                    provider,
                    authorities: None,
                }))
                .with_no_client_auth(),
            CertificateCheck::Authority => {
                let roots = Arc::new(root_certificates(options)?);
                let authorities =
                    WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
                        .build()
                        .map_err(|error| unavailable(format!("TLS: {error}")))?;
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(SignatureVerifier {
                        provider,
                        authorities: Some(authorities),
                    }))
                    .with_no_client_auth()
            }
            CertificateCheck::Host => {
                builder.with_root_certificates(root_certificates(options)?).with_no_client_auth()
            }
        };
        Ok(Self(Arc::new(config).into()))
    }
}

fn root_certificates(options: &TlsOptions) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(path) = &options.root_certificates else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        return match roots.is_empty() {
            true => Err(unavailable("this system has no trusted certificates; set sslrootcert")),
            false => Ok(roots),
        };
    };
    let problem = |error: &dyn std::fmt::Display| {
        unavailable(format!("the certificates in {}: {error}", path.display()))
    };
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| problem(&e))? {
        roots.add(certificate.map_err(|e| problem(&e))?).map_err(|e| problem(&e))?;
    }
    match roots.is_empty() {
        true => Err(problem(&"there are none")),
        false => Ok(roots),
    }
}

/// Checks the signature of a handshake, and the authority of the certificate if there is one to
/// check, but not the name of the host.
#[derive(Debug)]
struct SignatureVerifier {
    provider: Arc<CryptoProvider>,
    authorities: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for SignatureVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
        let Some(authorities) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified = authorities.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            Err(rustls::Error::InvalidCertificate(
                NotValidForName | NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl<S> MakeTlsConnect<S> for TlsConnector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = EncryptedStream<S>;
    type TlsConnect = HostConnector;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<HostConnector> {
        // A socket in the file system has no name, and needs no encryption.
        let host = ServerName::try_from(host.to_owned()).ok();
        Ok(HostConnector { connector: self.0.clone(), host })
    }
}

/// Makes encrypted connections to one host.
pub(crate) struct HostConnector {
    connector: tokio_rustls::TlsConnector,
    host: Option<ServerName<'static>>,
}

impl<S> TlsConnect<S> for HostConnector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = EncryptedStream<S>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<EncryptedStream<S>>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let host = self.host.ok_or_else(|| io::Error::other("the host has no valid name"))?;
            Ok(EncryptedStream(self.connector.connect(host, stream).await?))
        })
    }
}

/// A stream for the driver.
pub(crate) struct EncryptedStream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for EncryptedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EncryptedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EncryptedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
