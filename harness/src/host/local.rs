//! Nodes as processes of this machine, each in a network namespace of its own behind one bridge.
//!
//! Bridge and veths are inside the run's own namespace ([`enter_run_namespace`](super::namespace::enter_run_namespace)),
//! so they vanish with the last process.

use std::{
    collections::HashMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use async_trait::async_trait;
use nix::mount::MsFlags;
use tokio::sync::{Mutex, watch};

use super::{
    DataFate, Host, HostError, HostKind, HostOptions, NetMode, NodeSpec, Process, ProcessSpec,
    RunAs, Site, Unit, UnitId, data,
    machine::{KILL_WITHIN, Machine, blocking, lock},
    namespace::{self, Mode},
    net,
    register::Registration,
    spawn::{self, Launch},
    unprivileged,
};

const PREFIX: u8 = 22;

pub struct Local {
    machine: Machine,
    nodes: Mutex<HashMap<usize, Node>>,
}

struct Node {
    spec: NodeSpec,
    unit: Arc<Unit>,
    program: PathBuf,
    exit: watch::Receiver<Option<ExitStatus>>,
}

impl Local {
    /// # Errors
    /// When the register or the bridge cannot be made.
    pub async fn open(options: HostOptions) -> Result<Self, HostError> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let n = RUNS.fetch_add(1, Ordering::Relaxed);
        let register = Registration::create(&options.run_id, HostKind::Local)?;
        let (net, base) = match loopback_reason() {
            None => bridge(n).await.inspect_err(|_| drop(register.remove()))?,
            Some(reason) => (NetMode::Loopback { reason }, loopback_base(&options.run_id)),
        };
        let scratch = register.scratch.display().to_string();
        let site = Site {
            kind: HostKind::Local,
            net,
            base,
            data_dir: format!("{scratch}/node-{{}}/data"),
        };
        Ok(Self {
            machine: Machine::new(options, site, format!("v{n}"), register),
            nodes: Mutex::default(),
        })
    }

    async fn execute(&self, node: &mut Node) -> Result<(), HostError> {
        let index = node.unit.id();
        let dir = self.dir(index);
        let log = self.machine.log_path(index);
        if let Some(first) = &node.spec.prepare
            && !dir.join(&first.unless).exists()
        {
            let program = program(&first.program)?;
            let mut child =
                spawn::launch(index, self.launch(node, &program, &first.args, &log)).await?;
            let status = child.wait().await.map_err(HostError::io(&first.program))?;
            if !status.success() {
                return Err(HostError::Start {
                    id: index,
                    reason: format!(
                        "{} ended with {status}; see {}",
                        first.program,
                        log.display()
                    ),
                });
            }
        }
        let child = spawn::launch(
            index,
            self.launch(node, &node.program, &node.spec.args, &log),
        )
        .await?;
        node.exit = spawn::watch_exit(&node.unit, child);
        self.machine.note_pid(&node.unit)
    }

    fn launch<'a>(
        &'a self,
        node: &'a Node,
        program: &'a Path,
        args: &'a [String],
        log: &'a Path,
    ) -> Launch<'a> {
        Launch {
            run_id: &self.machine.options.run_id,
            program,
            args,
            env: &node.spec.env,
            cwd: None,
            netns: node.unit.namespace().map(AsRef::as_ref),
            run_as: node.spec.run_as,
            piped: false,
            log,
        }
    }

    fn dir(&self, id: UnitId) -> PathBuf {
        self.machine.scratch().join(id.file_name()).join("data")
    }

    fn make_dir(&self, id: UnitId, spec: &NodeSpec) -> Result<PathBuf, HostError> {
        let dir = self.dir(id);
        std::fs::create_dir_all(&dir).map_err(HostError::io(dir.display()))?;
        if let Some(bytes) = spec.tmpfs_bytes {
            if let Some(reason) = self.machine.site.no_network_faults() {
                return Err(HostError::Unavailable {
                    what: format!("a small disk for {id}"),
                    reason: format!("no mount namespace: {reason}"),
                    hint: "run as root, or on docker".into(),
                });
            }
            let options = format!("size={bytes},mode=0755");
            let kind = Some("tmpfs");
            nix::mount::mount(kind, &dir, kind, MsFlags::empty(), Some(options.as_str()))
                .map_err(|e| HostError::io(dir.display())(e.into()))?;
        }
        data::write_files(&dir, &spec.files)?;
        self.own(&dir, spec)?;
        Ok(dir)
    }

    fn own(&self, dir: &Path, spec: &NodeSpec) -> Result<(), HostError> {
        match unprivileged::owner().filter(|_| spec.run_as == RunAs::Unprivileged) {
            Some(owner) => data::own(dir, owner),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Host for Local {
    fn site(&self) -> &Site {
        &self.machine.site
    }

    async fn start_node(&self, index: usize, spec: NodeSpec) -> Result<Arc<Unit>, HostError> {
        let id = UnitId::Node(index);
        let program = program(&spec.program)?;
        if let Some(missing) = spec.needs.iter().find(|p| !Path::new(p).exists()) {
            return Err(not_here(missing, &spec.recipe));
        }
        let dir = self.make_dir(id, &spec)?;
        let netns = self.machine.namespace(id).await?;
        let addr = self.machine.site.addr(id);
        let unit = Unit::new(id, spec.name.clone(), addr, netns).with_data_dir(dir);
        let unit = Arc::new(unit);
        let mut node = Node {
            spec,
            unit: Arc::clone(&unit),
            program,
            exit: watch::channel(None).1,
        };
        self.execute(&mut node).await?;
        self.machine.note(&unit)?;
        self.nodes.lock().await.insert(index, node);
        Ok(unit)
    }

    async fn kill_node(&self, index: usize) -> Result<(), HostError> {
        let mut nodes = self.nodes.lock().await;
        kill(find(&mut nodes, index)?).await
    }

    async fn restart_node(&self, index: usize, fate: DataFate) -> Result<(), HostError> {
        let mut nodes = self.nodes.lock().await;
        let node = find(&mut nodes, index)?;
        kill(node).await?;
        let dir = self.dir(node.unit.id());
        let aside = dir.with_file_name("snapshots");
        let (spec, d) = (node.spec.clone(), dir.clone());
        blocking(move || data::apply(&d, &aside, &fate, &spec.files)).await?;
        self.own(&dir, &node.spec)?;
        self.execute(node).await
    }

    async fn node_exit(&self, index: usize) -> Option<String> {
        let nodes = self.nodes.lock().await;
        let status = *nodes.get(&index)?.exit.borrow();
        status.map(|s| s.to_string())
    }

    async fn snapshot_node(&self, index: usize, label: &str) -> Result<(), HostError> {
        let mut nodes = self.nodes.lock().await;
        let dir = self.dir(find(&mut nodes, index)?.unit.id());
        let (aside, label) = (dir.with_file_name("snapshots"), label.to_string());
        blocking(move || data::snapshot(&dir, &aside, &label)).await
    }

    async fn start_process(&self, spec: ProcessSpec) -> Result<Process, HostError> {
        self.machine.start_process(spec).await
    }

    async fn stop(&self) -> Result<(), HostError> {
        self.machine.kill_everything().await?;
        let scratch = self.machine.scratch();
        for (index, node) in self.nodes.lock().await.drain() {
            if node.spec.tmpfs_bytes.is_some() {
                let _ = nix::mount::umount(&scratch.join(format!("node-{index}/data")));
            }
        }
        if let NetMode::Bridge { bridge, .. } = self.machine.site.net.clone() {
            blocking(move || net::remove_link(&bridge)).await?;
        }
        lock(&self.machine.register).remove()
    }
}

fn find(nodes: &mut HashMap<usize, Node>, index: usize) -> Result<&mut Node, HostError> {
    let id = UnitId::Node(index);
    nodes.get_mut(&index).ok_or(HostError::NoSuchUnit { id })
}

async fn kill(node: &mut Node) -> Result<(), HostError> {
    if let Some(pid) = node.unit.pid() {
        let left = spawn::kill_all(pid, KILL_WITHIN).await;
        if !left.is_empty() {
            return Err(HostError::Start {
                id: node.unit.id(),
                reason: format!("its processes {left:?} ignore SIGKILL"),
            });
        }
        // Until it is reaped, so that the next pid is not mistaken for this one.
        let _ = tokio::time::timeout(KILL_WITHIN, node.exit.wait_for(Option::is_some)).await;
    }
    Ok(())
}

fn program(name: &str) -> Result<PathBuf, HostError> {
    spawn::find_program(name).ok_or_else(|| HostError::Unavailable {
        what: "host local".into(),
        reason: format!("{name} is not on PATH"),
        hint: hint(crate::images::package_of(name)),
    })
}

fn not_here(path: &str, recipe: &str) -> HostError {
    let recipe = crate::images::recipe_of(recipe);
    HostError::Unavailable {
        what: "host local".into(),
        reason: format!("there is no {path}"),
        hint: hint(recipe.and_then(|r| r.packages.first().copied())),
    }
}

fn hint(package: Option<&str>) -> String {
    match package {
        Some(package) => format!("apt-get install {package}, or use --on docker"),
        None => "install it, or use --on docker".into(),
    }
}

fn loopback_reason() -> Option<String> {
    match namespace::mode() {
        Some(Mode::Root | Mode::User) => None,
        Some(Mode::Loopback { reason }) => Some(reason.clone()),
        None => Some("this process entered no namespace of its own".into()),
    }
}

/// A subnet for each run of this process, in its own namespace: nothing to collide with.
async fn bridge(n: u32) -> Result<(NetMode, Ipv4Addr), HostError> {
    let base = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 213, 0, 0)) + (n % 64) * 1024);
    let gateway = Ipv4Addr::from(u32::from(base) + 1);
    let name = format!("fp{n}");
    let bridge = name.clone();
    blocking(move || net::make_bridge(&name, gateway, PREFIX)).await?;
    let net = NetMode::Bridge {
        bridge,
        gateway,
        prefix: PREFIX,
    };
    Ok((net, base))
}

/// Runs of one machine share its loopback: each takes its own part of 127/8.
fn loopback_base(run_id: &str) -> Ipv4Addr {
    let hash = super::fnv(run_id.as_bytes());
    // FNV spreads the last byte over the bits from 40 up, and hardly below.
    let slot = (hash >> 40) as u32 % (128 * 64);
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 64, 0, 0)) + slot * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_parts_stay_in_127() {
        for i in 0..1000 {
            let base = loopback_base(&format!("run-{i}"));
            assert_eq!(base.octets()[0], 127);
            assert!(base.octets()[1] >= 64 && base.octets()[1] < 192);
            assert_eq!(u32::from(base) % 1024, 0);
        }
        assert_ne!(loopback_base("a"), loopback_base("b"));
    }
}
