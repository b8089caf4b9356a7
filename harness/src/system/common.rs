//! Parameters that every system takes, wherever they make a difference.

use std::time::Duration;

use async_trait::async_trait;

use super::{ClientInit, Facts, Params, Service, System, SystemError};
use crate::{
    host::{HostKind, NodeSpec, Site},
    images,
};

#[derive(Debug, Default)]
pub(super) struct Common {
    system: &'static str,
    /// Of the image (docker), or demanded of what is on PATH (local).
    release: Option<String>,
    disk_mb: Option<u64>,
}

impl Common {
    /// Takes its keys out of `params`.
    pub fn take(system: &'static str, params: &mut Params) -> Result<Self, SystemError> {
        let wrong = |reason: &str| SystemError::Params {
            system,
            reason: reason.into(),
        };
        let release = match params.remove("release") {
            None => None,
            Some(v) => Some(
                v.as_str()
                    .ok_or_else(|| wrong("release is text, such as \"7.0\""))?
                    .to_string(),
            ),
        };
        let disk_mb = match params.remove("disk_mb") {
            None => None,
            Some(v) => Some(
                v.as_u64()
                    .filter(|mb| *mb > 0)
                    .ok_or_else(|| wrong("disk_mb is a number of megabytes"))?,
            ),
        };
        Ok(Self {
            system,
            release,
            disk_mb,
        })
    }

    pub fn around(self, inner: Box<dyn System>) -> Result<Box<dyn System>, SystemError> {
        if self.release.is_none() && self.disk_mb.is_none() {
            return Ok(inner);
        }
        Ok(Box::new(Configured {
            common: self,
            inner,
        }))
    }

    /// The recipe of that release; the plain one where it is that release already.
    fn recipe(&self, plain: &str) -> String {
        let Some(release) = &self.release else {
            return plain.into();
        };
        let special = format!("{plain}-{release}");
        match images::recipe_of(&special) {
            Some(_) => special,
            None => plain.into(),
        }
    }
}

struct Configured {
    common: Common,
    inner: Box<dyn System>,
}

#[async_trait]
impl System for Configured {
    fn facts(&self) -> Facts {
        self.inner.facts()
    }

    fn nodes(&self, site: &Site) -> Vec<NodeSpec> {
        let mut nodes = self.inner.nodes(site);
        for node in &mut nodes {
            node.recipe = self.common.recipe(&node.recipe);
            node.tmpfs_bytes = self.common.disk_mb.map(|mb| mb << 20);
        }
        nodes
    }

    fn client(&self, site: &Site) -> ClientInit {
        self.inner.client(site)
    }

    fn port(&self, node: usize) -> Option<u16> {
        self.inner.port(node)
    }

    /// The release that was asked for is compared with what a server says of itself.
    async fn join(&self, site: &Site, within: Duration) -> Result<Service, SystemError> {
        let service = self.inner.join(site, within).await?;
        match &self.common.release {
            Some(wanted) if !is_release(&service.version, wanted) => Err(SystemError::Params {
                system: self.common.system,
                reason: format!(
                    "release {wanted} was asked for, but the server is {}{}",
                    service.version,
                    match site.kind {
                        HostKind::Local => ": PATH has no other, use --on docker",
                        HostKind::Docker => ": see `fencepost images list`",
                    }
                ),
            }),
            _ => Ok(service),
        }
    }
}

/// `3.4.23` is a `3.4`; `3.40.1` is not.
fn is_release(version: &str, wanted: &str) -> bool {
    version
        .strip_prefix(wanted)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn releases_are_prefixes_at_a_dot() {
        assert!(is_release("3.4.23", "3.4"));
        assert!(is_release("3.4.23", "3.4.23"));
        assert!(!is_release("3.40.1", "3.4"));
        assert!(!is_release("8.0.2", "7.0"));
    }

    #[test]
    fn keys_are_taken_and_checked() {
        let mut p: Params = serde_json::from_str(r#"{"release":"7.0","x":1}"#).unwrap();
        let common = Common::take("redis", &mut p).unwrap();
        assert_eq!(common.recipe("redis"), "redis-7.0");
        assert_eq!(common.recipe("raftlock"), "raftlock");
        assert_eq!(p.len(), 1);
        let mut p: Params = serde_json::from_str(r#"{"disk_mb":0}"#).unwrap();
        assert!(Common::take("redis", &mut p).is_err());
    }
}
