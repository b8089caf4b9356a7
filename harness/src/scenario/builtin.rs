//! The scenarios in `scenarios/`, embedded in the binary.

/// Name and text of each, in the order of names.
const BUILTIN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

/// Text of a built-in scenario.
pub fn builtin(name: &str) -> Option<&'static str> {
    BUILTIN
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, text)| *text)
}

/// All built-in scenarios as (name, text).
pub fn builtins() -> impl Iterator<Item = (&'static str, &'static str)> {
    BUILTIN.iter().copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scenario::parse;

    #[test]
    fn every_built_in_scenario_parses_and_says_what_it_shows() {
        assert!(builtin("kleppmann-pause").is_some());
        for (name, text) in builtins() {
            let s =
                parse(&format!("scenarios/{name}.toml"), text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(s.name, name);
            assert!(s.about.len() > 20, "{name} says what it shows");
            assert!(!s.source.is_empty(), "{name} cites its source");
        }
    }
}
