//! A node's program inside its container.

use std::{fs::File, io::Write, path::PathBuf, time::Duration};

use bollard::{
    Docker,
    container::LogOutput,
    exec::{CreateExecOptions, StartExecResults},
    models::ExecInspectResponse,
};
use futures_util::{Stream, StreamExt};
use nix::sys::signal::Signal;

use super::docker_error;
use crate::host::{HostError, NodeSpec, RunAs, UnitId, proc, spawn::RUN_VAR};

pub(super) struct Exec<'a> {
    pub engine: &'a Docker,
    pub container: &'a str,
    pub run_id: &'a str,
    pub spec: &'a NodeSpec,
    pub log: PathBuf,
}

impl Exec<'_> {
    /// Runs a program to its end.
    pub async fn to_end(
        &self,
        id: UnitId,
        program: &str,
        args: &[String],
    ) -> Result<(), HostError> {
        let exec = self.create(program, args).await?;
        let output = self.attach(&exec).await?;
        drain(output, open(&self.log)?).await;
        match self.inspect(&exec).await?.exit_code {
            Some(0) => Ok(()),
            code => Err(HostError::Start {
                id,
                reason: format!(
                    "{program} ended with {}; see {}",
                    code.map_or("no status".into(), |c| c.to_string()),
                    self.log.display()
                ),
            }),
        }
    }

    /// Starts the node's program. Answers its pid as this machine sees it, and what the engine calls this.
    pub async fn start(&self, id: UnitId) -> Result<(i32, String), HostError> {
        let exec = self.create(&self.spec.program, &self.spec.args).await?;
        let output = self.attach(&exec).await?;
        tokio::spawn(drain(output, open(&self.log)?));
        let failed = |reason: String| HostError::Start {
            id,
            reason: format!(
                "{}: {reason}; see {}",
                self.spec.program,
                self.log.display()
            ),
        };
        for _ in 0..200 {
            let seen = self.inspect(&exec).await?;
            let pid = seen.pid.and_then(|p| i32::try_from(p).ok()).unwrap_or(0);
            if pid > 0 && proc::stat(pid).is_some() {
                return Ok((pid, exec));
            }
            if let Some(code) = seen.exit_code.filter(|_| seen.running != Some(true)) {
                return Err(failed(format!("it ended at once with status {code}")));
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        Err(failed("the engine shows no process of it".into()))
    }

    /// How the program that [`start`](Self::start) started has ended.
    pub async fn ended(&self, exec: &str) -> Option<String> {
        let seen = self.inspect(exec).await.ok()?;
        let code = seen.exit_code.filter(|_| seen.running != Some(true))?;
        Some(in_words(code))
    }

    async fn create(&self, program: &str, args: &[String]) -> Result<String, HostError> {
        let mut cmd = vec![program.to_string()];
        cmd.extend_from_slice(args);
        let mut env: Vec<String> = self
            .spec
            .env
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        env.push(format!("{RUN_VAR}={}", self.run_id));
        let options = CreateExecOptions {
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            env: Some(env),
            cmd: Some(cmd),
            user: (self.spec.run_as == RunAs::Unprivileged).then(|| "nobody".to_string()),
            working_dir: Some("/".to_string()),
            ..CreateExecOptions::default()
        };
        let made = self.engine.create_exec(self.container, options).await;
        made.map(|m| m.id).map_err(|e| docker_error(program, &e))
    }

    async fn attach(
        &self,
        exec: &str,
    ) -> Result<impl Stream<Item = Result<LogOutput, bollard::errors::Error>> + use<>, HostError>
    {
        let started = self.engine.start_exec(exec, None).await;
        match started.map_err(|e| docker_error(&self.spec.program, &e))? {
            StartExecResults::Attached { output, .. } => Ok(output),
            StartExecResults::Detached => Err(HostError::Docker {
                what: self.spec.program.clone(),
                reason: "the engine attached no output".into(),
            }),
        }
    }

    async fn inspect(&self, exec: &str) -> Result<ExecInspectResponse, HostError> {
        let seen = self.engine.inspect_exec(exec).await;
        seen.map_err(|e| docker_error(&self.spec.program, &e))
    }
}

/// The engine tells of a signal as a shell does, by 128 + its number.
fn in_words(code: i64) -> String {
    let signal = i32::try_from(code - 128).ok().map(Signal::try_from);
    match signal {
        Some(Ok(signal)) => format!("signal: {} ({signal})", code - 128),
        _ => format!("exit status: {code}"),
    }
}

fn open(log: &std::path::Path) -> Result<File, HostError> {
    if let Some(dir) = log.parent() {
        std::fs::create_dir_all(dir).map_err(HostError::io(dir.display()))?;
    }
    File::options()
        .create(true)
        .append(true)
        .open(log)
        .map_err(HostError::io(log.display()))
}

/// Copies output to the log until the program ends.
async fn drain(
    output: impl Stream<Item = Result<LogOutput, bollard::errors::Error>>,
    mut log: File,
) {
    let mut output = std::pin::pin!(output);
    while let Some(Ok(chunk)) = output.next().await {
        if log.write_all(chunk.as_ref()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_above_128_is_a_signal() {
        assert_eq!(in_words(0), "exit status: 0");
        assert_eq!(in_words(128), "exit status: 128");
        assert_eq!(in_words(137), "signal: 9 (SIGKILL)");
        assert_eq!(in_words(255), "exit status: 255");
    }
}
