//! One client of one worker: a sequential caller that goes through cycles.

use std::sync::Arc;

use fencepost_workloads::protocol::{Acquire, Add, Answer, Granted, Hold, Item, Mode, Op, Write};

use crate::scenario::Workload;

/// Whose cycles a slot runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Cycles as the schedule of arrivals brings them.
    Load,
    /// Cycles on the story's lock, one after another.
    Story,
}

/// Where a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Idle,
    Acquiring,
    Reading,
    /// Has read and works until a timer rings.
    Working,
    Writing,
    Releasing,
    /// Releases what it has released already.
    ReleasingAgain,
    /// Its worker is gone.
    Parked,
}

/// What a cycle does under its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    Update,
    Add,
    Nothing,
}

impl Job {
    /// The job of a cycle; `coin` decides where the workload is mixed.
    pub fn of(workload: Workload, coin: bool) -> Job {
        match workload {
            Workload::Register => Job::Update,
            Workload::Set => Job::Add,
            Workload::Mixed if coin => Job::Add,
            Workload::Mixed => Job::Update,
            Workload::Lock => Job::Nothing,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Slot {
    pub worker: usize,
    pub client: u32,
    pub role: Role,
    /// Process id in the history; a new one after every unknown outcome.
    pub process: u64,
    pub step: Step,
    pub key: Arc<str>,
    pub job: Job,
    /// How long this cycle works between its read and its write, in nanoseconds.
    pub work: i64,
    /// When the cycle, and when its pending operation, was meant to start.
    pub cycle_start: i64,
    pub op_start: i64,
    pub grant: Option<Granted>,
    /// The grant that was released last.
    pub released: Option<Granted>,
    pub read: Option<Item>,
}

/// What a slot does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    Ask(Op),
    /// Work, then [`Slot::worked`].
    Work,
    /// The cycle is over: ran through, or ended early.
    Over {
        whole: bool,
    },
}

impl Slot {
    /// Begins a cycle.
    pub fn begin(
        &mut self,
        mode: Mode,
        ttl_ms: Option<u64>,
        wait_ms: u64,
        permits: Option<u32>,
    ) -> Op {
        self.step = Step::Acquiring;
        self.grant = None;
        self.read = None;
        Op::Acquire(Acquire {
            client: self.client,
            key: self.key.clone(),
            mode,
            ttl_ms,
            wait_ms,
            permits,
        })
    }

    /// Takes the answer to its pending operation in. `fresh` is a value that no one else writes.
    pub fn answered(&mut self, answer: &Answer, fresh: i64) -> Next {
        match (self.step, answer) {
            (Step::Acquiring, Answer::Granted(g)) => {
                self.grant = Some(g.clone());
                self.under_grant(fresh)
            }
            (Step::Acquiring, _) => self.over(false),
            (Step::Reading, Answer::Value(item)) => {
                self.read = item.clone();
                self.step = Step::Working;
                if self.work > 0 {
                    Next::Work
                } else {
                    self.worked(fresh)
                }
            }
            (Step::Reading | Step::Writing, _) => self.release(),
            (Step::Releasing, Answer::Released { .. }) => {
                self.released = self.grant.take();
                self.over(true)
            }
            _ => self.over(false),
        }
    }

    fn under_grant(&mut self, fresh: i64) -> Next {
        let Some(hold) = self.hold() else {
            return self.over(false);
        };
        match self.job {
            Job::Update => {
                self.step = Step::Reading;
                Next::Ask(Op::Read(hold))
            }
            Job::Add => {
                self.step = Step::Writing;
                let work_ms = u64::try_from(self.work / 1_000_000).unwrap_or(0);
                Next::Ask(Op::Add(Add {
                    hold,
                    element: Item::Int(fresh),
                    work_ms,
                    stop_at: None,
                }))
            }
            // A job of nothing still holds the lock for as long as it works.
            Job::Nothing if self.work > 0 => {
                self.step = Step::Working;
                Next::Work
            }
            Job::Nothing => self.release(),
        }
    }

    /// The work is done: write what was read plus one's own.
    pub fn worked(&mut self, fresh: i64) -> Next {
        if self.job == Job::Nothing {
            return self.release();
        }
        let Some(hold) = self.hold() else {
            return self.over(false);
        };
        self.step = Step::Writing;
        Next::Ask(Op::Write(Write {
            hold,
            value: Item::Int(fresh),
            prev: self.read.clone(),
            stop_at: None,
        }))
    }

    fn release(&mut self) -> Next {
        let Some(hold) = self.hold() else {
            return self.over(false);
        };
        self.step = Step::Releasing;
        Next::Ask(Op::Release(hold))
    }

    /// Releases once more what was released, if its answer was read.
    pub fn again(&mut self) -> Option<Op> {
        let old = self.released.take()?;
        self.step = Step::ReleasingAgain;
        Some(Op::Release(self.hold_of(&old)))
    }

    fn over(&mut self, whole: bool) -> Next {
        self.step = Step::Idle;
        self.grant = None;
        Next::Over { whole }
    }

    fn hold(&self) -> Option<Hold> {
        self.grant.as_ref().map(|g| self.hold_of(g))
    }

    fn hold_of(&self, g: &Granted) -> Hold {
        Hold {
            client: self.client,
            key: self.key.clone(),
            owner: g.owner.clone(),
            fence: g.fence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_workloads::protocol::Fence;

    fn slot(job: Job, work: i64) -> Slot {
        Slot {
            worker: 0,
            client: 2,
            role: Role::Load,
            process: 2,
            step: Step::Idle,
            key: "L1".into(),
            job,
            work,
            cycle_start: 0,
            op_start: 0,
            grant: None,
            released: None,
            read: None,
        }
    }

    fn granted() -> Answer {
        Answer::Granted(Granted {
            owner: "o".into(),
            fence: Some(Fence(9)),
            ttl_ms: Some(2000),
        })
    }

    fn names(mut s: Slot, answers: &[Answer]) -> Vec<String> {
        let op = s.begin(Mode::Exclusive, Some(2000), 0, None);
        let mut seen = vec![format!("{:?}", op.name())];
        for a in answers {
            let mut next = s.answered(a, 5);
            if next == Next::Work {
                seen.push("work".into());
                next = s.worked(5);
            }
            seen.push(match &next {
                Next::Ask(op) => format!("{:?}", op.name()),
                Next::Work => "work".into(),
                Next::Over { whole } => format!("over {whole}"),
            });
        }
        seen
    }

    #[test]
    fn an_update_reads_works_writes_and_releases() {
        let released = Answer::Released { held: true };
        let all = [
            granted(),
            Answer::Value(Some(Item::Int(3))),
            Answer::Done,
            released,
        ];
        let wanted = ["Acquire", "Read", "work", "Write", "Release", "over true"];
        assert_eq!(names(slot(Job::Update, 1), &all), wanted);
    }

    #[test]
    fn a_write_carries_the_value_read_and_the_fence() {
        let mut s = slot(Job::Update, 0);
        s.begin(Mode::Exclusive, None, 0, None);
        s.answered(&granted(), 5);
        let Next::Ask(Op::Write(w)) = s.answered(&Answer::Value(Some(Item::Int(3))), 5) else {
            panic!("a write follows at once when there is no work");
        };
        assert_eq!(
            (w.value, w.prev, w.hold.fence),
            (Item::Int(5), Some(Item::Int(3)), Some(Fence(9)))
        );
    }

    #[test]
    fn a_grant_is_released_again_once_and_only_if_its_release_was_answered() {
        let mut s = slot(Job::Nothing, 0);
        assert_eq!(s.again(), None);
        let cycle = |s: &mut Slot, last: Answer| {
            s.begin(Mode::Exclusive, None, 0, None);
            s.answered(&granted(), 5);
            s.answered(&last, 5);
        };
        cycle(&mut s, Answer::Released { held: true });
        let Some(Op::Release(hold)) = s.again() else {
            panic!("what was released is released again");
        };
        assert_eq!((&*hold.owner, hold.fence), ("o", Some(Fence(9))));
        let over = s.answered(&Answer::Released { held: false }, 5);
        assert_eq!((over, s.step), (Next::Over { whole: false }, Step::Idle));
        assert_eq!(s.again(), None);
        cycle(&mut s, Answer::Info("timeout".into()));
        assert_eq!(s.again(), None);
    }

    #[test]
    fn the_lock_is_released_whatever_became_of_the_work() {
        let info = Answer::Info("timeout".into());
        assert_eq!(
            names(slot(Job::Update, 0), &[granted(), info.clone()]),
            ["Acquire", "Read", "Release"]
        );
        let refused = Answer::Fail("stale-fence".into());
        assert_eq!(
            names(slot(Job::Add, 0), &[granted(), refused]),
            ["Acquire", "Add", "Release"]
        );
        assert_eq!(
            names(slot(Job::Nothing, 0), &[granted()]),
            ["Acquire", "Release"]
        );
        assert_eq!(
            names(slot(Job::Update, 0), &[info]),
            ["Acquire", "over false"]
        );
    }
}
