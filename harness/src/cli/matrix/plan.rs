//! Which runs a matrix is made of.

use fencepost_checker::verdict::Expected;

use super::Args;
use crate::cli::run::parameters;
use crate::scenario::{self, Scenario};
use crate::system::{self, Params, SYSTEMS};

/// Scenarios that fit every service, by the word that `--faults` knows them by.
const COLUMNS: &[(&str, &str)] = &[
    ("none", "healthy"),
    ("pause", "client-pause"),
    ("cut", "holder-cut-off"),
    ("kill", "dead-holder"),
    ("packets", "packets"),
    ("down", "service-down"),
    ("leader", "leader-kill"),
    ("partition", "minority-partition"),
];

/// Columns that need several servers.
const CLUSTER: [&str; 2] = ["leader", "partition"];

/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub system: String,
    /// Column of the page.
    pub fault: String,
    pub scenario: String,
    pub seed: u64,
}

impl Cell {
    /// The same cell with the seed that it has after so many rounds.
    pub fn in_round(&self, round: u64, seeds: u64) -> Cell {
        let seed = self.seed.wrapping_add(round.wrapping_mul(seeds));
        Cell {
            seed,
            ..self.clone()
        }
    }

    /// Name of the run's folder.
    pub fn run(&self) -> String {
        format!("{}-{}-{}", self.system, self.fault, self.seed)
    }
}

/// The cells of one round, the seeds of one beside each other.
///
/// # Errors
/// A word that nobody knows.
pub fn cells(args: &Args) -> Result<Vec<Cell>, String> {
    let rows = if args.scenarios.is_empty() {
        columns(args)?
    } else {
        scenarios(args)?
    };
    let with_seeds = rows.into_iter().flat_map(|(system, fault, scenario)| {
        (0..args.seeds).map(move |n| Cell {
            system: system.clone(),
            fault: fault.clone(),
            scenario: scenario.clone(),
            seed: args.seed.wrapping_add(n),
        })
    });
    Ok(with_seeds.collect())
}

type Row = (String, String, String);

fn columns(args: &Args) -> Result<Vec<Row>, String> {
    let words: Vec<&str> = COLUMNS.iter().map(|(w, _)| *w).collect();
    known("column", &words, &args.faults)?;
    let systems = match chosen_systems(args)? {
        none if none.is_empty() => lock_services().map(String::from).collect(),
        some => some,
    };
    let params = parameters(&args.params)?;
    let wanted = |w: &str| args.faults.is_empty() || args.faults.iter().any(|f| f == w);
    let mut rows = Vec::new();
    for system in &systems {
        let fitting = COLUMNS
            .iter()
            .filter(|(w, _)| wanted(w) && suits(w, system, &params));
        rows.extend(fitting.map(|(w, s)| (system.clone(), (*w).into(), (*s).into())));
    }
    Ok(rows)
}

fn scenarios(args: &Args) -> Result<Vec<Row>, String> {
    let systems = chosen_systems(args)?;
    let mut rows = Vec::new();
    for (word, s) in chosen_scenarios(&args.scenarios)? {
        let own = vec![s.system.clone()];
        for system in if systems.is_empty() { &own } else { &systems } {
            rows.push((system.clone(), s.name.clone(), word.clone()));
        }
    }
    Ok(rows)
}

/// Each with the word by which `fencepost run` finds it.
fn chosen_scenarios(words: &[String]) -> Result<Vec<(String, Scenario)>, String> {
    let mut chosen = Vec::new();
    for word in words {
        if word != "all" && word != "hold" {
            let s = scenario::find(word).map_err(|e| e.to_string())?;
            chosen.push((word.clone(), s));
            continue;
        }
        for (name, _) in scenario::builtins() {
            let s = scenario::find(name).map_err(|e| e.to_string())?;
            if word == "all" || holds(&s) {
                chosen.push((name.to_owned(), s));
            }
        }
    }
    Ok(chosen)
}

/// Whether nothing may break in it, and something must hold.
fn holds(s: &Scenario) -> bool {
    s.expect.values().any(|e| *e == Expected::Holds)
        && s.expect.values().all(|e| *e != Expected::Violated)
}

fn lock_services() -> impl Iterator<Item = &'static str> {
    SYSTEMS.iter().map(|s| s.name).filter(|n| *n != "noop")
}

fn chosen_systems(args: &Args) -> Result<Vec<String>, String> {
    let names: Vec<&str> = lock_services().collect();
    known("system", &names, &args.systems)?;
    Ok(args.systems.clone())
}

fn known(what: &str, names: &[&str], words: &[String]) -> Result<(), String> {
    match words.iter().find(|w| !names.contains(&w.as_str())) {
        Some(w) => Err(format!(
            "no {what} is called `{w}`: there are {}",
            names.join(", ")
        )),
        None => Ok(()),
    }
}

/// Whether a column has a meaning for a service with these parameters.
fn suits(word: &str, system: &str, params: &Params) -> bool {
    // Redlock's masters do not know of each other.
    let leaderless = system == "redlock";
    !(CLUSTER.contains(&word) && !is_cluster(system, params) || word == "leader" && leaderless)
}

/// Whether a service with these parameters can lose one of its servers.
fn is_cluster(name: &str, params: &Params) -> bool {
    let made = system::open(name, params.clone());
    made.is_ok_and(|s| (0..3).all(|n| s.port(n).is_some())) && !matches!(name, "redis" | "postgres")
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

    fn planned(line: &str) -> Result<Vec<Cell>, String> {
        cells(&Line::parse_from(["matrix"].into_iter().chain(line.split(' '))).args)
    }

    #[test]
    fn every_column_is_a_scenario() {
        for (word, scenario) in COLUMNS {
            assert!(scenario::builtin(scenario).is_some(), "{word}");
        }
    }

    #[test]
    fn columns_that_need_several_servers_are_left_out_for_one() {
        let all = planned("--systems postgres,etcd,redlock --faults none,leader").unwrap();
        let runs: Vec<String> = all.iter().map(Cell::run).collect();
        let wanted = [
            "postgres-none-1",
            "etcd-none-1",
            "etcd-leader-1",
            "redlock-none-1",
        ];
        assert_eq!(runs, wanted);
    }

    #[test]
    fn a_service_is_a_cluster_where_its_parameters_make_it_one() {
        let faults = "--systems raftlock --faults leader,partition";
        assert!(planned(faults).unwrap().is_empty());
        let three = planned(&format!("{faults} --param nodes=3")).unwrap();
        assert_eq!(three.len(), 2);
    }

    #[test]
    fn scenarios_run_on_their_own_service_with_every_seed() {
        let all = planned("--scenarios leader-kill,kleppmann-pause --seed 5 --seeds 2").unwrap();
        let runs: Vec<String> = all.iter().map(Cell::run).collect();
        assert_eq!(
            runs,
            [
                "etcd-leader-kill-5",
                "etcd-leader-kill-6",
                "raftlock-kleppmann-pause-5",
                "raftlock-kleppmann-pause-6"
            ]
        );
        assert_eq!(all[0].in_round(2, 2).seed, 9);
        let other = planned("--scenarios leader-kill --systems zookeeper").unwrap();
        assert_eq!(other[0].system, "zookeeper");
    }

    #[test]
    fn a_soak_has_no_scenario_that_must_break() {
        let hold = planned("--scenarios hold").unwrap();
        assert!(hold.iter().any(|c| c.scenario == "healthy"));
        assert!(hold.iter().all(|c| c.scenario != "kleppmann-pause-fenced"));
        assert!(planned("--scenarios all").unwrap().len() > hold.len());
    }

    #[test]
    fn unknown_words_are_refused() {
        assert!(planned("--systems mysql").unwrap_err().contains("etcd"));
        assert!(planned("--faults fire").unwrap_err().contains("partition"));
        assert!(planned("--scenarios nothing").is_err());
    }
}
