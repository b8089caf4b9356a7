//! `fencepost run`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use fencepost_checker::exit;

use super::{block_on, fail, progress, show};
use crate::host;
use crate::run::core::Progress;
use crate::run::{self, Options};
use crate::scenario::{self, HostKind, Scenario};
use crate::system;

/// Carry a scenario out, judge it and write its report
#[derive(clap::Args)]
pub struct Args {
    /// Name of a built-in scenario (`fencepost list scenarios`), or the path of your own .toml
    scenario: String,
    /// Lock service to test, instead of the scenario's (`fencepost list systems`)
    #[arg(long)]
    system: Option<String>,
    /// Where its servers run
    #[arg(long, value_name = "HOST")]
    on: Option<On>,
    /// Seed of load and faults; drawn when not given
    #[arg(long)]
    seed: Option<u64>,
    /// Command line of your own worker, which speaks docs/worker-protocol.md
    #[arg(long, value_name = "CMD")]
    worker: Option<String>,
    /// The run's folder; a new one below runs/ when not given
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Image for the servers, instead of one built from Debian's packages (with --on docker)
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Follow a recorded schedule.jsonl instead of the scenario's faults
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Lock cycles a second, instead of the scenario's
    #[arg(long, allow_negative_numbers = true)]
    rate: Option<f64>,
    /// Length of the load, such as 30s, instead of the scenario's
    #[arg(long)]
    duration: Option<fencepost_nemesis::schedule::Span>,
    /// Parameter of the system, as name=value; may be given several times
    #[arg(long = "param", value_name = "NAME=VALUE")]
    params: Vec<String>,
    /// End the run at the first certain violation that the scenario does not allow
    #[arg(long)]
    fail_fast: bool,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum On {
    Local,
    Docker,
}

pub fn main(args: Args) -> ExitCode {
    let json = args.json;
    let options = match options(args) {
        Ok(o) => o,
        Err(e) => return fail(exit::USAGE, e),
    };
    if options.scenario.host == HostKind::Local {
        // Before there is a second thread.
        host::namespace::enter_run_namespace();
    }
    let progress = Arc::new(Progress::default());
    let result = block_on(async {
        let bar = progress::start(&options.scenario, progress.clone(), json);
        let result = run::run(options, progress).await;
        bar.stop().await;
        result
    });
    match result {
        Err(code) => code,
        Ok(Err(e)) => fail(e.exit_code(), e),
        Ok(Ok(report)) => {
            if json {
                show::json(&report)
            } else {
                show::text(&report)
            }
            ExitCode::from(report.verdict.exit_code)
        }
    }
}

/// The scenario with everything that the command line changes, and the command that repeats it.
fn options(args: Args) -> Result<Options, String> {
    let mut s = scenario::find(&args.scenario).map_err(|e| e.to_string())?;
    let seed = args.seed.unwrap_or_else(|| rand::random::<u32>().into());
    let own = s.system.clone();
    let mut command = vec!["fencepost".to_owned(), "run".into(), args.scenario.clone()];
    let mut repeat = |flag: &str, value: &str| command.extend([flag.to_owned(), value.to_owned()]);
    if let Some(other) = args.system {
        repeat("--system", &other);
        if other != s.system {
            // What one system calls its parameters means nothing to another.
            s.params.clear();
        }
        s.system = other;
    }
    if let Some(on) = args.on {
        s.host = if on == On::Docker {
            HostKind::Docker
        } else {
            HostKind::Local
        };
        repeat("--on", s.host.word());
    }
    if let Some(rate) = args.rate {
        repeat("--rate", &rate.to_string());
        s.load.rate = rate;
    }
    if let Some(duration) = args.duration {
        repeat("--duration", &duration.to_string());
        s.load.duration = duration;
    }
    for param in &args.params {
        repeat("--param", param);
    }
    s.params.extend(parameters(&args.params)?);
    for (flag, value) in [("--worker", &args.worker), ("--image", &args.image)] {
        if let Some(value) = value {
            repeat(flag, value);
        }
    }
    if let Some(path) = &args.replay {
        repeat("--replay", &path.display().to_string());
    }
    repeat("--seed", &seed.to_string());
    if args.fail_fast {
        s.fail_fast = true;
        command.push("--fail-fast".into());
    }
    check(&s)?;
    let undemanded = match system::open(&s.system, s.params.clone()) {
        Ok(system) if own != s.system => run::fits::undemand(&mut s, &system.facts()),
        _ => Vec::new(),
    };
    Ok(Options {
        scenario: s,
        seed,
        out: args.out,
        worker: args.worker,
        image: args.image,
        replay: args.replay,
        command,
        undemanded,
    })
}

fn check(s: &Scenario) -> Result<(), String> {
    scenario::validate(s).map_err(|what| format!("{}: {what}", s.name))
}

/// Parameters as the command line has them. A value is JSON where it is JSON, else a string.
pub(super) fn parameters(said: &[String]) -> Result<system::Params, String> {
    let one = |param: &String| {
        let (name, value) = param
            .split_once('=')
            .ok_or_else(|| format!("--param {param}: write it as name=value"))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        Ok((name.to_owned(), value))
    };
    said.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn read(line: &str) -> Result<Options, String> {
        options(Line::parse_from(["run"].into_iter().chain(line.split(' '))).args)
    }

    #[test]
    fn the_command_line_overrides_the_scenario_and_can_be_repeated() {
        let o = read(
            "kleppmann-pause --system redis --on docker --rate 20 --param aof=always --param n=3 --seed 9 --fail-fast",
        );
        let o = o.unwrap();
        assert!(o.scenario.fail_fast);
        assert_eq!(
            (o.scenario.system.as_str(), o.scenario.host, o.seed),
            ("redis", HostKind::Docker, 9)
        );
        assert_eq!(o.scenario.params["n"], 3);
        assert_eq!(o.scenario.params["aof"], "always");
        let again = read(&o.command[2..].join(" ")).unwrap();
        assert_eq!(again.scenario, o.scenario);
        assert_eq!(again.command, o.command);
    }

    #[test]
    fn a_value_out_of_range_is_refused() {
        let e = read("kleppmann-pause --rate -1").err().unwrap_or_default();
        assert!(e.contains("load.rate"), "{e}");
        assert!(
            read("kleppmann-pause --param x")
                .err()
                .unwrap()
                .contains("name=value")
        );
    }
}
