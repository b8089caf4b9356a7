//! What a client shows and whom it trusts: a bearer token, a certificate authority.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use rustls::{ClientConfig, RootCertStore};

use crate::error::{CallError, Retry};
use crate::pem;

/// How a client proves who it is and knows the nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Security {
    /// Bearer token of the namespace.
    pub token: Option<String>,
    /// Authority that signed the nodes' certificates, PEM. With one, endpoints without a scheme are `https`.
    pub ca: Option<PathBuf>,
}

fn refused(what: impl ToString) -> CallError {
    CallError::local("config", what, Retry::No)
}

impl Security {
    /// The TLS side: no authority is trusted but the given one.
    pub(crate) fn tls(&self) -> Result<Arc<ClientConfig>, CallError> {
        let roots = self.ca.as_deref().map(pem::authorities).transpose();
        let roots = roots.map_err(refused)?.unwrap_or_else(RootCertStore::empty);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(refused)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }

    /// The `Authorization` header.
    pub(crate) fn header(&self) -> Result<Option<HeaderValue>, CallError> {
        let Some(token) = &self.token else {
            return Ok(None);
        };
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| refused("the bearer token has characters that no header may have"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// An HTTP client that shows the token, follows no redirect and repeats nothing.
    pub fn http(&self, timeout: Option<Duration>) -> Result<reqwest::Client, CallError> {
        let mut headers = HeaderMap::new();
        if let Some(value) = self.header()? {
            headers.insert(AUTHORIZATION, value);
        }
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(ClientConfig::clone(&*self.tls()?))
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .tcp_nodelay(true)
            .no_proxy();
        if let Some(timeout) = timeout {
            builder = builder.timeout(timeout);
        }
        builder.build().map_err(refused)
    }

    /// An endpoint as a base URL.
    pub fn base_url(&self, endpoint: &str) -> String {
        let endpoint = endpoint.trim_end_matches('/');
        match (endpoint.contains("://"), &self.ca) {
            (true, _) => endpoint.to_owned(),
            (false, Some(_)) => format!("https://{endpoint}"),
            (false, None) => format!("http://{endpoint}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_https_where_an_authority_is_named() {
        let mut security = Security::default();
        assert_eq!(security.base_url("127.0.0.1:7/"), "http://127.0.0.1:7");
        security.ca = Some(PathBuf::from("ca.pem"));
        assert_eq!(security.base_url("a:7"), "https://a:7");
        assert_eq!(security.base_url("http://a:7"), "http://a:7");
        assert!(security.tls().is_err(), "there is no such file");
    }
}
