//! Generated operations as the events of a history.

use fencepost_history::{Event, EventType, Process, Value};

use crate::models::lock::{Answer, LockCall, LockOp};
use crate::models::register::{RegCall, RegOp, Took};
use crate::ops::{NEVER, Timed};

/// Events of one lock, in order; times are the stamps.
pub fn of_lock(ops: &[Timed<LockOp>]) -> impl Iterator<Item = Event> + '_ {
    events(ops, |op, answered| {
        let owner = ("owner".into(), Value::Int(op.owner.into()));
        let f = match op.call {
            LockCall::Acquire => "acquire",
            LockCall::Release => "release",
            LockCall::Held => "held",
        };
        let mut members = vec![owner];
        members.extend(
            op.fence
                .filter(|_| answered || op.call == LockCall::Release)
                .map(|n| ("fence".into(), Value::Int(n.into()))),
        );
        if op.call == LockCall::Acquire && op.weight != 1 {
            members.push(("weight".into(), Value::Int(op.weight.into())));
        }
        let yes = op.answer == Answer::Yes;
        if answered && op.call != LockCall::Acquire {
            members.push(("held".into(), Value::Bool(yes)));
        }
        let busy = answered && op.call == LockCall::Acquire && !yes;
        (f, Value::Map(members), busy.then_some("busy"))
    })
}

/// Events of one register, in order; times are the stamps.
pub fn of_register(ops: &[Timed<RegOp>]) -> impl Iterator<Item = Event> + '_ {
    events(ops, |op, answered| {
        let int = |v: u32| Value::Int(v.into());
        let failed = (answered && op.took == Took::No).then_some("stale-fence");
        match op.call {
            RegCall::Read if answered => ("read", int(op.a), None),
            RegCall::Read => ("read", Value::Null, None),
            RegCall::Write => ("write", int(op.a), failed),
            RegCall::Cas => ("cas", Value::List(vec![int(op.a), int(op.b)]), failed),
        }
    })
}

/// What an operation is called, its value and its error; of the answer, or of the call.
type Said = (&'static str, Value, Option<&'static str>);

fn events<'a, O>(
    ops: &'a [Timed<O>],
    say: impl Fn(&O, bool) -> Said + 'a,
) -> impl Iterator<Item = Event> + 'a {
    let mut at: Vec<(u64, u32)> = Vec::with_capacity(2 * ops.len());
    for (i, o) in ops.iter().enumerate() {
        at.extend([(o.call, i as u32), (o.ret, i as u32)]);
    }
    at.retain(|(stamp, _)| *stamp != NEVER);
    at.sort_unstable();
    at.into_iter().map(move |(stamp, i)| {
        let o = &ops[i as usize];
        let answered = o.ret == stamp;
        let (f, value, error) = say(&o.op, answered);
        let kind = match (answered, error) {
            (false, _) => EventType::Invoke,
            (true, None) => EventType::Ok,
            (true, Some(_)) => EventType::Fail,
        };
        Event {
            index: stamp,
            time: stamp as i64,
            process: Process::Client(o.process),
            kind,
            f: f.into(),
            key: None,
            value,
            error: error.map(Into::into),
        }
    })
}
