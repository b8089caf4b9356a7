//! What this machine can do, what is missing, and the command that brings it.

use std::path::Path;

use serde::Serialize;

use crate::{
    host::{docker, namespace::NetNs, spawn::find_program},
    images::{self, RECIPES},
};

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub name: String,
    pub ok: bool,
    /// What was found, or what is missing.
    pub detail: String,
    /// What goes without it.
    pub needed_for: String,
    /// How to bring it; empty where nothing is to be done.
    pub fix: String,
}

/// Looks at everything. Changes nothing; namespaces are tried on threads and processes of their own.
pub async fn examine() -> Vec<Finding> {
    let engine = docker::engine().await;
    let mut all = vec![
        namespaces(),
        program("nft", "partitions", "apt-get install nftables"),
        program("iptables", "packet faults", "apt-get install iptables"),
        queue(),
        ptrace(),
        finding(
            "docker",
            engine
                .as_ref()
                .map(|_| "the engine answers".into())
                .map_err(ToString::to_string),
            "--on docker",
            "apt-get install docker.io, or start the engine",
        ),
        docker_workers(),
    ];
    if let Ok(engine) = &engine {
        for recipe in RECIPES {
            let tag = recipe.tag();
            let there = engine.inspect_image(&tag).await.is_ok();
            all.push(finding(
                &format!("image {}", recipe.name),
                there
                    .then(|| tag.clone())
                    .ok_or_else(|| "not built".to_string()),
                "nothing: it is built when a run needs it",
                "fencepost images build",
            ));
        }
        all.push(program(
            "debootstrap",
            "building images where no registry answers",
            "apt-get install debootstrap",
        ));
    }
    all.extend(servers());
    all
}

fn finding(name: &str, found: Result<String, String>, needed_for: &str, fix: &str) -> Finding {
    let ok = found.is_ok();
    Finding {
        name: name.into(),
        ok,
        detail: found.unwrap_or_else(|missing| missing),
        needed_for: needed_for.into(),
        fix: if ok { String::new() } else { fix.into() },
    }
}

fn program(name: &str, needed_for: &str, fix: &str) -> Finding {
    let found = find_program(name).map(|p| p.display().to_string());
    finding(
        name,
        found.ok_or_else(|| "not on PATH".into()),
        needed_for,
        fix,
    )
}

/// Tried by a process of its own: a user namespace cannot be left.
fn namespaces() -> Finding {
    let found = if NetNs::create().is_ok() {
        Ok("network namespaces by privilege".to_string())
    } else if try_user_namespace() {
        Ok("network namespaces inside a user namespace".into())
    } else {
        Err("refused: units would share loopback addresses".into())
    };
    finding(
        "namespaces",
        found,
        "network faults on the local host",
        "run as root, or allow user namespaces \
         (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)",
    )
}

fn try_user_namespace() -> bool {
    // SAFETY: the child makes two system calls and ends without returning.
    unsafe {
        match libc::fork() {
            0 => {
                let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNET | libc::CLONE_NEWNS;
                libc::_exit(if libc::unshare(flags) == 0 { 0 } else { 1 })
            }
            -1 => false,
            child => {
                let mut status = 0;
                libc::waitpid(child, &mut status, 0) == child && status == 0
            }
        }
    }
}

fn queue() -> Finding {
    let loaded = Path::new("/proc/net/netfilter/nfnetlink_queue").exists()
        || Path::new("/proc/net/netfilter/nfnetlink_log").exists();
    finding(
        "nfqueue",
        loaded
            .then(|| "the kernel has netfilter queues".to_string())
            .ok_or_else(|| "no sign of netfilter queues".into()),
        "packet faults (delay, loss, duplicates, reordering)",
        "modprobe nfnetlink_queue",
    )
}

fn ptrace() -> Finding {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope: u8 = scope.ok().and_then(|s| s.trim().parse().ok()).unwrap_or(0);
    let root = nix::unistd::geteuid().is_root();
    finding(
        "ptrace",
        match scope {
            3 => Err("switched off until the next boot (ptrace_scope 3)".into()),
            2 if !root => Err("for root only (ptrace_scope 2)".into()),
            n => Ok(format!("own children may be traced (ptrace_scope {n})")),
        },
        "clock faults",
        "sysctl kernel.yama.ptrace_scope=1",
    )
}

fn docker_workers() -> Finding {
    let root = nix::unistd::geteuid().is_root() && NetNs::create().is_ok();
    finding(
        "docker workers",
        root.then(|| "can be plugged into docker's bridges".to_string())
            .ok_or_else(|| "cannot be plugged into docker's bridges without root".into()),
        "--on docker",
        "run as root (sudo)",
    )
}

/// The servers that the local host would start from PATH.
fn servers() -> Vec<Finding> {
    let mut seen: Vec<&str> = Vec::new();
    let mut all = Vec::new();
    for recipe in RECIPES {
        let Some(server) = recipe.programs.first().filter(|p| !seen.contains(p)) else {
            continue;
        };
        seen.push(server);
        let package = images::package_of(server).unwrap_or(server);
        all.push(program(
            server,
            &format!("{} on the local host", recipe.name),
            &format!("apt-get install {package}"),
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn what_is_missing_says_how_to_bring_it() {
        let all = examine().await;
        assert!(all.iter().any(|f| f.name == "namespaces"));
        assert!(all.iter().any(|f| f.name == "redis-server"));
        for f in all {
            assert_eq!(f.ok, f.fix.is_empty(), "{f:?}");
            assert!(!f.detail.is_empty() && !f.needed_for.is_empty());
        }
    }
}
