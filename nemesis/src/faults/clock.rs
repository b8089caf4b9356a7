//! Bends the clocks that processes read: jump, drift, strobe; wall, monotonic or both.
//!
//! Works by rewriting the vDSO of each process ([`crate::vdso`]). Proof: every process is made to
//! read its own clock, which must show what was asked for; where the service can tell its
//! server's time, that is asked too. Healing restores the original bytes.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::env::Env;
use crate::fault::{Fault, Fut, Handle, Installed, Order};
use crate::process::{Proc, ProcId, Stat};
use crate::receipt::{Kind, Reason, Receipt};
use crate::vdso::bend::{self, Bend, Bends};
use crate::vdso::patch::{self, Patched};
use crate::vdso::readback;

pub const ABOUT: &str = "bend the clocks that processes read: jump, drift, strobe";

/// A reading may be this far off what was asked for, nanoseconds.
const SLACK: i64 = 2_000_000;
const WAIT: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clock {
    clock: Which,
    /// Seconds added; negative goes back.
    jump_s: f64,
    /// Speed: 1.5 is half again as fast, 0.5 half as fast. 0 (absent) means 1.
    rate: f64,
    /// If given, the jump comes and goes each time this many milliseconds are over.
    strobe_ms: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Which {
    #[default]
    Wall,
    Monotonic,
    Both,
}

impl Clock {
    fn check(&self) -> Result<(), Reason> {
        let wrong = |text: &str| Err(Reason::new(text));
        if !(-1e9..=1e9).contains(&self.jump_s) {
            return wrong("jump_s is out of range: write seconds, at most 1e9 either way");
        }
        if self.rate != 0.0 && !(0.01..=1000.0).contains(&self.rate) {
            return wrong("rate is out of range: write 0.01 to 1000");
        }
        if self.strobe_ms != 0.0 && !(1.0..=1e7).contains(&self.strobe_ms) {
            return wrong("strobe_ms is out of range: write 1 to 1e7");
        }
        if self.strobe_ms != 0.0 && self.jump_s == 0.0 {
            return wrong("strobe_ms needs jump_s: how far the clock jumps");
        }
        if self.jump_s == 0.0 && (self.rate == 0.0 || self.rate == 1.0) {
            return wrong("nothing to do: give jump_s or rate");
        }
        Ok(())
    }

    fn bends(&self) -> Bends {
        let from = |since| Bend {
            offset: (self.jump_s * 1e9) as i64,
            since,
            rate: if self.rate == 0.0 {
                0
            } else {
                ((self.rate - 1.0) * 2f64.powi(32)) as i64
            },
            period: (self.strobe_ms * 1e6) as i64,
        };
        let mut bends = Bends::default();
        if self.clock != Which::Monotonic {
            bends.wall = from(bend::wall_now());
        }
        if self.clock != Which::Wall {
            bends.monotonic = from(bend::monotonic_now());
        }
        bends
    }
}

impl Fault for Clock {
    fn kind(&self) -> Kind {
        Kind::Clock
    }

    fn available(&self, _env: &dyn Env, _order: &Order, targets: &[Proc]) -> Result<(), Reason> {
        self.check()?;
        patch::supported()?;
        for p in targets {
            for pid in p.pids()? {
                if Stat::of(pid).is_some_and(|s| s.is_stopped()) {
                    let text = "is stopped: its clock cannot be read back before it continues";
                    return Err(Reason(format!("{} {text}", p.id)));
                }
            }
        }
        Ok(())
    }

    fn install<'a>(
        &'a self,
        env: &'a dyn Env,
        _order: &'a Order,
        targets: &'a [Proc],
    ) -> Fut<'a, Installed> {
        Box::pin(bend(env, targets, self.bends(), patch::install))
    }
}

type Install = fn(i32, &Bends) -> Result<Patched, Reason>;

async fn bend(env: &dyn Env, targets: &[Proc], bends: Bends, install: Install) -> Installed {
    let procs = targets.to_vec();
    let work = move || {
        let mut bent = Bent {
            procs,
            patched: Vec::new(),
            bends,
        };
        match bent.put_in(install) {
            Ok(evidence) => (bent, Ok(evidence)),
            Err(r) => (bent, Err(r)),
        }
    };
    // Tracing and stopping belong to one thread and block it.
    let Ok((bent, seen)) = tokio::task::spawn_blocking(work).await else {
        return Installed::nothing(Receipt::indeterminate(Reason::new(
            "the patching thread panicked",
        )));
    };
    let servers = server_offsets(env, targets).await;
    let receipt = match seen {
        Ok(evidence) => {
            let mut receipt = Receipt::installed();
            for (id, offset) in &servers {
                if !bent.agrees(*offset) {
                    let r = Reason(format!("the server {id} itself tells another time"));
                    receipt = Receipt::indeterminate(r);
                }
            }
            receipt.evidence(evidence)
        }
        Err(r) => Receipt::indeterminate(r),
    };
    let said: Map<String, Value> = servers
        .iter()
        .map(|(id, o)| (id.to_string(), json!(millis(*o))))
        .collect();
    let receipt = if said.is_empty() {
        receipt
    } else {
        receipt.proof("server_offset_ms", said)
    };
    if bent.patched.is_empty() {
        return Installed::nothing(receipt);
    }
    Installed::new(receipt, bent)
}

/// What the servers say through their own protocol, minus our clock, nanoseconds. Those that do
/// not tell are left out.
async fn server_offsets(env: &dyn Env, targets: &[Proc]) -> Vec<(ProcId, i64)> {
    let mut all = Vec::new();
    let Some(clock) = env.server_clock() else {
        return all;
    };
    for p in targets.iter().filter(|p| matches!(p.id, ProcId::Node(_))) {
        let before = bend::wall_now();
        if let Ok(Ok(t)) = tokio::time::timeout(WAIT, clock.server_time(p.id)).await {
            let ours = before + (bend::wall_now() - before) / 2;
            all.push((p.id, i64::try_from(t.as_nanos()).unwrap_or(i64::MAX) - ours));
        }
    }
    all
}

fn millis(nanos: i64) -> f64 {
    (nanos as f64 / 1e4).round() / 100.0
}

/// Processes whose clocks are bent.
struct Bent {
    procs: Vec<Proc>,
    patched: Vec<Patched>,
    bends: Bends,
}

impl Bent {
    fn put_in(&mut self, install: Install) -> Result<Map<String, Value>, Reason> {
        let mut evidence = Map::new();
        for p in self.procs.clone() {
            let mut seen = Map::new();
            for pid in p.pids()? {
                match self.put_into(pid, install) {
                    Ok(shown) => seen.insert(pid.to_string(), shown),
                    // A short-lived child that has ended meanwhile.
                    Err(_) if pid != p.root && Stat::of(pid).is_none_or(|s| !s.is_alive()) => None,
                    Err(r) => return Err(r),
                };
            }
            evidence.insert(p.id.to_string(), Value::Object(seen));
        }
        Ok(evidence)
    }

    fn put_into(&mut self, pid: i32, install: Install) -> Result<Value, Reason> {
        true_before(pid)?;
        self.patched.push(install(pid, &self.bends)?);
        self.shows(pid)
    }

    /// Reads the clocks of a process until they show that they are bent as asked.
    fn shows(&self, pid: i32) -> Result<Value, Reason> {
        let deadline = Instant::now() + WAIT;
        let asked = [self.bends.wall, self.bends.monotonic];
        // What each clock has been seen to be, surely: bent, true.
        let mut seen = [(false, false); 2];
        loop {
            let readings = read_both(pid)?;
            let mut fits = true;
            for ((bend, r), seen) in asked.iter().zip(&readings).zip(&mut seen) {
                let (bent, straight) = r.could_be(bend);
                fits &= bent || straight && (bend.is_nothing() || bend.period != 0);
                seen.0 |= bent && !straight;
                seen.1 |= straight && !bent;
            }
            // A strobe must be seen in both of its states.
            let enough = asked.iter().zip(&seen).all(|(bend, (bent, straight))| {
                bend.is_nothing() || *bent && (*straight || bend.period == 0)
            });
            let [wall, mono] = readings.map(|r| millis(r.read - r.before.midpoint(r.after)));
            if fits && enough {
                return Ok(json!({ "wall_ms": wall, "monotonic_ms": mono }));
            }
            if Instant::now() > deadline {
                let off = format!("wall {wall} ms, monotonic {mono} ms off");
                return Err(Reason(format!(
                    "process {pid} reads another time than asked: {off}"
                )));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether a server's own word agrees, roughly: a server may keep its time for a moment.
    fn agrees(&self, offset: i64) -> bool {
        let b = &self.bends.wall;
        let now = bend::wall_now();
        let asked = b.apply(now) - now;
        b.period != 0 || b.rate != 0 || (offset - asked).abs() < 1_000_000_000
    }

    /// Also takes the code out of processes that were forked meanwhile.
    fn take_out(&mut self) -> Result<Vec<i32>, Reason> {
        for p in &self.procs {
            for pid in p.pids().unwrap_or_default() {
                if self.patched.iter().any(|x| x.pid == pid) {
                    continue;
                }
                let parent = self.patched.iter().find(|x| x.is_in(pid));
                let child = parent.map(|x| x.in_child(pid));
                self.patched.extend(child);
            }
        }
        let mut failed = Ok(());
        let mut restored = Vec::new();
        self.patched.retain(|x| match x.restore() {
            Ok(()) => {
                restored.push(x.pid);
                false
            }
            Err(r) => {
                failed = Err(r);
                true
            }
        });
        failed.map(|()| restored)
    }

    fn heal_here(&mut self) -> Receipt {
        let restored = match self.take_out() {
            Ok(restored) => restored,
            Err(r) => return Receipt::indeterminate(r),
        };
        let mut seen = Map::new();
        for pid in restored {
            let Some(stat) = Stat::of(pid).filter(Stat::is_alive) else {
                continue;
            };
            let told = if stat.is_stopped() {
                // It cannot run; that its bytes are the original ones has been seen.
                json!({ "bytes_identical": true, "stopped": true })
            } else {
                if let Err(r) = true_before(pid) {
                    return Receipt::indeterminate(r);
                }
                json!({ "bytes_identical": true, "offset_ms": 0 })
            };
            seen.insert(pid.to_string(), told);
        }
        Receipt::healed().evidence(seen)
    }
}

/// One clock as the process read it, between two readings of our own; nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Reading {
    before: i64,
    read: i64,
    after: i64,
}

impl Reading {
    /// Whether it can be what the bend makes of a time in between, and whether it can be the true
    /// time. On a busy machine it can be both.
    fn could_be(&self, b: &Bend) -> (bool, bool) {
        // A strobe may change its state in between: then with its offset all along.
        let held = Bend { period: 0, ..*b };
        (
            self.within(held.apply(self.before), held.apply(self.after)),
            self.is_true(),
        )
    }

    fn is_true(&self) -> bool {
        self.within(self.before, self.after)
    }

    fn within(&self, x: i64, y: i64) -> bool {
        (x.min(y) - SLACK..=x.max(y) + SLACK).contains(&self.read)
    }
}

/// Wall and monotonic clock of a process.
fn read_both(pid: i32) -> Result<[Reading; 2], Reason> {
    let before = [bend::wall_now(), bend::monotonic_now()];
    let (wall, mono) = readback::clocks(pid)?;
    let after = [bend::wall_now(), bend::monotonic_now()];
    let of = |i: usize, read| Reading {
        before: before[i],
        read,
        after: after[i],
    };
    Ok([of(0, wall), of(1, mono)])
}

fn true_before(pid: i32) -> Result<(), Reason> {
    if read_both(pid)?.iter().all(Reading::is_true) {
        return Ok(());
    }
    Err(Reason(format!(
        "the clock of process {pid} is not ours to begin with or still bent"
    )))
}

impl Handle for Bent {
    fn heal<'a>(&'a mut self, _env: &'a dyn Env) -> Fut<'a, Receipt> {
        Box::pin(async move {
            let here = Bent {
                procs: std::mem::take(&mut self.procs),
                patched: std::mem::take(&mut self.patched),
                bends: self.bends,
            };
            let work = move || {
                let mut here = here;
                let receipt = here.heal_here();
                (here, receipt)
            };
            match tokio::task::spawn_blocking(work).await {
                Ok((mut here, receipt)) => {
                    self.procs = std::mem::take(&mut here.procs);
                    self.patched = std::mem::take(&mut here.patched);
                    receipt
                }
                Err(_) => Receipt::indeterminate(Reason::new("the patching thread panicked")),
            }
        })
    }
}

impl Drop for Bent {
    fn drop(&mut self) {
        if !self.patched.is_empty() {
            // Without a report there is nobody to tell; the code ends with the process anyway.
            let _ = self.take_out();
        }
    }
}

#[cfg(test)]
#[path = "clock_programs_tests.rs"]
mod program_tests;
#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
