//! Everything that has to stand before the load begins.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fencepost_nemesis::schedule::{Plan, Scheduler};
use fencepost_workloads::protocol::{self, Endpoint, Init, StoreConf, SystemConf};
use fencepost_workloads::stores;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::core::{Board, Core, CoreHandle, Progress, Settings, Story, Wiring};
use super::crew::{Crew, Program, words};
use super::env::RunEnv;
use super::{Options, RunError, fail_fast, fits, host_kind, reach};
use crate::host::{self, Host, HostOptions, Process, ProcessSpec, Unit, UnitId};
use crate::images::Say;
use crate::record::{Recorder, RunFile, RunFolder, Status};
use crate::scenario::{Mode, Scenario, longest};
use crate::system::{self, Service, System};

const WITNESS_PORT: u16 = 7400;
/// Longest time that a service may take until it answers.
const READY: Duration = Duration::from_secs(60);

/// A run's folder, processes and addresses.
pub struct Stage {
    pub folder: RunFolder,
    pub file: RunFile,
    pub board: Arc<Board>,
    pub store: StoreConf,
    run_id: String,
    system: Box<dyn System>,
    host: Option<Arc<dyn Host>>,
    nodes: Vec<Arc<Unit>>,
    witness: Option<Process>,
    service: Service,
}

impl Stage {
    /// Makes the run folder. Nothing runs yet.
    ///
    /// # Errors
    /// When system and scenario do not fit, or the folder cannot be made.
    pub async fn open(options: &Options) -> Result<Self, RunError> {
        let s = &options.scenario;
        let system = system::open(&s.system, s.params.clone())?;
        fits::fits(s, &system.facts())?;
        let run_id = format!("{:08x}", rand::random::<u32>());
        let folder = match &options.out {
            Some(dir) => RunFolder::at(dir)?,
            None => RunFolder::fresh(&PathBuf::from("runs"), &s.name, &run_id)?,
        };
        let file = RunFile::new(
            s,
            system.facts(),
            &run_id,
            options.seed,
            options.command.clone(),
        );
        file.write(&folder.dir)
            .map_err(RunError::io(folder.file("run.json").display().to_string()))?;
        let mut params = s.store.params.clone();
        params.insert("raise_on_read".into(), s.store.raise_on_read.into());
        let store = StoreConf {
            kind: s.store.kind.clone(),
            addr: String::new(),
            fenced: s.store.fenced,
            params,
        };
        Ok(Stage {
            folder,
            file,
            board: Arc::new(Board::new(s.load.locks)),
            store,
            run_id,
            system,
            host: None,
            nodes: Vec::new(),
            witness: None,
            service: Service::default(),
        })
    }

    /// Starts the service and the store.
    ///
    /// # Errors
    /// What the host or the service says.
    pub async fn raise(
        &mut self,
        options: &Options,
        progress: Arc<Progress>,
    ) -> Result<(), RunError> {
        let s = &options.scenario;
        let host_options = HostOptions {
            run_id: self.run_id.clone(),
            run_dir: self.folder.dir.clone(),
            image: options.image.clone(),
            say: Say::new(move |text| progress.set_note(text.into())),
        };
        // What a controller that was killed has left; a failure of that is told and no reason not to run.
        match crate::heal::heal().await {
            Ok(healed) => healed
                .failed
                .iter()
                .for_each(|f| tracing::warn!("heal: {f}")),
            Err(e) => tracing::warn!("heal: {e}"),
        }
        let host = host::open(host_kind(s.host), host_options).await?;
        self.host = Some(host.clone());
        let specs = self.system.nodes(host.site());
        self.nodes = host::start_nodes(host.as_ref(), specs).await?;
        self.file.nodes = self.nodes.len();
        self.service = self.system.join(host.site(), READY).await?;
        if self.nodes.len() == 1 {
            self.service
                .leader_hint
                .get_or_insert_with(|| Arc::new(reach::OnlyServer));
        }
        self.file.system.version = self.service.version.clone();
        for image in host.images().await {
            let made_of = [vec![image.id, image.base], image.packages].concat();
            self.file
                .versions
                .insert(format!("image {}", image.name), made_of.join(", "));
        }
        self.raise_store(s, host.as_ref()).await?;
        self.file
            .write(&self.folder.dir)
            .map_err(RunError::io("run.json"))
    }

    /// The plans without what the servers that run cannot suffer.
    ///
    /// # Errors
    /// When a plan could never take hold.
    pub fn possible(&self, plans: &[Plan]) -> Result<Vec<Plan>, RunError> {
        reach::possible(plans, &self.service, self.nodes.len())
            .map_err(|why| RunError::Unfit(format!("system `{}` {why}", self.file.system.name)))
    }

    async fn raise_store(&mut self, s: &Scenario, host: &dyn Host) -> Result<(), RunError> {
        match s.store.kind.as_str() {
            "none" => Ok(()),
            "witness" => {
                let addr = SocketAddr::from((host.site().addr(UnitId::Witness), WITNESS_PORT));
                self.store.addr = addr.to_string();
                self.witness = Some(self.start_witness(s, host).await?);
                Ok(())
            }
            kind => {
                let client = self.system.client(host.site());
                let addrs: Vec<String> = client
                    .endpoints
                    .iter()
                    .map(|e| e.addr.to_string())
                    .collect();
                if addrs.is_empty() || !client.name.starts_with(kind) {
                    return Err(RunError::Unfit(format!(
                        "store `{kind}` needs a system of that kind, not `{}`",
                        s.system
                    )));
                }
                // etcd's store follows its cluster; the others live on one server.
                self.store.addr = if kind == "etcd" {
                    addrs.join(",")
                } else {
                    addrs[0].clone()
                };
                Ok(())
            }
        }
    }

    /// Starts the witness and waits until it accepts connections.
    async fn start_witness(&self, s: &Scenario, host: &dyn Host) -> Result<Process, RunError> {
        let mut args = vec![
            "witness".to_owned(),
            "--listen".into(),
            self.store.addr.clone(),
            "--log".into(),
        ];
        args.push(self.folder.file("store.jsonl").display().to_string());
        if !s.store.fenced {
            args.push("--unfenced".into());
        }
        if !s.store.raise_on_read {
            args.push("--no-raise-on-read".into());
        }
        let spec = ProcessSpec {
            id: UnitId::Witness,
            program: own_program()?,
            args,
            env: Default::default(),
        };
        let mut process = host.start_process(spec).await?;
        let mut line = String::new();
        let mut stdout = BufReader::new(&mut process.stdout);
        match tokio::time::timeout(Duration::from_secs(10), stdout.read_line(&mut line)).await {
            Ok(Ok(n)) if n > 0 && line.contains("listening") => Ok(process),
            _ => Err(RunError::Setup(format!(
                "the store did not start at {}; see {}",
                self.store.addr,
                self.folder.log("witness").display()
            ))),
        }
    }

    fn host(&self) -> Result<&Arc<dyn Host>, RunError> {
        self.host
            .as_ref()
            .ok_or_else(|| RunError::Setup("the host is not open".into()))
    }

    /// The core for this run, with its history begun.
    ///
    /// # Errors
    /// When the history cannot be created.
    pub fn core(
        &self,
        options: &Options,
        scheduler: Scheduler,
        progress: Arc<Progress>,
    ) -> Result<Wiring, RunError> {
        let recorder = Recorder::create(&self.folder.dir, Instant::now())?;
        let settings = settings(options, self.file.lease.ttl_ms, &self.folder);
        let path = self.folder.file("schedule.jsonl");
        let schedule =
            std::fs::File::create(&path).map_err(RunError::io(path.display().to_string()))?;
        Core::wire(
            settings,
            recorder,
            scheduler,
            Box::new(schedule),
            self.board.clone(),
            progress,
        )
        .map_err(RunError::io("the core's waker"))
    }

    /// The checks, looking on, by what `run.json` says.
    ///
    /// # Errors
    /// When `run.json` cannot be read, or no thread be started.
    pub fn onlooker(&self, core: CoreHandle) -> Result<Sender<fencepost_history::Event>, RunError> {
        let facts = fencepost_checker::judge::facts::read(&self.folder.dir);
        let facts = facts.map_err(|e| RunError::Setup(e.to_string()))?;
        let log = (self.store.kind == "witness").then(|| self.folder.file("store.jsonl"));
        fail_fast::look_on(&facts, log, core)
            .map_err(RunError::io("starting the thread of the checks"))
    }

    /// Ready to start workers.
    ///
    /// # Errors
    /// When the program of the workers is unknown.
    pub fn crew(&self, options: &Options) -> Result<Arc<Crew>, RunError> {
        let s = &options.scenario;
        let host = self.host()?;
        let program = match &options.worker {
            None => Program {
                program: own_program()?,
                args: vec!["worker".into()],
            },
            Some(line) => {
                let mut words = words(line).into_iter();
                let program = words
                    .next()
                    .ok_or_else(|| RunError::Unfit("--worker is empty".into()))?;
                Program {
                    program: program.into(),
                    args: words.collect(),
                }
            }
        };
        let client = self.system.client(host.site());
        let endpoints = client
            .endpoints
            .iter()
            .map(|e| Endpoint {
                name: e.name.clone(),
                addr: e.addr.to_string(),
            })
            .collect();
        let init = Init {
            protocol: protocol::VERSION,
            worker: 0,
            clients: s.clients + u32::from(!s.story.lock.is_empty()),
            seed: options.seed,
            system: SystemConf {
                name: client.name,
                endpoints,
                params: client.params,
            },
            store: self.store.clone(),
            ttl_ms: self.file.lease.ttl_ms,
            timeout_ms: s.timeout().as_millis() as u64,
        };
        Ok(Arc::new(Crew::new(
            host.clone(),
            program,
            init,
            s.workers as usize,
        )))
    }

    /// The run as faults see it.
    pub fn env(&self, options: &Options, crew: Arc<Crew>, core: CoreHandle) -> Arc<RunEnv> {
        let host = self
            .host
            .clone()
            .expect("invariant: the crew was made from the same host");
        Arc::new(RunEnv {
            run_id: self.run_id.clone(),
            ttl: options.scenario.ttl(),
            host,
            ports: (0..self.nodes.len()).map(|n| self.system.port(n)).collect(),
            nodes: self.nodes.clone(),
            logs: self.folder.dir.join("logs"),
            crew,
            service: self.service.clone(),
            board: self.board.clone(),
            core,
            down: Mutex::default(),
        })
    }

    /// A client of the store for the end of the run.
    ///
    /// # Errors
    /// When the store's kind is unknown.
    pub fn store_admin(&self, timeout: Duration) -> Result<Box<dyn stores::StoreAdmin>, RunError> {
        let unfit = |e: fencepost_workloads::locks::ConfError| RunError::Unfit(e.to_string());
        let kind = stores::find(&self.store.kind).map_err(unfit)?;
        let cx = stores::StoreContext {
            conf: self.store.clone(),
            worker: u32::MAX,
            client: 0,
            timeout,
        };
        (kind.admin)(cx).map_err(unfit)
    }

    /// Stops everything that was started and closes `run.json`.
    pub async fn close(&mut self, status: Status) {
        self.witness = None;
        if let Some(host) = self.host.take()
            && let Err(e) = host.stop().await
        {
            self.file
                .failure
                .get_or_insert(format!("stopping the run: {e}"));
        }
        self.file.status = status;
        self.file.ended = Some(crate::record::rfc3339(std::time::SystemTime::now()));
        if let Err(e) = self.file.write(&self.folder.dir) {
            tracing::warn!("run.json: {e}");
        }
    }
}

fn settings(options: &Options, ttl_ms: Option<u64>, folder: &RunFolder) -> Settings {
    let s = &options.scenario;
    let ttl = s.ttl();
    let nanos = |span| longest(span, ttl).as_nanos() as i64;
    let story = (!s.story.lock.is_empty()).then(|| Story {
        lock: s.story.lock.as_str().into(),
        rivals: s.story.rivals as usize,
        work: s.story.work.clone(),
        wait: longest(&s.story.wait, ttl),
        pause: s.story.pause.clone(),
        again: s.story.again,
    });
    Settings {
        seed: options.seed,
        workers: s.workers as usize,
        clients: s.clients,
        mode: match s.mode {
            Mode::Exclusive => protocol::Mode::Exclusive,
            Mode::Shared => protocol::Mode::Shared,
            Mode::Semaphore => protocol::Mode::Semaphore,
        },
        permits: (s.mode == Mode::Semaphore).then_some(s.permits),
        ttl_ms,
        ttl,
        timeout: s.timeout(),
        rate: s.load.rate,
        locks: s.load.locks,
        workload: s.load.workload,
        work: s.load.work.clone(),
        wait: longest(&s.load.wait, ttl),
        duration: nanos(&s.load.duration),
        calm: nanos(&s.load.calm),
        recovery: nanos(&s.allow.recovery),
        story,
        events_end_faults: s.faults.iter().any(|f| f.until.is_some()),
        log_dir: folder.dir.join("logs"),
    }
}

/// This very program: workers, witness and our own servers are its subcommands.
fn own_program() -> Result<PathBuf, RunError> {
    match std::env::var_os("FENCEPOST_PROGRAM") {
        Some(path) => Ok(path.into()),
        None => std::env::current_exe().map_err(RunError::io("this program's own path")),
    }
}
