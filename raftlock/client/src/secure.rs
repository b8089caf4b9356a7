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
    ///
    /// # Errors
    /// `config`, where it is none of `host:port`, `http://host:port` and `https://host:port`.
    pub fn base_url(&self, endpoint: &str) -> Result<String, CallError> {
        let url = self.url_of(endpoint);
        match is_base(&url) {
            true => Ok(url),
            false => Err(refused(format!(
                "endpoint {endpoint:?} is none: write host:port, http://host:port or https://host:port"
            ))),
        }
    }

    /// The same of one that a node named, which may say what it likes.
    pub(crate) fn url_of(&self, endpoint: &str) -> String {
        let endpoint = endpoint.trim_end_matches('/');
        match (endpoint.contains("://"), &self.ca) {
            (true, _) => endpoint.to_owned(),
            (false, Some(_)) => format!("https://{endpoint}"),
            (false, None) => format!("http://{endpoint}"),
        }
    }
}

/// Whether it is scheme, host and port, and nothing else.
fn is_base(url: &str) -> bool {
    let whole = reqwest::Url::parse(url).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.path() == "/"
            && url.username().is_empty()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    let port = url.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    whole && matches!(port, Some(Ok(1..)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn endpoints_are_https_where_an_authority_is_named() {
        let mut security = Security::default();
        let url = |security: &Security, endpoint| security.base_url(endpoint).unwrap();
        assert_eq!(url(&security, "127.0.0.1:7/"), "http://127.0.0.1:7");
        assert_eq!(url(&security, "[::1]:80"), "http://[::1]:80");
        security.ca = Some(PathBuf::from("ca.pem"));
        assert_eq!(url(&security, "a:7"), "https://a:7");
        assert_eq!(url(&security, "http://a:7"), "http://a:7");
        assert!(security.tls().is_err(), "there is no such file");
    }

    #[test]
    fn what_is_no_endpoint_is_refused_at_once() {
        let security = Security::default();
        let none = [
            "",
            " ",
            "nonsense here",
            "10.0.0.1",
            "host:",
            ":7",
            "host:0",
            "host:70000",
            "[::1]",
            "ftp://a:7",
            "http://a",
            "a:7/x",
            "a:7?b:1",
            "b@a:7",
            "a:7,b:7",
        ];
        for endpoint in none {
            let error = security.base_url(endpoint).unwrap_err();
            assert!(
                error.to_string().contains("write host:port"),
                "{endpoint}: {error}"
            );
        }
    }
}
