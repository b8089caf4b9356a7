//! `run.json`, read by path so that a member of an unexpected kind costs only itself.

use serde_json::Value;

/// The run's description; empty when `run.json` is missing or unreadable.
#[derive(Clone, Debug, Default)]
pub struct Meta {
    pub json: Value,
    /// The same, with members in the order of the file.
    pub ordered: fencepost_history::Value,
}

impl From<Value> for Meta {
    fn from(json: Value) -> Meta {
        Meta {
            json,
            ..Meta::default()
        }
    }
}

impl Meta {
    /// Member at a dotted path such as `system.name`; `None` when absent or null.
    pub fn get(&self, path: &str) -> Option<&Value> {
        let found = path
            .split('.')
            .try_fold(&self.json, |v, name| v.get(name))?;
        (!found.is_null()).then_some(found)
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.get(path)?.as_str()
    }

    pub fn number(&self, path: &str) -> Option<f64> {
        self.get(path)?.as_f64()
    }

    pub fn flag(&self, path: &str) -> Option<bool> {
        self.get(path)?.as_bool()
    }

    /// Scenario's name, or a word that stands for it.
    pub fn name(&self) -> &str {
        self.text("name").unwrap_or("unnamed run")
    }

    /// System and version, such as `redis 8.0.2`.
    pub fn system(&self) -> Option<String> {
        let name = self.text("system.name")?;
        Some(match self.text("system.version") {
            Some(version) => format!("{name} {version}"),
            None => name.to_string(),
        })
    }

    /// The command line that made the run, ready for a POSIX shell.
    pub fn command(&self) -> Option<String> {
        let words = self.get("command")?.as_array()?;
        let words: Option<Vec<String>> = words.iter().map(|w| w.as_str().map(quote)).collect();
        words.map(|w| w.join(" ")).filter(|c| !c.is_empty())
    }

    /// Slack between a lease's end and the end that is promised, in
    /// nanoseconds: 1 % of the TTL + 5 ms + the server's granularity.
    pub fn margin_ns(&self, ttl_ns: i64) -> i64 {
        let granularity = self.number("system.granularity_ms").unwrap_or(0.0);
        ttl_ns / 100 + 5_000_000 + (granularity * 1e6) as i64
    }
}

/// `word` as one shell word.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_of_the_wrong_kind_are_absent() {
        let meta = Meta::from(json!({"name": 7, "system": {"name": "redis", "version": null}}));
        assert_eq!(meta.name(), "unnamed run");
        assert_eq!(meta.system().as_deref(), Some("redis"));
        assert_eq!(meta.text("system.name.first"), None);
    }

    #[test]
    fn commands_can_be_pasted() {
        let meta = Meta::from(
            json!({"command": ["fencepost", "run", "x", "--worker", "python3 it's.py"]}),
        );
        assert_eq!(
            meta.command().as_deref(),
            Some(r"fencepost run x --worker 'python3 it'\''s.py'")
        );
    }
}
