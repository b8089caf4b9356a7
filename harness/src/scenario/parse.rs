//! From a name or a path to a checked scenario.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fencepost_checker::verdict::Expected;
use serde::{Deserialize, Deserializer};

use super::error::{nearest, place};
use super::{Mode, Scenario, ScenarioError, builtin, builtins, longest};

/// Reads a scenario by built-in name, or from a file when the word looks like a path.
///
/// # Errors
/// Not found (with the nearest name), unreadable, or refused at its line.
pub fn find(word: &str) -> Result<Scenario, ScenarioError> {
    let looks_like_path = word.contains('/') || word.ends_with(".toml");
    if !looks_like_path {
        return match builtin(word) {
            Some(text) => parse(&format!("scenarios/{word}.toml"), text),
            None => Err(ScenarioError::NotFound {
                name: word.into(),
                hint: suggestion(word),
            }),
        };
    }
    let text = std::fs::read_to_string(word).map_err(|cause| ScenarioError::Unreadable {
        path: word.into(),
        cause,
    })?;
    parse(word, &text)
}

fn suggestion(word: &str) -> String {
    match nearest(word, builtins().map(|(n, _)| n)) {
        Some(near) => format!("did you mean `{near}`? `fencepost list scenarios` names them all"),
        None => "`fencepost list scenarios` names them all; a file's name ends in .toml".into(),
    }
}

/// Parses a scenario's text; `path` is used in messages and gives the default name.
///
/// # Errors
/// The first thing that is wrong, with its line and column.
pub fn parse(path: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let mut s: Scenario = toml::from_str(text).map_err(|e| syntax(path, text, &e))?;
    if s.name.is_empty() {
        s.name = Path::new(path)
            .file_stem()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
    }
    validate(&s).map_err(|what| ScenarioError::Value {
        path: path.into(),
        what,
    })?;
    Ok(s)
}

fn syntax(path: &str, text: &str, error: &toml::de::Error) -> ScenarioError {
    let (line, column) = place(text, error.span().map_or(0, |s| s.start));
    let message = error
        .message()
        .lines()
        .next()
        .unwrap_or("not TOML")
        .to_owned();
    ScenarioError::Syntax {
        path: path.into(),
        line,
        column,
        what: with_suggestion(&message),
    }
}

/// Turns serde's list of all keys into the one that was meant.
fn with_suggestion(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return message.to_owned();
    };
    let mut words = rest.split('`');
    let Some(word) = words.next() else {
        return message.to_owned();
    };
    let known: Vec<&str> = words.skip(1).step_by(2).collect();
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("unknown key `{word}`; did you mean `{near}`?"),
        None if known.is_empty() => format!("unknown key `{word}`"),
        None => format!("unknown key `{word}`; known here: {}", known.join(", ")),
    }
}

/// Ranges that types do not hold.
///
/// # Errors
/// One line that names the key.
pub fn validate(s: &Scenario) -> Result<(), String> {
    let ttl = s.ttl();
    let at_most = |what: &str, n: u64, most: u64| {
        if n == 0 || n > most {
            Err(format!("`{what}` is {n}; it must be from 1 to {most}"))
        } else {
            Ok(())
        }
    };
    at_most("workers", s.workers.into(), 256)?;
    at_most("clients", s.clients.into(), 1024)?;
    at_most("permits", s.permits.into(), 1_000_000)?;
    at_most("load.locks", s.load.locks.into(), 100_000)?;
    if !(s.load.rate >= 0.0 && s.load.rate <= 1e6) {
        return Err(format!(
            "`load.rate` is {}; it must be from 0 to 1000000 cycles a second",
            s.load.rate
        ));
    }
    if ttl < Duration::from_millis(20) || ttl > Duration::from_secs(3600) {
        return Err(format!(
            "`lease.ttl` is {}; it must be from 20ms to 1h",
            s.lease.ttl
        ));
    }
    if s.timeout().is_zero() {
        return Err("`timeout` is zero; give a call at least 1ms".into());
    }
    if longest(&s.load.duration, ttl) > Duration::from_secs(24 * 3600) {
        return Err(format!(
            "`load.duration` is {}; a run lasts at most 24h",
            s.load.duration
        ));
    }
    if s.permits > 1 && s.mode != Mode::Semaphore {
        return Err(format!(
            "`permits` is {} but `mode` is no semaphore; set mode = \"semaphore\"",
            s.permits
        ));
    }
    for (at, plan) in s.faults.iter().enumerate() {
        plan.check(at).map_err(|e| e.to_string())?;
    }
    if s.allow.freed_factor.is_nan() || s.allow.freed_factor < 1.0 {
        return Err(format!(
            "`allow.freed_factor` is {}; it must be at least 1",
            s.allow.freed_factor
        ));
    }
    Ok(())
}

/// `[expect]`, where `double-holder.limit = "violated"` is TOML's nested table.
pub fn expect<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<String, Expected>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Entry {
        Flat(Expected),
        Nested(BTreeMap<String, Expected>),
    }
    let mut flat = BTreeMap::new();
    for (name, entry) in BTreeMap::<String, toml::Value>::deserialize(d)? {
        let entry: Entry = entry.try_into().map_err(|_| {
            serde::de::Error::custom(format!(
                "`expect.{name}` must be \"holds\", \"violated\", \"any\" or \"not-violated\""
            ))
        })?;
        match entry {
            Entry::Flat(e) => drop(flat.insert(name, e)),
            Entry::Nested(inner) => {
                flat.extend(inner.into_iter().map(|(k, e)| (format!("{name}.{k}"), e)))
            }
        }
    }
    Ok(flat)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn refused(text: &str) -> String {
        parse("own.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn a_typo_is_refused_at_its_line_with_the_key_that_was_meant() {
        assert_eq!(
            refused("about = \"x\"\nworker = 3\n"),
            "own.toml:2:1: unknown key `worker`; did you mean `workers`?"
        );
        let nested = refused("[load]\nrate = 5\nduratoin = \"3s\"\n");
        assert_eq!(
            nested,
            "own.toml:3:1: unknown key `duratoin`; did you mean `duration`?"
        );
        assert!(refused("workers = \"three\"").starts_with("own.toml:1:11: invalid type"));
        let length = refused("[load]\nwait = \"5 fortnights\"\n");
        assert!(
            length.starts_with("own.toml:2:8: \"5 fortnights\" is no length"),
            "{length}"
        );
        assert!(refused("= 3").starts_with("own.toml:1:1: "));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for text in [
            "workers = 0",
            "[lease]\nttl = \"1ms\"",
            "[load]\nrate = -1.0",
            "permits = 3",
            "[allow]\nfreed_factor = nan",
        ] {
            assert!(refused(text).starts_with("own.toml: `"), "{text}");
        }
    }

    #[test]
    fn expectations_may_name_a_class() {
        let s = parse(
            "own.toml",
            "[expect]\ndouble-holder.limit = \"violated\"\n\"double-holder.service\" = \"holds\"\nlost-update = \"any\"\n",
        );
        // TOML itself forbids nothing here: the quoted key is another key than the table.
        let s = s.unwrap();
        assert_eq!(s.expect["double-holder.limit"], Expected::Violated);
        assert_eq!(s.expect["double-holder.service"], Expected::Holds);
        assert_eq!(s.expect["lost-update"], Expected::Any);
        assert!(refused("[expect]\nlost-update = \"broken\"\n").contains("expect.lost-update"));
    }

    #[test]
    fn a_missing_name_is_answered_with_the_nearest() {
        let e = find("kleppman-pause").unwrap_err().to_string();
        assert!(e.contains("did you mean `kleppmann-pause`?"), "{e}");
        assert!(
            find("no/such.toml")
                .unwrap_err()
                .to_string()
                .starts_with("cannot read scenario no/such.toml")
        );
    }

    #[test]
    fn a_resolved_scenario_reads_back_as_itself() {
        for (name, text) in builtins() {
            let s = parse(name, text).unwrap();
            let json = serde_json::to_string(&s).unwrap();
            assert_eq!(
                serde_json::from_str::<Scenario>(&json).unwrap(),
                s,
                "{name}"
            );
        }
    }
}
