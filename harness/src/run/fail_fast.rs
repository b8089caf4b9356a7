//! `fail_fast`: the checks look on while a run goes on, and end it at the first violation that is certain and that
//! the scenario does not allow.
//!
//! On a thread of its own, so that the core never waits for a check. What only the whole history or the store's log
//! shows is left to the end.

use std::sync::mpsc::{Receiver, Sender, channel};

use fencepost_checker::judge::Live;
use fencepost_checker::judge::facts::Facts;
use fencepost_history::Event;

use super::core::{Command, CoreHandle};

/// Starts to judge; events go into the sender in the order of the history. Ends with it.
///
/// # Errors
/// When no thread can be started.
pub fn look_on(facts: &Facts, core: CoreHandle) -> std::io::Result<Sender<Event>> {
    let (to, events) = channel();
    let live = Live::new(facts);
    std::thread::Builder::new()
        .name("fail-fast".into())
        .spawn(move || judge(live, &events, &core))?;
    Ok(to)
}

fn judge(mut live: Live, events: &Receiver<Event>, core: &CoreHandle) {
    for event in events {
        // One event may settle several checks; an unexpected one is told first.
        if let Some(certain) = live.push(&event).filter(|c| c.is_unexpected()) {
            return core.tell(Command::Violated(certain.check));
        }
    }
}
