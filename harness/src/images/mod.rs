//! The images of lock services: recipes from Debian packages, so that no registry is needed.

use std::{fmt, sync::Arc};

mod base;
mod build;

pub use build::{Image, ensure, named, remove_leftovers};

/// How the image of a service is made. A new service is one line in [`RECIPES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    pub name: &'static str,
    /// Debian release that it is built on.
    pub base: &'static str,
    pub packages: &'static [&'static str],
    /// Programs that it brings, for hints where one is missing on PATH.
    pub programs: &'static [&'static str],
}

const fn recipe(
    name: &'static str,
    base: &'static str,
    packages: &'static [&'static str],
    programs: &'static [&'static str],
) -> Recipe {
    Recipe {
        name,
        base,
        packages,
        programs,
    }
}

const REDIS: &[&str] = &["redis-server", "redis-sentinel", "redis-cli"];

/// Every image that `fencepost images build` makes.
#[rustfmt::skip]
pub const RECIPES: &[Recipe] = &[
    recipe("redis", "trixie", &["redis-server", "redis-sentinel"], REDIS),
    recipe("redis-7.0", "bookworm", &["redis-server", "redis-sentinel"], REDIS),
    recipe("etcd", "trixie", &["etcd-server"], &["etcd"]),
    recipe("etcd-3.4", "bookworm", &["etcd-server"], &["etcd"]),
    recipe("zookeeper", "trixie", &["zookeeper", "default-jre-headless"], &["java"]),
    recipe("zookeeper-3.8", "bookworm", &["zookeeper", "default-jre-headless"], &["java"]),
    recipe("postgres", "trixie", &["postgresql"], &["postgres", "initdb"]),
    recipe("raftlock", "trixie", &[], &[]),
];

impl Recipe {
    /// The image's name; the tag changes with the recipe, so that a rerun is quick and never stale.
    #[must_use]
    pub fn tag(&self) -> String {
        let text = format!(
            "{}\n{}\n{}",
            self.base,
            self.packages.join(" "),
            build::SCRIPT
        );
        let hash = crate::host::fnv(text.as_bytes());
        format!("fencepost/{}:{:012x}", self.name, hash & 0xffff_ffff_ffff)
    }
}

/// The recipe of that name.
#[must_use]
pub fn recipe_of(name: &str) -> Option<&'static Recipe> {
    RECIPES.iter().find(|r| r.name == name)
}

/// The Debian package that brings a program.
#[must_use]
pub fn package_of(program: &str) -> Option<&'static str> {
    let recipe = RECIPES.iter().find(|r| r.programs.contains(&program))?;
    recipe.packages.first().copied()
}

/// Receives what a long task is doing, a line at a time, for a progress display.
#[derive(Clone)]
pub struct Say(Arc<dyn Fn(&str) + Send + Sync>);

impl Say {
    pub fn new(to: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(to))
    }

    pub fn line(&self, text: &str) {
        (self.0)(text);
    }
}

impl Default for Say {
    fn default() -> Self {
        Self::new(|text| tracing::info!("{text}"))
    }
}

impl fmt::Debug for Say {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Say")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn tags_follow_the_recipe() {
        let redis = recipe_of("redis").unwrap();
        let other = Recipe {
            base: "bookworm",
            ..*redis
        };
        assert_eq!(redis.tag(), redis.tag());
        assert_ne!(redis.tag(), other.tag());
        assert!(redis.tag().starts_with("fencepost/redis:"));
    }

    #[test]
    fn programs_lead_to_packages() {
        assert_eq!(package_of("redis-server"), Some("redis-server"));
        assert_eq!(package_of("nothing"), None);
    }
}
