//! Who may do what: bearer tokens, each for one or more namespaces or for everything.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::{StatusCode, header, request::Parts};
use ring::digest;

use super::{ApiError, App};
use crate::Config;

/// A caller, by the token that it showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    /// May do everything: the node has no tokens, or this one is an administrator's.
    Any,
    /// May use these namespaces.
    Of(Arc<BTreeSet<String>>),
}

impl Caller {
    /// May it use this namespace?
    pub(super) fn may_use(&self, namespace: &str) -> Result<(), ApiError> {
        match self {
            Caller::Any => Ok(()),
            Caller::Of(namespaces) if namespaces.contains(namespace) => Ok(()),
            Caller::Of(_) => Err(forbidden(format!(
                "this token is not for namespace {namespace}"
            ))),
        }
    }

    /// May it tend the node?
    pub(super) fn may_tend(&self) -> Result<(), ApiError> {
        match self {
            Caller::Any => Ok(()),
            Caller::Of(_) => Err(forbidden("this takes an administrator's token".to_owned())),
        }
    }

    /// May it see what happens to this lock?
    pub(super) fn sees(&self, lock: &str) -> bool {
        self.may_use(crate::machine::namespace_of(lock)).is_ok()
    }
}

fn forbidden(message: String) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "forbidden", message)
}

/// A token's SHA-256: what is compared tells nothing about how much of a guess was right.
type Fingerprint = [u8; 32];

fn fingerprint(token: &str) -> Fingerprint {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    out
}

/// The tokens of a node.
#[derive(Debug, Default)]
pub(crate) struct Access {
    tokens: HashMap<Fingerprint, Caller>,
}

impl Access {
    /// The tokens of this configuration.
    pub(crate) fn of(config: &Config) -> Self {
        let mut named: HashMap<Fingerprint, BTreeSet<String>> = HashMap::new();
        for (name, namespace) in &config.namespaces {
            for token in &namespace.tokens {
                let of = named.entry(fingerprint(token)).or_default();
                of.insert(name.clone());
            }
        }
        let mut tokens: HashMap<_, _> = named
            .into_iter()
            .map(|(token, of)| (token, Caller::Of(Arc::new(of))))
            .collect();
        for token in &config.admin_tokens {
            tokens.insert(fingerprint(token), Caller::Any);
        }
        Access { tokens }
    }

    /// Who shows this `Authorization` header?
    pub(super) fn caller(&self, header: Option<&str>) -> Result<Caller, ApiError> {
        if self.tokens.is_empty() {
            return Ok(Caller::Any);
        }
        let token = header.and_then(|text| text.split_once(' '));
        let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let known = token.and_then(|(_, token)| self.tokens.get(&fingerprint(token.trim())));
        known.cloned().ok_or_else(|| {
            let message = "send a bearer token of this namespace: Authorization: Bearer …";
            ApiError::new(StatusCode::UNAUTHORIZED, "unauthenticated", message)
        })
    }
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let header = parts.headers.get(header::AUTHORIZATION);
        let policy = app.policy();
        policy
            .access
            .caller(header.and_then(|value| value.to_str().ok()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::config::Namespace;

    #[test]
    fn a_token_opens_its_namespaces_only() {
        let mut config = Config::single("127.0.0.1:1".parse().unwrap(), "unused".into());
        assert_eq!(Access::of(&config).caller(None).unwrap(), Caller::Any);
        config.admin_tokens = vec!["administrator-token".to_owned()];
        for name in ["a", "b"] {
            let tokens = vec![format!("token-of-{name}-only"), "token-of-both".to_owned()];
            let namespace = Namespace {
                tokens,
                ..Namespace::default()
            };
            config.namespaces.insert(name.to_owned(), namespace);
        }
        let access = Access::of(&config);
        assert!(access.caller(None).is_err());
        assert!(access.caller(Some("Bearer wrong")).is_err());
        assert!(access.caller(Some("token-of-a-only")).is_err());
        let a = access.caller(Some("Bearer token-of-a-only")).unwrap();
        assert!(a.may_use("a").is_ok() && a.may_use("b").is_err() && a.may_tend().is_err());
        let both = access.caller(Some("Bearer token-of-both")).unwrap();
        assert!(both.may_use("a").is_ok() && both.may_use("b").is_ok() && !both.sees("c/x"));
        let admin = access.caller(Some("Bearer administrator-token")).unwrap();
        assert!(admin.may_tend().is_ok() && admin.sees("c/x"));
    }
}
