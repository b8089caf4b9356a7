//! Registers: plain, compare-and-set, fenced; and how events spell their operations.

use fencepost_history::{Event, EventType, Value};

use super::values::Values;
use crate::model::Model;
use crate::ops::Timed;
use crate::pair::Family;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegCall {
    Read,
    Write,
    Cas,
}

/// Whether the operation had its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Took {
    Yes,
    /// Mismatch of a compare-and-set; a fence that was too low.
    No,
    Unknown,
}

/// One operation on a register; values are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegOp {
    pub fence: u64,
    /// Value read or written, or expected by a compare-and-set.
    pub a: u32,
    /// New value of a compare-and-set.
    pub b: u32,
    pub call: RegCall,
    pub took: Took,
}

/// Register with read, write and compare-and-set.
pub struct Register {
    pub initial: u32,
}

impl Model for Register {
    type Op = RegOp;
    type State = u32;

    fn initial(&self) -> u32 {
        self.initial
    }

    fn step(&self, value: &u32, op: &RegOp) -> Option<u32> {
        match (op.call, op.took) {
            (RegCall::Read, Took::Unknown) => Some(*value),
            (RegCall::Read, _) => (*value == op.a).then_some(*value),
            (RegCall::Write, _) => Some(op.a),
            (RegCall::Cas, Took::Yes) => (*value == op.a).then_some(op.b),
            (RegCall::Cas, Took::No) => (*value != op.a).then_some(*value),
            (RegCall::Cas, Took::Unknown) => Some(if *value == op.a { op.b } else { *value }),
        }
    }

    fn is_read(&self, op: &RegOp) -> bool {
        op.call == RegCall::Read || op.took == Took::No
    }

    fn overwrites(&self, op: &RegOp) -> bool {
        op.call == RegCall::Write
    }
}

/// Register that rejects a write whose fence is below the highest accepted one.
/// `raise`: a read carries a fence too, and is judged and counted in the same way.
pub struct FencedRegister {
    pub initial: u32,
    pub raise: bool,
}

impl Model for FencedRegister {
    type Op = RegOp;
    /// Value, and highest accepted fence.
    type State = (u32, u64);

    fn initial(&self) -> (u32, u64) {
        (self.initial, 0)
    }

    fn step(&self, s: &(u32, u64), op: &RegOp) -> Option<(u32, u64)> {
        let fits = op.fence >= s.1;
        let read = op.call == RegCall::Read;
        match op.took {
            Took::No => (!fits).then_some(*s),
            Took::Unknown if read && !self.raise => Some(*s),
            Took::Unknown => Some(if fits {
                (if read { s.0 } else { op.a }, op.fence)
            } else {
                *s
            }),
            Took::Yes if read && !self.raise => (s.0 == op.a).then_some(*s),
            Took::Yes if read => (fits && s.0 == op.a).then_some((s.0, op.fence)),
            Took::Yes => fits.then_some((op.a, op.fence)),
        }
    }

    fn is_read(&self, op: &RegOp) -> bool {
        op.took == Took::No || op.call == RegCall::Read && !self.raise
    }
}

/// What a register model looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegView {
    pub cas: bool,
    pub fences: bool,
    pub raise: bool,
}

/// Decodes read, write and cas.
pub(crate) struct RegFamily {
    view: RegView,
    pub values: Values,
    pub initial: u32,
    null_reads: u64,
    /// Some read or write failed without a reason.
    other_fails: bool,
    null_written: bool,
}

impl RegFamily {
    pub fn new(view: RegView, initial: &Value) -> Self {
        let mut values = Values::default();
        let initial = values.intern(initial);
        RegFamily {
            view,
            values,
            initial,
            null_reads: 0,
            other_fails: false,
            null_written: false,
        }
    }

    /// Number of null, if reads answered it although it is no value of this
    /// register: they say nothing, as in Knossos.
    fn null_says_nothing(&mut self) -> Option<u32> {
        let null = self.values.intern(&Value::Null);
        (self.null_reads > 0 && !self.null_written && self.initial != null).then_some(null)
    }

    /// Drops answers that say nothing here, with a note on each kind.
    ///
    /// A compare-and-set that failed without a reason is a mismatch, unless
    /// reads or writes fail in that way too: those cannot mismatch, so there
    /// `fail` says no more than that nothing happened.
    pub fn drop_empty_answers(&mut self, ops: &mut Vec<Timed<RegOp>>, notes: &mut Vec<String>) {
        let null = self.null_says_nothing();
        let vague = self.other_fails || null.is_some();
        let before = ops.len();
        ops.retain(|o| {
            let read = o.op.call == RegCall::Read && o.op.took == Took::Yes && Some(o.op.a) == null;
            let cas =
                vague && o.op.call == RegCall::Cas && o.op.took == Took::No && o.op.fence == 0;
            !read && !cas
        });
        for o in ops.iter_mut().filter(|o| o.op.call == RegCall::Cas) {
            o.op.fence = 0;
        }
        if ops.len() < before {
            let what = "answers say nothing: null reads where no write wrote null, failures without a reason";
            notes.push(format!("{} {what}", before - ops.len()));
        }
    }

    fn fence(&self, value: &Value) -> Result<u64, String> {
        match value.get("fence") {
            None | Some(Value::Null) => Ok(0),
            Some(f) => f
                .as_u64()
                .ok_or_else(|| "fence is not an unsigned 64-bit number".to_string()),
        }
    }
}

/// `{"value":v}` or plain `v`.
fn plain(value: &Value) -> &Value {
    value.get("value").unwrap_or(value)
}

impl Family for RegFamily {
    type Op = RegOp;

    fn invoke(&mut self, event: &Event, _: u64) -> Result<Option<RegOp>, String> {
        let mut op = RegOp {
            fence: 0,
            a: 0,
            b: 0,
            call: RegCall::Read,
            took: Took::Unknown,
        };
        match &*event.f {
            "read" => {}
            "write" => {
                op.call = RegCall::Write;
                let v = plain(&event.value);
                self.null_written |= *v == Value::Null;
                op.a = self.values.intern(v);
            }
            "cas" if self.view.cas => {
                let Value::List(l) = plain(&event.value) else {
                    return Err("cas needs a list of two values: [expected, new]".into());
                };
                let [old, new] = l.as_slice() else {
                    return Err("cas needs a list of two values: [expected, new]".into());
                };
                op.call = RegCall::Cas;
                self.null_written |= *new == Value::Null;
                (op.a, op.b) = (self.values.intern(old), self.values.intern(new));
            }
            _ => return Ok(None),
        }
        if self.view.fences && (op.call == RegCall::Write || self.view.raise) {
            op.fence = self.fence(&event.value)?;
        }
        Ok(Some(op))
    }

    fn complete(&mut self, op: &mut RegOp, event: &Event) -> Result<bool, String> {
        let stale = event
            .error
            .as_deref()
            .is_some_and(|e| e.trim_start_matches(':') == "stale-fence");
        match (event.kind, op.call) {
            (EventType::Info, _) => {}
            (EventType::Ok, RegCall::Read) => {
                op.took = Took::Yes;
                let v = plain(&event.value);
                op.a = self.values.intern(v);
                if *v == Value::Null {
                    self.null_reads += 1;
                }
            }
            (EventType::Ok, _) => op.took = Took::Yes,
            (_, RegCall::Cas) => {
                op.took = Took::No;
                let told = event.error.as_deref();
                op.fence = u64::from(told.is_some_and(|e| e.contains("mismatch")));
                return Ok(told.is_none() || op.fence == 1);
            }
            _ => {
                op.took = Took::No;
                self.other_fails |= event.error.is_none();
                return Ok(self.view.fences
                    && stale
                    && (op.call == RegCall::Write || self.view.raise));
            }
        }
        Ok(true)
    }

    fn keep_unknown(&self, op: &RegOp) -> bool {
        op.call != RegCall::Read || self.view.raise
    }
}
