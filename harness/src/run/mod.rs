//! One run, from a scenario to a verdict.
//!
//! [`run`] sets up nodes, store and workers ([`setup`]), lets the [`core`] drive the load while
//! [`nemesis`] acts on its behalf, and then reads the final state, stops everything and judges
//! ([`finish`]). Whatever goes wrong on the way, what was recorded is kept and judged.

pub mod core;
pub mod crew;
mod env;
mod events;
mod fail_fast;
pub use events::from_json;
mod finish;
pub mod fits;
mod nemesis;
mod reach;
mod setup;
mod signals;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fencepost_checker::exit;
use fencepost_checker::verdict::VerdictFile;
use fencepost_nemesis::schedule::Scheduler;
use tokio::sync::mpsc;

use crate::host::{HostError, HostKind};
use crate::record::{FolderError, RecordError, Status};
use crate::scenario::{self, Scenario};
use crate::system::SystemError;
use core::{Command, CoreHandle, Ending, Notice, Progress};
use setup::Stage;

/// What a run is asked to do.
#[derive(Clone, Debug)]
pub struct Options {
    pub scenario: Scenario,
    pub seed: u64,
    /// The run folder itself; a new one below `runs/` when none is named.
    pub out: Option<PathBuf>,
    /// Command line of the workers; our own when none is given.
    pub worker: Option<String>,
    /// Image for the system's nodes, instead of the one that its recipe names.
    pub image: Option<String>,
    /// A `schedule.jsonl` to follow instead of the scenario's faults.
    pub replay: Option<PathBuf>,
    /// The command that repeats this run.
    pub command: Vec<String>,
    /// What is not demanded of this service, and why.
    pub undemanded: Vec<String>,
}

/// What a run came to.
pub struct Report {
    pub dir: PathBuf,
    pub verdict: VerdictFile,
    pub figures: core::Figures,
    pub target_rate: f64,
    /// What went wrong beside the verdict: a report that could not be written.
    pub warnings: Vec<String>,
    pub undemanded: Vec<String>,
    pub failure: Option<String>,
}

/// Why a run did not begin, or could not be judged.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    System(#[from] SystemError),
    #[error(transparent)]
    Host(#[from] HostError),
    /// The scenario asks for something that this system or store does not have.
    #[error("{0}")]
    Unfit(String),
    #[error("{what}: {cause}")]
    Io { what: String, cause: std::io::Error },
    #[error("{0}")]
    Setup(String),
    #[error("interrupted before the load began")]
    Interrupted,
    #[error("{dir} cannot be judged: {cause}")]
    Judge { dir: String, cause: String },
}

impl RunError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> RunError {
        let what = what.into();
        move |cause| RunError::Io { what, cause }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            RunError::Interrupted => exit::INTERRUPTED,
            _ if self.is_usage() => exit::USAGE,
            _ => exit::HARNESS,
        }
    }

    /// Whether the command line or the scenario is to blame.
    fn is_usage(&self) -> bool {
        matches!(
            self,
            RunError::Unfit(_) | RunError::Folder(FolderError::Taken { .. })
        ) || matches!(
            self,
            RunError::System(SystemError::Unknown { .. } | SystemError::Params { .. })
        )
    }
}

/// Longest time from the first worker's start to the last `init` answered.
const GREETING: Duration = Duration::from_secs(20);

/// Carries a scenario out and judges it.
///
/// # Errors
/// When the run did not get as far as its load, or its folder cannot be judged. Everything that
/// was started is stopped in any case.
pub async fn run(options: Options, progress: Arc<Progress>) -> Result<Report, RunError> {
    let mut stage = Stage::open(&options).await?;
    let mut signals = signals::listen();
    let raised = tokio::select! {
        raised = stage.raise(&options, progress.clone()) => raised,
        Some(()) = signals.recv() => Err(RunError::Interrupted),
    };
    let result = match raised {
        Ok(()) => drive(&mut stage, &options, progress, signals).await,
        Err(e) => Err(e),
    };
    let ending = match result {
        Ok(ending) => ending,
        Err(e) => {
            stage.file.failure = Some(e.to_string());
            stage.close(Status::Failed).await;
            return Err(e);
        }
    };
    finish::finish(stage, ending, &options).await
}

/// The part between the first worker's start and the last one's end.
async fn drive(
    stage: &mut Stage,
    options: &Options,
    progress: Arc<Progress>,
    signals: mpsc::UnboundedReceiver<()>,
) -> Result<Ending, RunError> {
    let scheduler = scheduler(options, stage)?;
    let mut wiring = stage.core(options, scheduler, progress)?;
    let handle = wiring.handle.clone();
    if options.scenario.fail_fast {
        wiring.core.show_to(stage.onlooker(handle.clone())?);
    }
    let crew = stage.crew(options)?;
    let thread = std::thread::Builder::new()
        .name("core".into())
        .spawn(move || wiring.core.run())
        .map_err(RunError::io("starting the core's thread"))?;
    for worker in 0..options.scenario.workers as usize {
        if let Err(e) = crew.start(worker, &handle).await {
            handle.tell(Command::Fail(e));
            break;
        }
    }
    let env = stage.env(options, crew, handle.clone());
    let (actions, queue) = mpsc::unbounded_channel();
    let nemesis = tokio::spawn(nemesis::work(env.clone(), handle.clone(), queue));
    let watch = tokio::spawn(watch::nodes(env, handle.clone()));
    let interrupts = tokio::spawn(signals::forward(signals, handle.clone()));
    conduct(wiring.notices, &handle, actions).await;
    let ending = tokio::task::spawn_blocking(move || thread.join()).await;
    watch.abort();
    interrupts.abort();
    // Ends by itself once no more actions can come; faults that still hold are healed there.
    let _ = nemesis.await;
    match ending {
        Ok(Ok(ending)) => Ok(ending),
        _ => Err(RunError::Setup(
            "the controller's core panicked; please report it".into(),
        )),
    }
}

fn scheduler(options: &Options, stage: &Stage) -> Result<Scheduler, RunError> {
    let s = &options.scenario;
    let Some(path) = &options.replay else {
        return Scheduler::new(stage.possible(&s.faults)?, options.seed, s.ttl())
            .map_err(|e| RunError::Unfit(e.to_string()));
    };
    let text = std::fs::read_to_string(path).map_err(RunError::io(path.display().to_string()))?;
    let lines = fencepost_nemesis::schedule::read_lines(&text);
    let unfit = |e: &dyn std::fmt::Display| RunError::Unfit(format!("{}: {e}", path.display()));
    let lines = lines.map_err(|e| unfit(&e))?;
    Scheduler::replay(&lines).map_err(|e| unfit(&e))
}

/// Passes on what the core says, until it has ended.
async fn conduct(
    mut notices: mpsc::UnboundedReceiver<Notice>,
    core: &CoreHandle,
    actions: mpsc::UnboundedSender<fencepost_nemesis::schedule::Action>,
) {
    let greeted = tokio::time::sleep(GREETING);
    tokio::pin!(greeted);
    let mut ready = false;
    loop {
        tokio::select! {
            notice = notices.recv() => match notice {
                Some(Notice::Ready) => {
                    ready = true;
                    core.tell(Command::Load);
                }
                Some(Notice::Act(action)) => drop(actions.send(action)),
                None => return,
            },
            () = &mut greeted, if !ready => {
                ready = true;
                let why = format!("a worker did not answer `init` within {} s; see logs/", GREETING.as_secs());
                core.tell(Command::Fail(why));
            }
        }
    }
}

/// The host's own word for a scenario's host.
fn host_kind(kind: scenario::HostKind) -> HostKind {
    match kind {
        scenario::HostKind::Local => HostKind::Local,
        scenario::HostKind::Docker => HostKind::Docker,
    }
}
