//! What can be wrong with a scenario: one line each, with the place and a hint.

use thiserror::Error;

#[derive(Debug, Error)]
pub enum ScenarioError {
    #[error("no scenario `{name}`: {hint}")]
    NotFound { name: String, hint: String },
    #[error("cannot read scenario {path}: {cause}")]
    Unreadable { path: String, cause: std::io::Error },
    /// `path:line:column: what`, with a suggestion where one is near.
    #[error("{path}:{line}:{column}: {what}")]
    Syntax {
        path: String,
        line: usize,
        column: usize,
        what: String,
    },
    #[error("{path}: {what}")]
    Value { path: String, what: String },
}

/// Line and column (from 1) of a byte offset.
pub fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|b| **b != b'\n').count() + 1;
    (line, column)
}

/// The candidate nearest to a misspelt word, if one is near enough to be meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|c| (distance(word, c), c))
        .filter(|(d, c)| *d <= 1 + c.chars().count() / 4)
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// Levenshtein distance by one row of the matrix.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_from_one() {
        assert_eq!(place("ab\ncd", 0), (1, 1));
        assert_eq!(place("ab\ncd", 4), (2, 2));
        assert_eq!(place("", 9), (1, 1));
    }

    #[test]
    fn the_nearest_word_is_suggested_only_when_near() {
        assert_eq!(nearest("worker", ["workers", "clients"]), Some("workers"));
        assert_eq!(nearest("duartion", ["duration", "rate"]), Some("duration"));
        assert_eq!(nearest("zebra", ["workers", "clients"]), None);
    }
}
