//! SIGSTOP every process of the targets; SIGCONT heals.
//!
//! Proof is `/proc/PID/task/*/stat`: every thread in state `T`, and none of them after healing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::env::Env;
use crate::fault::{Fault, Fut, Handle, Installed, Order};
use crate::process::{Members, Proc, Stat, thread_states};
use crate::receipt::{Kind, Reason, Receipt};

pub const ABOUT: &str = "stop processes (SIGSTOP) and continue them (SIGCONT)";

/// How long a stop or a continue may take to show; a thread in state `D` stops late.
const WAIT: Duration = Duration::from_secs(3);
/// A stop that does not show for so long is taken back for a moment: whoever called vfork waits in state `D` until its child
/// calls exec, which a child that was stopped just before it never does.
const ANEW: Duration = Duration::from_millis(50);

/// No parameters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {}

impl Fault for Pause {
    fn kind(&self) -> Kind {
        Kind::Pause
    }

    fn available(&self, _env: &dyn Env, _order: &Order, targets: &[Proc]) -> Result<(), Reason> {
        for p in targets {
            if !p.alive() {
                return Err(Reason::new(format!("{} does not run", p.id)));
            }
            if !stopped_pids(p)?.is_empty() {
                return Err(Reason::new(format!("{} is stopped already", p.id)));
            }
        }
        Ok(())
    }

    fn install<'a>(
        &'a self,
        _env: &'a dyn Env,
        _order: &'a Order,
        targets: &'a [Proc],
    ) -> Fut<'a, Installed> {
        Box::pin(stop(targets, send))
    }
}

type Send = fn(i32, Signal);

/// A process that died meanwhile needs no signal: what counts is read back afterwards.
fn send(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

async fn stop(targets: &[Proc], send: Send) -> Installed {
    let mut stopped = Stopped {
        procs: targets.to_vec(),
        pids: BTreeMap::new(),
        send,
    };
    let deadline = Instant::now() + WAIT;
    let (mut anew, mut moment) = (Instant::now() + ANEW, Duration::from_millis(1));
    loop {
        let mut evidence = Map::new();
        let mut running = None;
        for p in targets {
            if let Members::Group(pgid) = p.members {
                send(-pgid, Signal::SIGSTOP);
            }
            let pids = match p.pids() {
                Ok(pids) if pids.is_empty() => {
                    let gone = Reason::new(format!("{} exited before it could be stopped", p.id));
                    return Installed::new(Receipt::indeterminate(gone), stopped);
                }
                Ok(pids) => pids,
                Err(e) => return Installed::new(Receipt::indeterminate(e), stopped),
            };
            for pid in pids {
                // Noted before the signal, so that a drop at any moment continues it.
                if let Some(s) = Stat::of(pid) {
                    stopped.pids.insert(pid, s.start);
                }
                send(pid, Signal::SIGSTOP);
            }
            let (all, seen) = states(p, 'T');
            evidence.insert(p.id.to_string(), seen);
            if !all {
                running = Some(p.id);
            }
        }
        match running {
            None => return Installed::new(Receipt::installed().evidence(evidence), stopped),
            Some(id) if Instant::now() >= deadline => {
                let r = Reason::new(format!("{id} has threads that are not in state T"));
                return Installed::new(Receipt::indeterminate(r).evidence(evidence), stopped);
            }
            Some(_) if Instant::now() >= anew => {
                stopped.signal();
                tokio::time::sleep(moment).await;
                (anew, moment) = (Instant::now() + ANEW, 2 * moment);
            }
            Some(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// States of every thread of `p`: whether all are `want` (and there is one), and
/// `{"pid": "TTT"}` as evidence.
fn states(p: &Proc, want: char) -> (bool, Value) {
    let mut all = true;
    let mut seen = Map::new();
    for pid in p.pids().unwrap_or_default() {
        let states: String = thread_states(pid).into_iter().map(|(_, s)| s).collect();
        all &= !states.is_empty() && states.chars().all(|s| s == want);
        seen.insert(pid.to_string(), json!(states));
    }
    (all && !seen.is_empty(), Value::Object(seen))
}

fn stopped_pids(p: &Proc) -> Result<Vec<i32>, Reason> {
    let stopped = |pid: &i32| thread_states(*pid).iter().any(|(_, s)| *s == 'T');
    Ok(p.pids()?.into_iter().filter(stopped).collect())
}

/// Holds processes stopped.
struct Stopped {
    procs: Vec<Proc>,
    /// Pids that we stopped, each with its start time, so that a reused pid is left alone.
    pids: BTreeMap<i32, u64>,
    send: Send,
}

impl Stopped {
    fn signal(&self) {
        for (pid, start) in &self.pids {
            if Stat::of(*pid).is_some_and(|s| s.start == *start) {
                (self.send)(*pid, Signal::SIGCONT);
            }
        }
        // Forked between our listing and the stop of the group.
        for pid in self
            .procs
            .iter()
            .flat_map(|p| stopped_pids(p).unwrap_or_default())
        {
            (self.send)(pid, Signal::SIGCONT);
        }
    }

    fn still(&self) -> Vec<i32> {
        let ours = self.pids.iter().filter(|(pid, start)| {
            Stat::of(**pid).is_some_and(|s| s.start == **start)
                && thread_states(**pid).iter().any(|(_, s)| *s == 'T')
        });
        ours.map(|(pid, _)| *pid).collect()
    }
}

impl Handle for Stopped {
    fn heal<'a>(&'a mut self, _env: &'a dyn Env) -> Fut<'a, Receipt> {
        Box::pin(async move {
            let deadline = Instant::now() + WAIT;
            loop {
                self.signal();
                let still = self.still();
                if still.is_empty() {
                    self.pids.clear();
                    let receipt = Receipt::healed();
                    let seen = self
                        .procs
                        .iter()
                        .map(|p| (p.id.to_string(), states(p, 'T').1));
                    return receipt.evidence(seen.collect());
                }
                if Instant::now() >= deadline {
                    let r = Reason::new("still in state T after SIGCONT");
                    return Receipt::indeterminate(r).proof("pids", still);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if !self.pids.is_empty() {
            self.signal();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::process::ProcId;
    use crate::receipt::Status;
    use crate::testing::{Started, TestEnv, block_on, order};

    const W: ProcId = ProcId::Worker(0);

    fn is_stopped(pid: i32) -> bool {
        Stat::of(pid).unwrap().is_stopped()
    }

    /// A shell with two children, once they run.
    fn family() -> (Started, Proc) {
        let s = Started::shell("sleep 600 & sleep 600 & wait");
        let p = s.proc(W);
        let until = Instant::now() + WAIT;
        while p.pids().unwrap().len() < 3 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        (s, p)
    }

    #[test]
    fn stops_every_process_and_continues_them() {
        let (_s, mut p) = family();
        for members in [p.members.clone(), Members::Tree] {
            p.members = members;
            let env = TestEnv::of([p.clone()]);
            let o = order("pause", "worker:0", serde_json::json!({}));
            let mut done = block_on(Pause {}.install(&env, &o, std::slice::from_ref(&p)));
            assert_eq!(done.receipt.status, Status::Installed, "{:?}", done.receipt);
            let pids = p.pids().unwrap();
            assert_eq!(pids.len(), 3);
            assert!(pids.iter().all(|p| is_stopped(*p)));
            assert!(
                Pause {}
                    .available(&env, &o, std::slice::from_ref(&p))
                    .is_err(),
                "stopped already"
            );
            let healed = block_on(done.handle.as_mut().unwrap().heal(&env));
            assert_eq!(healed.status, Status::Healed);
            assert!(!pids.iter().any(|p| is_stopped(*p)));
        }
    }

    /// On a busy machine a shell is often stopped between vfork and its child's exec.
    #[test]
    fn who_waits_for_a_stopped_child_is_stopped_as_well() {
        let busy = Arc::new(AtomicBool::new(true));
        let spinning: Vec<_> = (0..8)
            .map(|_| {
                let busy = Arc::clone(&busy);
                std::thread::spawn(move || while busy.load(Ordering::Relaxed) {})
            })
            .collect();
        let stops: Vec<Receipt> = (0..20)
            .map(|_| {
                let s = Started::shell("sleep 600");
                block_on(stop(&[s.proc(W)], send)).receipt
            })
            .collect();
        busy.store(false, Ordering::Relaxed);
        spinning.into_iter().for_each(|one| one.join().unwrap());
        for receipt in stops {
            assert_eq!(receipt.status, Status::Installed, "{receipt:?}");
        }
    }

    #[test]
    fn dropping_continues() {
        let (_s, p) = family();
        let env = TestEnv::of([p.clone()]);
        let o = order("pause", "worker:0", serde_json::json!({}));
        drop(block_on(Pause {}.install(
            &env,
            &o,
            std::slice::from_ref(&p),
        )));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!p.pids().unwrap().iter().any(|p| is_stopped(*p)));
    }

    #[test]
    fn a_stop_that_never_arrives_is_not_called_installed() {
        let (_s, p) = family();
        let done = block_on(stop(std::slice::from_ref(&p), |_, _| {}));
        assert_eq!(done.receipt.status, Status::Indeterminate);
    }

    #[test]
    fn a_continue_that_never_arrives_is_not_called_healed() {
        fn deaf(pid: i32, signal: Signal) {
            if signal == Signal::SIGSTOP {
                send(pid, signal);
            }
        }
        let (_s, p) = family();
        let env = TestEnv::of([p.clone()]);
        let mut done = block_on(stop(std::slice::from_ref(&p), deaf));
        assert_eq!(done.receipt.status, Status::Installed);
        let healed = block_on(done.handle.as_mut().unwrap().heal(&env));
        assert_eq!(healed.status, Status::Indeterminate);
    }

    #[test]
    fn a_process_that_is_gone_is_no_pause() {
        let (s, p) = family();
        drop(s);
        let env = TestEnv::of([p.clone()]);
        let o = order("pause", "worker:0", serde_json::json!({}));
        assert!(
            Pause {}
                .available(&env, &o, std::slice::from_ref(&p))
                .is_err()
        );
        let done = block_on(stop(&[p], send));
        assert_eq!(done.receipt.status, Status::Indeterminate);
    }

    #[test]
    fn killed_while_paused_heals() {
        let (s, p) = family();
        let env = TestEnv::of([p.clone()]);
        let mut done = block_on(stop(&[p], send));
        drop(s);
        let healed = block_on(done.handle.as_mut().unwrap().heal(&env));
        assert_eq!(healed.status, Status::Healed);
    }
}
