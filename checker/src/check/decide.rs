//! One key: which engine answers, and what its answer says.

use std::time::Instant;

use crate::explain::tell::{Tell, TellState};
use crate::explain::window::Stuck;
use crate::explain::{Evidence, window};
use crate::fast::{Fast, Finding};
use crate::model::Model;
use crate::ops::Timed;
use crate::options::{Engine, Options, Spent};
use crate::search::{self, Bounds, Found, Stop};

/// A near-linear checker.
pub(crate) type FastFn<'a, O> = &'a (dyn Fn(&[Timed<O>]) -> Fast + Sync);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    Linearizable,
    Violated(Evidence),
    Unknown(Spent),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decided {
    pub decision: Decision,
    pub by: &'static str,
}

/// Engines gave different answers: fast's, search's.
pub(crate) type Disagreement = (String, String);

pub(crate) struct Task<'a, M: Model> {
    pub model: &'a M,
    pub ops: &'a [Timed<M::Op>],
    pub fast: Option<FastFn<'a, M::Op>>,
    pub tell: &'a dyn Tell<M::Op>,
    pub states: &'a dyn TellState<M::State>,
    pub options: &'a Options,
    pub started: Instant,
}

impl<M: Model> Task<'_, M> {
    pub fn decide(&self) -> Result<Decided, Disagreement> {
        let engine = self.options.engine;
        let fast = match (engine, self.fast) {
            (Engine::Search, _) => None,
            (_, Some(fast)) => Some(fast(self.ops)),
            (_, None) => Some(Fast::Declined("no near-linear checker for this model")),
        };
        let decided = |decision, by| Ok(Decided { decision, by });
        match (engine, fast) {
            (Engine::Auto | Engine::Fast, Some(Fast::Linearizable)) => {
                decided(Decision::Linearizable, "fast")
            }
            (Engine::Auto | Engine::Fast, Some(Fast::Violated(f))) => {
                decided(Decision::Violated(self.found(f)), "fast")
            }
            (Engine::Fast, Some(Fast::Declined(why))) => {
                let spent = Spent {
                    reason: format!("no near-linear answer: {why}"),
                    ..Spent::default()
                };
                decided(Decision::Unknown(spent), "fast")
            }
            (Engine::Both, Some(fast)) => self.both(fast),
            _ => decided(self.search(), "search"),
        }
    }

    fn both(&self, fast: Fast) -> Result<Decided, Disagreement> {
        let decided = |decision, by| Ok(Decided { decision, by });
        match (fast, self.search()) {
            (Fast::Declined(_), found) => decided(found, "search"),
            (Fast::Linearizable, Decision::Violated(e)) => {
                Err(("linearizable".into(), format!("violated ({})", e.summary)))
            }
            (Fast::Violated(f), Decision::Linearizable) => {
                Err((format!("violated ({})", f.summary), "linearizable".into()))
            }
            (Fast::Linearizable, Decision::Linearizable) => decided(Decision::Linearizable, "both"),
            (Fast::Linearizable, Decision::Unknown(_)) => decided(Decision::Linearizable, "fast"),
            (Fast::Violated(f), Decision::Violated(_)) => {
                decided(Decision::Violated(self.found(f)), "both")
            }
            (Fast::Violated(f), Decision::Unknown(_)) => {
                decided(Decision::Violated(self.found(f)), "fast")
            }
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds::new(self.options, self.started)
    }

    /// Evidence of a near-linear checker. A sweep that merely got stuck has no
    /// small evidence of its own; the search finds a window for it.
    fn found(&self, f: Finding) -> Evidence {
        let whole = f.class == "blocked-operation";
        if whole {
            let bounds = Bounds {
                max_states: 2_000_000,
                memory: 256 << 20,
                ..self.bounds()
            };
            if let Found::Stuck { ops, cut } =
                search::run(self.model, self.ops, &[self.model.initial()], bounds).found
            {
                return Evidence {
                    summary: f.summary,
                    ..self.window(&ops, cut)
                };
            }
        }
        Evidence {
            class: f.class,
            summary: f.summary,
            ops: f.ops,
            from: None,
            start: Vec::new(),
            cycle: f.cycle,
            stuck: None,
        }
    }

    fn window(&self, ops: &[usize], cut: Option<(u64, Vec<M::State>)>) -> Evidence {
        let found = Stuck { ops, cut };
        let deadline = self.bounds().deadline;
        window::evidence(
            self.model,
            self.ops,
            &found,
            deadline,
            self.tell,
            self.states,
        )
    }

    fn search(&self) -> Decision {
        let searched = search::run(self.model, self.ops, &[self.model.initial()], self.bounds());
        match searched.found {
            Found::Linearizable => Decision::Linearizable,
            Found::Stuck { ops, cut } => Decision::Violated(self.window(&ops, cut)),
            Found::Stopped { stop, prefix } => {
                let reason = match stop {
                    Stop::Time => "the time limit was reached",
                    Stop::Memory => "the memory limit was reached",
                    Stop::States => "the limit on states was reached",
                    Stop::Concurrency => "more than 4096 operations were pending at once",
                };
                Decision::Unknown(Spent {
                    reason: reason.into(),
                    states: searched.states,
                    millis: self.started.elapsed().as_millis() as u64,
                    bytes: searched.bytes,
                    key: None,
                    prefix: Some(prefix),
                })
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::explain::tell::Locks;
    use crate::models::lock::{Answer, LockCall, LockOp};
    use crate::models::locks::Counting;

    /// Two grants with no release between: more than one permit allows.
    pub(in super::super) fn two_grants() -> [Timed<LockOp>; 2] {
        [0, 2].map(|call| Timed {
            call,
            ret: call + 1,
            process: call,
            op: LockOp {
                fence: None,
                owner: 0,
                weight: 1,
                call: LockCall::Acquire,
                answer: Answer::Yes,
            },
        })
    }

    /// Two grants under an engine and a near-linear checker that says what it is told to.
    fn decide(engine: Engine, says: Fast) -> Result<Decided, Disagreement> {
        let options = Options {
            engine,
            ..Options::default()
        };
        Task {
            model: &Counting { permits: 1 },
            ops: &two_grants(),
            fast: Some(&|_: &[Timed<LockOp>]| says.clone()),
            tell: &Locks(vec![String::new()]),
            states: &Locks(Vec::new()),
            options: &options,
            started: Instant::now(),
        }
        .decide()
    }

    #[test]
    fn engines_that_disagree_are_an_error() {
        let (fast, search) = decide(Engine::Both, Fast::Linearizable).expect_err("they disagree");
        assert_eq!(fast, "linearizable");
        assert!(search.starts_with("violated"), "{search}");
        let alone = decide(Engine::Auto, Fast::Linearizable).map(|d| d.by);
        assert_eq!(alone, Ok("fast"));
        let agreed = decide(Engine::Both, Fast::violated("x", "two holds", vec![0, 1]));
        assert_eq!(agreed.map(|d| d.by), Ok("both"));
        let declined = decide(Engine::Both, Fast::Declined("why not"));
        assert_eq!(declined.map(|d| d.by), Ok("search"));
    }
}
