//! From events to a report.

mod decide;
mod kinds;
mod stream;

use std::borrow::Borrow;
use std::cell::RefCell;
use std::time::Instant;

use fencepost_history::{Event, History, Record, Value};

use crate::kind::ModelKind;
use crate::model::Model;
use crate::ops::Timed;
use crate::options::{CheckError, Options, Outcome, Report, Spent};

/// Checks a history of events against a built-in model.
///
/// Events come in rising order of index and may be given one at a time: only
/// decoded operations are kept. `initial` is the value that a register, map,
/// queue or set starts from (null, or empty, by default).
///
/// ```
/// use fencepost_checker::{Options, Outcome, check_events};
///
/// let history = fencepost_history::read_bytes(*br#"
/// {"index":0,"time":0,"process":0,"type":"invoke","f":"acquire","value":{"owner":"a"}}
/// {"index":1,"time":1,"process":0,"type":"ok","f":"acquire","value":{"owner":"a","fence":1}}
/// {"index":2,"time":2,"process":1,"type":"invoke","f":"acquire","value":{"owner":"b"}}
/// {"index":3,"time":3,"process":1,"type":"ok","f":"acquire","value":{"owner":"b","fence":2}}
/// "#)?;
/// let report = check_events(&history.events, "fenced-mutex", None, &Options::default())?;
/// let Outcome::Violated(why) = report.outcome else { panic!("a was never released") };
/// assert_eq!(why.evidence, [0, 1, 2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When the history is malformed, the model is not known or does not fit, or
/// the engines disagree.
pub fn check_events<I>(
    events: I,
    model: &str,
    initial: Option<&Value>,
    options: &Options,
) -> Result<Report, CheckError>
where
    I: IntoIterator,
    I::Item: Borrow<Event>,
{
    let feed = |sink: &mut Sink| {
        let mut last = None;
        for e in events {
            let e: &Event = e.borrow();
            if last >= Some(e.index) {
                let what = "is not above the index before it: sort the events by index".to_string();
                return Err(CheckError::Malformed {
                    index: e.index,
                    line: None,
                    what,
                });
            }
            last = Some(e.index);
            sink(e, e.index)?;
        }
        Ok(())
    };
    run(Box::new(feed), model, initial, options, None)
}

/// As [`check_events`], from records, whose ranks may be equal: such events
/// count as concurrent.
///
/// # Errors
/// As [`check_events`].
pub fn check_records<I>(
    records: I,
    model: &str,
    initial: Option<&Value>,
    options: &Options,
) -> Result<Report, CheckError>
where
    I: IntoIterator<Item = Record>,
{
    let records = records.into_iter().map(|r| (r.event, r.rank, r.line));
    ranked(records, model, initial, options)
}

/// As [`check_records`], for a history in memory.
///
/// # Errors
/// As [`check_events`].
pub fn check_history(
    history: &History,
    model: &str,
    initial: Option<&Value>,
    options: &Options,
) -> Result<Report, CheckError> {
    let ranked_events = history.events.iter().enumerate().map(|(i, e)| {
        (
            e,
            history.rank(i),
            history.lines.get(i).copied().unwrap_or(0),
        )
    });
    ranked(ranked_events, model, initial, options)
}

/// Checks operations of one object against a model of the caller's own.
///
/// Operations may come in any order; each interval must be sane (`call < ret`)
/// and all stamps distinct.
pub fn check<M: Model>(history: &[Timed<M::Op>], model: &M, options: &Options) -> Outcome {
    let mut ops = history.to_vec();
    ops.sort_by_key(|o| o.call);
    if let Some(o) = ops.iter().find(|o| o.call >= o.ret) {
        let reason = format!(
            "malformed: an operation returns at {} and is called at {}",
            o.ret, o.call
        );
        return Outcome::Unknown(Spent {
            reason,
            ..Spent::default()
        });
    }
    let tell = kinds::Debugged;
    let task = decide::Task {
        model,
        ops: &ops,
        fast: None,
        tell: &tell,
        states: &tell,
        options,
        started: Instant::now(),
    };
    match task.decide() {
        Ok(d) => kinds::outcome(d.decision, &ops, None, &tell, &|s| s),
        // Only `both` can disagree, and there is no second engine here.
        Err((fast, search)) => Outcome::Unknown(Spent {
            reason: format!("engines disagree: {fast}, {search}"),
            ..Spent::default()
        }),
    }
}

type Sink<'a> = dyn FnMut(&Event, u64) -> Result<(), CheckError> + 'a;
/// Hands every event, with its stamp, to a sink.
type Feed<'a> = Box<dyn FnOnce(&mut Sink) -> Result<(), CheckError> + 'a>;

fn ranked<E: Borrow<Event>>(
    events: impl Iterator<Item = (E, u64, u64)>,
    model: &str,
    initial: Option<&Value>,
    options: &Options,
) -> Result<Report, CheckError> {
    let indexes = RefCell::new(Vec::new());
    let feed = |sink: &mut Sink| {
        let mut stamps = stream::Stamps::default();
        let mut noted = |e: &Event, stamp: u64| {
            stream::note(&mut indexes.borrow_mut(), stamp, e.index);
            sink(e, stamp)
        };
        let mut lines = stream::Lines::default();
        for (event, rank, line) in events {
            lines.push(event.borrow().index, rank, line);
            stamps
                .push(event, rank, &mut noted)
                .map_err(|e| lines.name(e))?;
        }
        stamps.flush(&mut noted).map_err(|e| lines.name(e))
    };
    run(Box::new(feed), model, initial, options, Some(&indexes))
}

fn run(
    feed: Feed,
    model: &str,
    initial: Option<&Value>,
    options: &Options,
    indexes: Option<&RefCell<Vec<u64>>>,
) -> Result<Report, CheckError> {
    let kind: ModelKind = model.parse()?;
    let started = Instant::now();
    let index = |stamp: u64| match indexes {
        Some(map) => stream::index(&map.borrow(), stamp),
        None => stamp,
    };
    let job = kinds::Job {
        name: model,
        options,
        started,
        index: &index,
    };
    let mut report = match job.run(kind, feed, initial.unwrap_or(&Value::Null)) {
        Err(CheckError::Late) => job.late(),
        other => other?,
    };
    report.millis = started.elapsed().as_secs_f64() * 1e3;
    Ok(report)
}
