//! Near-linear checkers, one file each, with the argument for it.
//!
//! A checker may decline a history whose shape its argument does not cover;
//! the search decides those.

pub mod cores;
pub mod counting;
pub mod fenced;
pub mod fenced_register;
pub mod reentrant;
pub mod sessions;
pub mod zones;

/// Evidence found by a near-linear checker.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub class: &'static str,
    pub summary: String,
    /// Positions of the operations that it rests on.
    pub ops: Vec<usize>,
    /// Operations each of which must come before the next, the last before the first.
    pub cycle: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fast {
    Linearizable,
    Violated(Finding),
    Declined(&'static str),
}

impl Fast {
    pub fn violated(class: &'static str, summary: impl Into<String>, ops: Vec<usize>) -> Fast {
        Fast::Violated(Finding {
            class,
            summary: summary.into(),
            ops,
            cycle: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
