//! Starting workers, and starting them again after a fault killed them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use fencepost_nemesis::{Proc, ProcId};
use fencepost_workloads::protocol::Init;

use super::core::{Command, CoreHandle};
use super::env::proc_of;
use crate::host::{Host, Process, ProcessSpec, Unit, UnitId};
use crate::worker::Link;

/// What a worker's process is made from.
#[derive(Clone, Debug)]
pub struct Program {
    pub program: PathBuf,
    pub args: Vec<String>,
}

pub struct Crew {
    host: Arc<dyn Host>,
    program: Program,
    /// `worker` is filled in for each.
    init: Init,
    units: Mutex<Vec<Option<Arc<Unit>>>>,
}

impl Crew {
    pub fn new(host: Arc<dyn Host>, program: Program, init: Init, workers: usize) -> Self {
        Crew {
            host,
            program,
            init,
            units: Mutex::new(vec![None; workers]),
        }
    }

    /// Every worker that runs.
    pub fn procs(&self) -> impl Iterator<Item = Proc> + use<> {
        let units = self
            .units
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        units
            .into_iter()
            .enumerate()
            .filter_map(|(n, unit)| proc_of(ProcId::Worker(u32::try_from(n).ok()?), &*unit?, None))
    }

    /// Starts a worker and hands its pipes to the core.
    ///
    /// # Errors
    /// When the host cannot start it.
    pub async fn start(&self, worker: usize, core: &CoreHandle) -> Result<(), String> {
        let spec = ProcessSpec {
            id: UnitId::Worker(worker),
            program: self.program.program.clone(),
            args: self.program.args.clone(),
            env: BTreeMap::new(),
        };
        let Process {
            unit,
            stdin,
            stdout,
            mut exit,
        } = self
            .host
            .start_process(spec)
            .await
            .map_err(|e| e.to_string())?;
        let pipes = stdin
            .into_owned_fd()
            .and_then(|i| Ok((i, stdout.into_owned_fd()?)));
        let link = pipes
            .and_then(|(i, o)| Link::new(i, o))
            .map_err(|e| format!("worker:{worker}: {e}"))?;
        if let Some(place) = self
            .units
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_mut(worker)
        {
            *place = Some(unit);
        }
        let mut init = self.init.clone();
        init.worker = u32::try_from(worker).unwrap_or(u32::MAX);
        init.seed = self.init.seed.wrapping_add(worker as u64);
        core.tell(Command::Attach {
            worker,
            link,
            init: Box::new(init),
        });
        let core = core.clone();
        tokio::spawn(async move {
            let how = match exit.wait_for(Option::is_some).await {
                Ok(status) => status.map_or_else(String::new, |s| s.to_string()),
                Err(_) => "nobody watches it any more".into(),
            };
            core.tell(Command::Exited { worker, how });
        });
        Ok(())
    }
}

/// Splits a command line at blanks; quotes, single or double, keep blanks together.
pub fn words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut quote, mut open) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => (quote, open) = (Some(c), true),
            (None, c) if c.is_whitespace() => {
                if open || !word.is_empty() {
                    all.push(std::mem::take(&mut word));
                }
                open = false;
            }
            (_, c) => word.push(c),
        }
    }
    if open || !word.is_empty() {
        all.push(word);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_split_at_blanks_outside_quotes() {
        assert_eq!(words("python3  a.py --x"), ["python3", "a.py", "--x"]);
        assert_eq!(
            words(r#"sh -c 'a "b" c' """#),
            ["sh", "-c", "a \"b\" c", ""]
        );
        assert!(words("  ").is_empty());
    }
}
