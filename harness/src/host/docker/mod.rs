//! Nodes as containers, one each, on a network of the run's own.
//!
//! A container's first process does nothing: the node's program is executed beside it. So the
//! program can be killed and started again while the container keeps its network namespace, its address
//! and the partition that is in force there. Workers are programs of this machine, plugged into the
//! network's bridge.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bollard::Docker as Engine;
use tokio::sync::Mutex;

use super::{
    DataFate, Host, HostError, HostKind, HostOptions, NetMode, NodeSpec, Process, ProcessSpec,
    RunAs, Site, Unit, UnitId, data,
    machine::{KILL_WITHIN, Machine, blocking, lock},
    namespace::{self, NetNs},
    register::Registration,
    spawn,
    unprivileged::NOBODY,
};
use crate::images::{self, Image};

mod container;
mod exec;
mod network;

pub use network::{Removed, remove_interfaces, remove_run};

/// The label of everything that a run creates: its id.
pub const LABEL: &str = "fencepost.run";
/// Committing an image of some hundred megabytes takes minutes on a busy machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(600);
/// Where a node's data is inside its container.
const DATA: &str = "/data";

pub struct Docker {
    engine: Engine,
    machine: Machine,
    network: String,
    nodes: Mutex<HashMap<usize, Node>>,
    images: Mutex<HashMap<String, Image>>,
}

struct Node {
    spec: NodeSpec,
    unit: Arc<Unit>,
    container: String,
    /// What the engine calls the running of its program.
    exec: Mutex<Option<String>>,
}

/// Connects to the engine that `DOCKER_HOST` or the usual socket names, and settles the API version.
///
/// # Errors
/// When it does not answer.
pub async fn engine() -> Result<Engine, HostError> {
    let unavailable = |e: &bollard::errors::Error| HostError::Unavailable {
        what: "docker".into(),
        reason: format!("the engine does not answer: {e}"),
        hint: "start it (systemctl start docker), or use --on local".into(),
    };
    let engine = Engine::connect_with_defaults().map_err(|e| unavailable(&e))?;
    let engine = engine.with_timeout(ANSWER_WITHIN);
    let engine = engine
        .negotiate_version()
        .await
        .map_err(|e| unavailable(&e))?;
    engine.ping().await.map_err(|e| unavailable(&e))?;
    Ok(engine)
}

/// Words for what the engine answered.
pub fn docker_error(what: &str, e: &bollard::errors::Error) -> HostError {
    let reason = match e {
        bollard::errors::Error::DockerResponseServerError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    HostError::Docker {
        what: what.into(),
        reason: reason.trim().replace('\n', " "),
    }
}

impl Docker {
    /// # Errors
    /// Without an engine, or without the privilege to plug workers into its networks.
    pub async fn open(options: HostOptions) -> Result<Self, HostError> {
        let engine = engine().await?;
        can_plug()?;
        let register = Registration::create(&options.run_id, HostKind::Docker)?;
        let bridge = network::bridge_name(&options.run_id);
        let made = network::create(&engine, &options.run_id, &bridge).await;
        let made = made.inspect_err(|_| drop(register.remove()))?;
        let site = Site {
            kind: HostKind::Docker,
            net: NetMode::Bridge {
                bridge: bridge.clone(),
                gateway: made.gateway,
                prefix: made.prefix,
            },
            base: made.base,
            data_dir: DATA.into(),
        };
        Ok(Self {
            engine,
            machine: Machine::new(options, site, bridge, register),
            network: made.name,
            nodes: Mutex::default(),
            images: Mutex::default(),
        })
    }

    /// The image for a recipe, made or pulled the first time.
    async fn image(&self, recipe: &str) -> Result<Image, HostError> {
        let options = &self.machine.options;
        let mut known = self.images.lock().await;
        if let Some(image) = known.get(recipe) {
            return Ok(image.clone());
        }
        let image = match (&options.image, images::recipe_of(recipe)) {
            (Some(name), _) => images::named(&self.engine, name, &options.say).await?,
            (None, Some(r)) => images::ensure(&self.engine, r, &options.say).await?,
            (None, None) => images::named(&self.engine, recipe, &options.say).await?,
        };
        known.insert(recipe.into(), image.clone());
        Ok(image)
    }

    async fn execute(&self, node: &Node) -> Result<(), HostError> {
        let run = self.exec(node);
        if let Some(first) = &node.spec.prepare {
            let dir = node.unit.data_dir().map(|d| d.join(&first.unless));
            if !dir.is_some_and(|d| d.exists()) {
                run.to_end(node.unit.id(), &first.program, &first.args)
                    .await?;
            }
        }
        let (pid, exec) = run.start(node.unit.id()).await?;
        *node.exec.lock().await = Some(exec);
        node.unit.set_pid(Some(pid));
        self.machine.note_pid(&node.unit)
    }

    fn exec<'a>(&'a self, node: &'a Node) -> exec::Exec<'a> {
        exec::Exec {
            engine: &self.engine,
            container: &node.container,
            run_id: &self.machine.options.run_id,
            spec: &node.spec,
            log: self.machine.log_path(node.unit.id()),
        }
    }

    async fn kill(&self, node: &Node) -> Result<(), HostError> {
        let Some(pid) = node.unit.pid() else {
            return Ok(());
        };
        let left = spawn::kill_all(pid, KILL_WITHIN).await;
        if left.is_empty() {
            return Ok(());
        }
        Err(HostError::Start {
            id: node.unit.id(),
            reason: format!("its processes {left:?} ignore SIGKILL"),
        })
    }
}

#[async_trait]
impl Host for Docker {
    fn site(&self) -> &Site {
        &self.machine.site
    }

    async fn start_node(&self, index: usize, spec: NodeSpec) -> Result<Arc<Unit>, HostError> {
        let id = UnitId::Node(index);
        let image = self.image(&spec.recipe).await?;
        let wanted = container::Wanted {
            run_id: &self.machine.options.run_id,
            network: &self.network,
            image: &image.name,
            addr: self.machine.site.addr(id),
            id,
            spec: &spec,
        };
        let (container, init) = container::start(&self.engine, &wanted).await?;
        let netns = NetNs::open(format!("/proc/{init}/ns/net").into())?;
        let dir = PathBuf::from(format!("/proc/{init}/root{DATA}"));
        data::write_files(&dir, &spec.files)?;
        own(&dir, &spec)?;
        let addr = self.machine.site.addr(id);
        let unit = Unit::new(id, spec.name.clone(), addr, Some(Arc::new(netns)));
        let node = Node {
            unit: Arc::new(unit.with_data_dir(dir)),
            spec,
            container,
            exec: Mutex::default(),
        };
        self.execute(&node).await?;
        let unit = Arc::clone(&node.unit);
        self.nodes.lock().await.insert(index, node);
        self.machine.note(&unit)?;
        Ok(unit)
    }

    async fn kill_node(&self, index: usize) -> Result<(), HostError> {
        let nodes = self.nodes.lock().await;
        self.kill(find(&nodes, index)?).await
    }

    async fn restart_node(&self, index: usize, fate: DataFate) -> Result<(), HostError> {
        let nodes = self.nodes.lock().await;
        let node = find(&nodes, index)?;
        self.kill(node).await?;
        let (dir, aside) = self.dirs(node);
        let spec = node.spec.clone();
        blocking(move || {
            data::apply(&dir, &aside, &fate, &spec.files)?;
            own(&dir, &spec)
        })
        .await?;
        self.execute(node).await
    }

    async fn node_exit(&self, index: usize) -> Option<String> {
        let nodes = self.nodes.lock().await;
        let node = nodes.get(&index)?;
        let exec = node.exec.lock().await.clone()?;
        self.exec(node).ended(&exec).await
    }

    async fn snapshot_node(&self, index: usize, label: &str) -> Result<(), HostError> {
        let nodes = self.nodes.lock().await;
        let (dir, aside) = self.dirs(find(&nodes, index)?);
        let label = label.to_string();
        blocking(move || data::snapshot(&dir, &aside, &label)).await
    }

    async fn start_process(&self, spec: ProcessSpec) -> Result<Process, HostError> {
        self.machine.start_process(spec).await
    }

    async fn images(&self) -> Vec<Image> {
        self.images.lock().await.values().cloned().collect()
    }

    async fn stop(&self) -> Result<(), HostError> {
        self.machine.kill_everything().await?;
        self.nodes.lock().await.clear();
        network::remove_run(&self.engine, &self.machine.options.run_id).await?;
        lock(&self.machine.register).remove()
    }
}

impl Docker {
    fn dirs(&self, node: &Node) -> (PathBuf, PathBuf) {
        let dir = node.unit.data_dir().unwrap_or(Path::new(DATA));
        let aside = self.machine.scratch().join(node.unit.id().file_name());
        (dir.to_path_buf(), aside)
    }
}

fn find(nodes: &HashMap<usize, Node>, index: usize) -> Result<&Node, HostError> {
    let id = UnitId::Node(index);
    nodes.get(&index).ok_or(HostError::NoSuchUnit { id })
}

/// Hands the data to whom the program runs as.
fn own(dir: &Path, spec: &NodeSpec) -> Result<(), HostError> {
    match spec.run_as {
        RunAs::Same => Ok(()),
        RunAs::Unprivileged => data::own(dir, (NOBODY, NOBODY)),
    }
}

/// Whether workers can be plugged into the engine's bridges.
fn can_plug() -> Result<(), HostError> {
    let refused = |reason: String| HostError::Unavailable {
        what: "host docker".into(),
        reason,
        hint: "run as root (CAP_NET_ADMIN, CAP_SYS_ADMIN and CAP_SYS_PTRACE), or use --on local"
            .into(),
    };
    if namespace::mode().is_some_and(|m| !matches!(m, namespace::Mode::Loopback { .. })) {
        return Err(refused("this process is in a namespace of its own".into()));
    }
    NetNs::create().map(|_| ()).map_err(|e| {
        refused(format!(
            "workers need network namespaces on the run's bridge ({e})"
        ))
    })
}
