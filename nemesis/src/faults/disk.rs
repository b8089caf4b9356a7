//! Fills the file system under a node's data directory.
//!
//! Only where that file system is small and the node's own (a tmpfs that the host mounted for
//! it): never the machine's disk. Proof: a write there fails with ENOSPC, and succeeds after healing.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, json};

use crate::env::Env;
use crate::fault::{Fault, Fut, Handle, Installed, Order};
use crate::process::{Proc, ProcId};
use crate::receipt::{Kind, Reason, Receipt};

pub const ABOUT: &str = "fill the disk under a node's data (a small file system of its own)";

/// A larger file system is not one that was made for this.
const LARGEST: u64 = 1 << 30;
const FILL: &str = ".fencepost-fill";
const PROBE: &str = ".fencepost-probe";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Disk {
    /// Bytes left free.
    leave: u64,
}

impl Fault for Disk {
    fn kind(&self) -> Kind {
        Kind::Disk
    }

    fn may_end(&self) -> bool {
        true
    }

    fn available(&self, env: &dyn Env, _order: &Order, targets: &[Proc]) -> Result<(), Reason> {
        targets.iter().try_for_each(|p| place(env, p).map(|_| ()))
    }

    fn install<'a>(
        &'a self,
        env: &'a dyn Env,
        _order: &'a Order,
        targets: &'a [Proc],
    ) -> Fut<'a, Installed> {
        Box::pin(async move {
            let mut full = Full { files: Vec::new() };
            let mut evidence = Map::new();
            for p in targets {
                match place(env, p).and_then(|dir| full.fill(p.id, &dir, self.leave)) {
                    Ok(bytes) => evidence.insert(p.id.to_string(), json!({ "filled": bytes })),
                    Err(r) => return Installed::nothing(Receipt::indeterminate(r)),
                };
            }
            Installed::new(Receipt::installed().evidence(evidence), full)
        })
    }
}

/// The data directory of a node, as we reach it, if it may be filled.
fn place(env: &dyn Env, p: &Proc) -> Result<PathBuf, Reason> {
    let dir = env.data_dir().and_then(|d| d.data_dir(p.id));
    let dir = dir.ok_or_else(|| Reason(format!("{} has no data directory", p.id)))?;
    let root = PathBuf::from(format!("/proc/{}/root", p.root));
    let reached = root.join(dir.strip_prefix("/").unwrap_or(&dir));
    let device = |path: &Path| {
        fs::metadata(path)
            .map(|m| m.dev())
            .map_err(|e| Reason(format!("{}: {e}", dir.display())))
    };
    let size = size_of(&reached)?;
    if device(&reached)? == device(&root)? || size > LARGEST {
        return Err(Reason(format!(
            "the data of {} is not on a small file system of its own: give its node a tmpfs",
            p.id
        )));
    }
    Ok(reached)
}

fn size_of(dir: &Path) -> Result<u64, Reason> {
    let s = nix::sys::statvfs::statvfs(dir)?;
    Ok(s.blocks() * s.fragment_size())
}

fn free(dir: &Path) -> Result<u64, Reason> {
    let s = nix::sys::statvfs::statvfs(dir)?;
    Ok(s.blocks_free() * s.fragment_size())
}

/// Whether a page more can be written there.
fn writable(dir: &Path) -> Result<(), std::io::Error> {
    let path = dir.join(PROBE);
    let done = File::create(&path).and_then(|mut f| {
        f.write_all(&[0x5a; 8192])?;
        f.sync_all()
    });
    // Where it could not even be created there is nothing to remove.
    let _ = fs::remove_file(&path);
    done
}

/// File systems that are full; dropping it makes room again.
struct Full {
    files: Vec<(ProcId, PathBuf, File)>,
}

impl Full {
    fn fill(&mut self, id: ProcId, dir: &Path, leave: u64) -> Result<u64, Reason> {
        self.fill_with(id, dir, leave, allocate)
    }

    fn fill_with(
        &mut self,
        id: ProcId,
        dir: &Path,
        leave: u64,
        allocate: fn(&File, u64, u64) -> i32,
    ) -> Result<u64, Reason> {
        writable(dir).map_err(|e| Reason(format!("{id}: no write possible before: {e}")))?;
        let path = dir.join(FILL);
        let file = File::create(&path)?;
        // Reached later through the open directory, also when the node's process is another.
        self.files.push((id, path, file.try_clone()?));
        let mut filled = 0;
        let mut step = free(dir)?.saturating_sub(leave).max(4096);
        while step >= 4096 && free(dir)? > leave {
            if allocate(&file, filled, step) == 0 {
                filled += step;
            } else {
                step /= 2;
            }
        }
        match writable(dir) {
            Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => Ok(filled),
            Err(e) => Err(Reason(format!(
                "{id}: writes fail, but not for want of room: {e}"
            ))),
            Ok(()) if leave >= 8192 => Ok(filled),
            Ok(()) => Err(Reason(format!("{id}: there is still room to write"))),
        }
    }

    fn empty(&mut self) -> Result<Vec<(ProcId, PathBuf)>, Reason> {
        let mut done = Vec::new();
        for (id, path, file) in self.files.drain(..) {
            // Frees the blocks even where the path leads elsewhere by now.
            file.set_len(0)?;
            match fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
                _ => done.push((id, path)),
            }
        }
        Ok(done)
    }
}

fn allocate(file: &File, from: u64, len: u64) -> i32 {
    let (from, len) = (from.cast_signed(), len.cast_signed());
    // SAFETY: a plain system call on an open descriptor.
    unsafe { libc::posix_fallocate(file.as_raw_fd(), from, len) }
}

impl Handle for Full {
    fn heal<'a>(&'a mut self, _env: &'a dyn Env) -> Fut<'a, Receipt> {
        Box::pin(async move {
            let freed = match self.empty() {
                Ok(freed) => freed,
                Err(r) => return Receipt::indeterminate(r),
            };
            let mut evidence = Map::new();
            for (id, path) in freed {
                let Some(dir) = path.parent().filter(|d| d.is_dir()) else {
                    evidence.insert(id.to_string(), json!({ "gone": true }));
                    continue;
                };
                if let Err(e) = writable(dir) {
                    return Receipt::indeterminate(Reason(format!("{id}: still no write: {e}")));
                }
                evidence.insert(id.to_string(), json!({ "free": free(dir).unwrap_or(0) }));
            }
            Receipt::healed().evidence(evidence)
        })
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        // Without a report there is nobody to tell; the file system ends with the run anyway.
        let _ = self.empty();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::*;
    use crate::env::DataDir;
    use crate::receipt::Status;
    use crate::testing::{Started, block_on, order};

    struct Node(Proc);

    impl Env for Node {
        fn run_id(&self) -> &'static str {
            "t"
        }
        fn procs(&self) -> Vec<Proc> {
            vec![self.0.clone()]
        }
        fn ttl(&self) -> std::time::Duration {
            std::time::Duration::from_secs(1)
        }
        fn data_dir(&self) -> Option<&dyn DataDir> {
            Some(self)
        }
    }

    impl DataDir for Node {
        fn data_dir(&self, _id: ProcId) -> Option<PathBuf> {
            Some("/mnt".into())
        }
    }

    /// A process with a tmpfs of 2 MiB of its own on /mnt.
    fn node() -> Option<(Started, Node)> {
        let script = "mount -t tmpfs -o size=2m none /mnt && exec sleep 600";
        let s = Started::new(Command::new("unshare").args(["--mount", "sh", "-c", script]));
        let n = Node(s.proc(ProcId::Node(0)));
        for _ in 0..500 {
            if place(&n, &n.0).is_ok() {
                return Some((s, n));
            }
            std::thread::sleep(std::time::Duration::from_millis(4));
        }
        eprintln!("skipped: no mount namespaces here");
        None
    }

    #[test]
    fn fills_and_frees() {
        let Some((_s, n)) = node() else { return };
        let o = order("disk", "node:0", json!({}));
        let targets = [n.0.clone()];
        let dir = place(&n, &n.0).unwrap();
        fs::write(dir.join("data"), "kept").unwrap();
        block_on(async {
            let before = free(&dir).unwrap();
            let mut done = Disk::default().install(&n, &o, &targets).await;
            assert_eq!(done.receipt.status, Status::Installed, "{:?}", done.receipt);
            let e = fs::write(dir.join("more"), [1; 100]).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::ENOSPC));
            let healed = done.handle.as_mut().unwrap().heal(&n).await;
            assert_eq!(healed.status, Status::Healed, "{healed:?}");
            let _ = fs::remove_file(dir.join("more"));
            assert_eq!(free(&dir).unwrap(), before);
            drop(Disk::default().install(&n, &o, &targets).await);
            assert_eq!(free(&dir).unwrap(), before, "dropping frees");
        });
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(dir.join("data")).unwrap(), "kept");
    }

    #[test]
    fn a_fill_that_does_not_fill_is_not_called_installed() {
        let Some((_s, n)) = node() else { return };
        let dir = place(&n, &n.0).unwrap();
        let mut full = Full { files: Vec::new() };
        let nothing = full.fill_with(ProcId::Node(0), &dir, 0, |_, _, _| libc::EIO);
        assert!(nothing.unwrap_err().0.contains("still room"));
        drop(full);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }

    #[test]
    fn a_server_may_end_on_a_full_disk() {
        assert!(Disk::default().may_end());
    }

    #[test]
    fn the_machines_own_disk_is_refused() {
        let s = Started::shell("sleep 600");
        let n = Node(s.proc(ProcId::Node(0)));
        let o = order("disk", "node:0", json!({}));
        assert!(
            Disk::default()
                .available(&n, &o, std::slice::from_ref(&n.0))
                .is_err()
        );
    }
}
