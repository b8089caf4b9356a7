//! How far a replica's log is on disk, by runs of its process. Flushes only rise within a run, and the next goes on where the one before
//! left off: two runs that overlap prove that the directory was set back between them.

use serde::{Deserialize, Serialize};

/// A run of a replica's process on one directory, as others were told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Drawn when it began.
    pub run: u64,
    /// Its last durable flush when it began.
    pub began: u64,
    /// The highest flush that it said was durable.
    pub sequence: u64,
    /// There was another run that overlaps with one of the directory's.
    pub overlapped: bool,
}

/// What one replica tells of another's run, or of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushed {
    /// The replica.
    pub of: u64,
    /// Its directory.
    pub incarnation: u64,
    /// The run.
    pub run: Run,
}

impl Run {
    /// Did another run get further than this one began? Then the directory was set back in between.
    pub fn began_behind(&self, other: &Run) -> bool {
        self.run != other.run && other.sequence > self.began
    }

    /// What is known of a directory by both: of its last run, and whether any overlapped. Its order does not matter.
    pub fn merge(self, other: Run) -> Run {
        let same = self.run == other.run;
        let overlap = !same && self.began < other.sequence && other.began < self.sequence;
        let later = match other.sequence.cmp(&self.sequence) {
            std::cmp::Ordering::Equal => other.began > self.began,
            order => order.is_gt(),
        };
        Run {
            overlapped: self.overlapped || other.overlapped || overlap,
            ..if later { other } else { self }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(run: u64, began: u64, sequence: u64) -> Run {
        Run {
            run,
            began,
            sequence,
            overlapped: false,
        }
    }

    #[test]
    fn the_last_run_is_remembered_and_that_two_overlapped() {
        let first = run(1, 10, 50);
        assert_eq!(first.merge(run(1, 10, 40)), first);
        assert_eq!(first.merge(run(1, 10, 60)), run(1, 10, 60));
        for later in [run(2, 50, 50), run(2, 50, 70), run(3, 61, 61)] {
            assert_eq!(first.merge(later), later);
            assert_eq!(later.merge(first), later);
        }
        // Set back to 40 or 5 and on from there.
        for set_back in [
            run(2, 40, 40),
            run(2, 40, 49),
            run(2, 40, 90),
            run(2, 5, 60),
        ] {
            let known = first.merge(set_back);
            assert!(known.overlapped, "{set_back:?}");
            assert_eq!(set_back.merge(first), known);
            assert!(run(3, 90, 99).merge(known).overlapped, "for good");
        }
    }
}
