//! A line that moves while a run goes on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::run::core::Progress;
use crate::scenario::{Scenario, longest};

const PHASES: [&str; 7] = [
    "starting",
    "under load",
    "healing",
    "calm after the faults",
    "ending operations",
    "stopping workers",
    "judging",
];

pub struct Bar {
    task: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// Shows the run's progress on standard error, when that is a terminal.
pub fn start(s: &Scenario, progress: Arc<Progress>, quiet: bool) -> Bar {
    if quiet {
        return Bar { task: None };
    }
    let ttl = s.ttl();
    let length = longest(&s.load.duration, ttl) + longest(&s.load.calm, ttl);
    let bar = ProgressBar::new(length.as_millis() as u64);
    let style = ProgressStyle::with_template("{spinner} {prefix} [{bar:30}] {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar.set_prefix(format!("{} on {}", s.name, s.system));
    let (stop, mut stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        let mut each = tokio::time::interval(Duration::from_millis(100));
        loop {
            tokio::select! {
                _ = each.tick() => {}
                _ = &mut stopped => break,
            }
            let phase = PHASES
                .get(progress.phase.load(Ordering::Relaxed) as usize)
                .unwrap_or(&"");
            bar.set_position(
                progress
                    .elapsed_ms
                    .load(Ordering::Relaxed)
                    .min(length.as_millis() as u64),
            );
            let note = progress.note.lock().map(|n| n.clone()).unwrap_or_default();
            let note = if note.is_empty() {
                note
            } else {
                format!("; {note}")
            };
            let cycles = progress.cycles.load(Ordering::Relaxed);
            bar.set_message(format!("{phase}: {cycles} lock cycles{note}"));
        }
        bar.finish_and_clear();
    });
    Bar {
        task: Some((stop, task)),
    }
}

impl Bar {
    pub async fn stop(self) {
        if let Some((stop, task)) = self.task {
            let _ = stop.send(());
            let _ = task.await;
        }
    }
}
