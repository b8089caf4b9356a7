//! Network namespaces behind one bridge, for tests. All of it ends with its processes.

use std::process::Command;
use std::time::{Duration, Instant};

use super::Started;
use crate::net::{NetNs, nft};
use crate::process::{Proc, ProcId, Stat};
use crate::receipt::Reason;

pub struct Rig {
    _switch: Started,
    pub homes: Vec<Started>,
    pub procs: Vec<Proc>,
}

impl Rig {
    /// Namespaces 10.9.0.1, .2, … for these; `None`, with the reason printed, where this machine or
    /// user cannot have them.
    pub fn new(ids: &[ProcId]) -> Option<Rig> {
        match Self::build(ids) {
            Ok(rig) => Some(rig),
            Err(r) => {
                eprintln!("skipped: no network namespaces here: {r}");
                None
            }
        }
    }

    fn build(ids: &[ProcId]) -> Result<Rig, Reason> {
        let (switch, bridge) = namespace(ProcId::Node(999))?;
        let ip = |ns: &NetNs, line: &str| {
            let args: Vec<&str> = line.split(' ').collect();
            ns.run(|| nft::run("ip", &args, "").map(|_| ()))
        };
        ip(&bridge, "link add br0 type bridge")?;
        ip(&bridge, "link set br0 up")?;
        let mut rig = Rig {
            _switch: switch,
            homes: Vec::new(),
            procs: Vec::new(),
        };
        for (i, id) in ids.iter().enumerate() {
            let (home, ns) = namespace(*id)?;
            let pid = home.pid();
            ip(
                &bridge,
                &format!("link add p{i} type veth peer name eth0 netns {pid}"),
            )?;
            ip(&bridge, &format!("link set p{i} master br0 up"))?;
            ip(&ns, &format!("addr add 10.9.0.{}/24 dev eth0", i + 1))?;
            ip(&ns, "link set eth0 up")?;
            ip(&ns, "link set lo up")?;
            let mut p = proc(*id, &home);
            p.addr = Some(format!("10.9.0.{}", i + 1).parse().unwrap());
            rig.homes.push(home);
            rig.procs.push(p);
        }
        Ok(rig)
    }

    pub fn ns(&self, i: usize) -> NetNs {
        NetNs::of(&self.procs[i]).unwrap()
    }
}

fn proc(id: ProcId, home: &Started) -> Proc {
    let netns = Some(format!("/proc/{}/ns/net", home.pid()).into());
    Proc {
        netns,
        ..home.proc(id)
    }
}

/// A sleeping process in a namespace of its own.
fn namespace(id: ProcId) -> Result<(Started, NetNs), Reason> {
    let home = Started::new(Command::new("unshare").args(["--net", "sleep", "600"]));
    let p = proc(id, &home);
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        match NetNs::of(&p) {
            Ok(ns) => {
                ns.run(|| Ok(()))?;
                return Ok((home, ns));
            }
            // `unshare` has not done it yet, or was refused.
            Err(r) if Instant::now() > until => return Err(r),
            Err(_) if Stat::of(p.root).is_none_or(|s| !s.is_alive()) => {
                return Err(Reason::new("unshare --net was refused"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}
