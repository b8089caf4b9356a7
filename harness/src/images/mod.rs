//! The images of lock services: recipes from Debian packages, so that no registry is needed.

/// How the image of a service is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    pub name: &'static str,
    /// Debian release that it is built on.
    pub base: &'static str,
    pub packages: &'static [&'static str],
    /// Programs that it brings, for hints where one is missing on PATH.
    pub programs: &'static [&'static str],
}

pub const RECIPES: &[Recipe] = &[Recipe {
    name: "redis",
    base: "trixie",
    packages: &["redis-server"],
    programs: &["redis-server", "redis-sentinel", "redis-cli"],
}];

/// The Debian package that brings a program.
#[must_use]
pub fn package_of(program: &str) -> Option<&'static str> {
    let recipe = RECIPES.iter().find(|r| r.programs.contains(&program))?;
    recipe.packages.first().copied()
}
