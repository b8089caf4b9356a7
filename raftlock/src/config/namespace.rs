//! Namespaces: what their locks may do, and what their safety rests on.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a wrong holder would cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Safety {
    /// Work done twice: no fence is needed.
    #[default]
    Efficiency,
    /// Wrong data: the resource must check the fencing token.
    Correctness,
}

/// A namespace as the configuration has it; what it leaves out is the node's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Namespace {
    /// Shortest session TTL granted, ms.
    pub min_ttl_ms: Option<u64>,
    /// Longest session TTL granted, ms.
    pub max_ttl_ms: Option<u64>,
    /// TTL of a session that names none, ms.
    pub default_ttl_ms: Option<u64>,
    /// How long a lock is kept back after its holder failed, ms.
    pub lock_delay_ms: Option<u64>,
    /// Waiters for one lock before more are refused.
    pub max_waiters: Option<u32>,
    /// Sessions in one group before more are refused.
    pub max_sessions: Option<u32>,
    /// Operations a second that one node takes for it.
    pub ops_per_s: Option<u32>,
    /// Its safety class.
    pub safety: Safety,
    /// What its locks protect; a correctness namespace must say.
    pub fenced_resource: Option<String>,
    /// How that resource checks the fencing token; a correctness namespace must say.
    pub check: Option<String>,
    /// Bearer tokens that may use it.
    pub tokens: Vec<String>,
    /// Files with one bearer token each.
    pub token_files: Vec<PathBuf>,
}

impl Namespace {
    /// Is it complete?
    pub(super) fn check(&self, name: &str) -> Result<(), String> {
        if name.is_empty() || name.contains('/') || name.len() > 128 {
            return Err(format!("namespace {name:?}: 1 to 128 bytes without /"));
        }
        let said =
            |text: &Option<String>| text.as_deref().is_some_and(|text| !text.trim().is_empty());
        if self.safety == Safety::Correctness && !(said(&self.fenced_resource) && said(&self.check))
        {
            return Err(format!(
                "namespace {name} is of class correctness: name its fenced_resource and how that checks the token (check)"
            ));
        }
        if self.ops_per_s == Some(0) {
            return Err(format!("namespace {name}: ops_per_s must be above 0"));
        }
        Ok(())
    }
}

/// Longest TTL and lock-delay that make sense, ms: a day.
const LONGEST: u64 = 24 * 3600 * 1000;

/// A namespace's limits, complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Shortest TTL granted.
    pub min_ttl: Duration,
    /// Longest TTL granted.
    pub max_ttl: Duration,
    /// TTL of a session that names none.
    pub default_ttl: Duration,
    /// Lock-delay after a failed holder.
    pub lock_delay: Duration,
    /// Waiters for one lock.
    pub max_waiters: u32,
    /// Sessions in one group.
    pub max_sessions: u32,
    /// Operations a second.
    pub ops_per_s: Option<u32>,
}

impl Limits {
    /// Do they agree with each other?
    pub(super) fn check(&self) -> Result<(), String> {
        let longest = Duration::from_millis(LONGEST);
        if self.min_ttl.is_zero() {
            return Err("min_ttl_ms must be above 0".to_owned());
        }
        if self.max_sessions == 0 {
            return Err("max_sessions must be above 0".to_owned());
        }
        if self.max_ttl < self.min_ttl {
            return Err(format!(
                "max_ttl_ms, {}, is below min_ttl_ms, {}",
                self.max_ttl.as_millis(),
                self.min_ttl.as_millis()
            ));
        }
        if self.max_ttl > longest || self.lock_delay > longest {
            return Err(format!(
                "max_ttl_ms and lock_delay_ms must not be above {LONGEST}"
            ));
        }
        if !(self.min_ttl..=self.max_ttl).contains(&self.default_ttl) {
            return Err(format!(
                "default_ttl_ms, {}, is not within {} to {}",
                self.default_ttl.as_millis(),
                self.min_ttl.as_millis(),
                self.max_ttl.as_millis()
            ));
        }
        Ok(())
    }

    /// The TTL granted to one who asks for `ttl_ms`, ms.
    pub fn grant_ttl(&self, ttl_ms: Option<u64>) -> u32 {
        let asked = ttl_ms.map_or(self.default_ttl, Duration::from_millis);
        let granted = asked.clamp(self.min_ttl, self.max_ttl.max(self.min_ttl));
        u32::try_from(granted.as_millis()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correctness_namespace_names_its_resource_and_its_check() {
        let mut namespace = Namespace {
            safety: Safety::Correctness,
            ..Namespace::default()
        };
        assert!(namespace.check("orders").is_err());
        namespace.fenced_resource = Some("table orders".to_owned());
        assert!(namespace.check("orders").is_err(), "and how it checks");
        namespace.check = Some("update … where fence <= $1".to_owned());
        assert_eq!(namespace.check("orders"), Ok(()));
        assert!(namespace.check("a/b").is_err());
    }

    #[test]
    fn a_ttl_is_kept_within_the_limits() {
        let limits = Limits {
            min_ttl: Duration::from_secs(1),
            max_ttl: Duration::from_secs(20),
            default_ttl: Duration::from_secs(15),
            lock_delay: Duration::ZERO,
            max_waiters: 5,
            max_sessions: 5,
            ops_per_s: None,
        };
        let granted =
            [None, Some(5), Some(7_000), Some(90_000)].map(|asked| limits.grant_ttl(asked));
        assert_eq!(granted, [15_000, 1_000, 7_000, 20_000]);
    }
}
