//! Exit codes of the `fencepost` command: the one list (docs/outcomes.md explains each).

/// As expected, or linearizable.
pub const OK: u8 = 0;
/// A check was violated that should not be, or the history is not linearizable.
pub const VIOLATED: u8 = 1;
/// The command line was wrong.
pub const USAGE: u8 = 2;
/// The harness, not the service, failed.
pub const HARNESS: u8 = 3;
/// A planned fault did not take hold.
pub const NOT_APPLIED: u8 = 4;
/// Nothing can be said: unknown, or the run exercised too little.
pub const UNKNOWN: u8 = 5;
/// An input file is malformed; the message names the line.
pub const MALFORMED: u8 = 6;
/// A violation that the scenario expects was not seen.
pub const NOT_SEEN: u8 = 7;
/// Two engines disagree: a bug of ours.
pub const INTERNAL: u8 = 8;
/// Interrupted by the user; what was recorded is kept and judged.
pub const INTERRUPTED: u8 = 130;

/// Code, name, meaning: for `--help` and the documentation.
pub const ALL: &[(u8, &str, &str)] = &[
    (OK, "ok", "as expected, or linearizable"),
    (
        VIOLATED,
        "violated",
        "a violation that was not expected, or not linearizable",
    ),
    (USAGE, "usage", "the command line was wrong"),
    (
        HARNESS,
        "harness-failure",
        "the harness failed; what was recorded is kept",
    ),
    (
        NOT_APPLIED,
        "fault-not-applied",
        "a planned fault did not take hold",
    ),
    (
        UNKNOWN,
        "unknown",
        "nothing can be said, or the run exercised too little",
    ),
    (
        MALFORMED,
        "malformed",
        "an input file is malformed; the message names the line",
    ),
    (
        NOT_SEEN,
        "not-seen",
        "a violation that the scenario expects was not seen",
    ),
    (
        INTERNAL,
        "internal",
        "two engines disagree; please report it",
    ),
    (
        INTERRUPTED,
        "interrupted",
        "stopped by the user; what was recorded is kept",
    ),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    #[test]
    fn the_document_lists_every_code() {
        let doc = include_str!("../../docs/outcomes.md");
        for (code, name, meaning) in super::ALL {
            let row = format!("| {code} | `{name}` | {meaning}");
            assert!(doc.contains(&row), "docs/outcomes.md lacks: {row}");
        }
    }
}
