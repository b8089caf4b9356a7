//! Carries out what the schedule asks for, and reports each step to the core.

use std::sync::Arc;

use fencepost_nemesis::schedule::Action;
use fencepost_nemesis::{Env, Nemesis, Report};
use tokio::sync::{mpsc, oneshot};

use super::core::{Command, CoreHandle};

/// Works until no more actions can come, then heals whatever still holds.
pub async fn work(
    env: Arc<dyn Env>,
    core: CoreHandle,
    mut actions: mpsc::UnboundedReceiver<Action>,
) {
    let mut nemesis = Nemesis::new(env);
    while let Some(action) = actions.recv().await {
        match action {
            Action::Install { order } => match nemesis.prepare(order).await {
                Ok(prepared) => {
                    begun(&core, prepared.started().clone()).await;
                    let report = nemesis.install(prepared).await;
                    let holds = nemesis.heal_started(&report.id).is_some();
                    core.tell(Command::Report {
                        report: Box::new(report),
                        holds,
                        recorded: None,
                    });
                }
                Err(report) => core.tell(Command::Report {
                    report,
                    holds: false,
                    recorded: None,
                }),
            },
            Action::Heal { id, .. } => heal(&mut nemesis, &core, &id).await,
            Action::Go { .. } => {}
        }
    }
    for id in nemesis.holding() {
        nemesis.heal(&id).await;
    }
}

async fn heal(nemesis: &mut Nemesis, core: &CoreHandle, id: &str) {
    if let Some(started) = nemesis.heal_started(id).cloned() {
        begun(core, started).await;
    }
    match nemesis.heal(id).await {
        Some(report) => core.tell(Command::Report {
            report: Box::new(report),
            holds: false,
            recorded: None,
        }),
        None => core.tell(Command::NothingToHeal { id: id.into() }),
    }
}

/// Waits until the beginning of an action is in the history: it may not take effect before.
async fn begun(core: &CoreHandle, report: Report) {
    let (recorded, done) = oneshot::channel();
    core.tell(Command::Report {
        report: Box::new(report),
        holds: false,
        recorded: Some(recorded),
    });
    let _ = done.await;
}
