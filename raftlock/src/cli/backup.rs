//! `raftlock snapshot | restore`: snapshots on a node, backups off it, and a cluster anew from one.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use raftlock::backup::{Backup, begin_with};
use raftlock::wal::RealDir;
use tempfile::NamedTempFile;

use super::look::{NodeArgs, admin};

/// Write snapshots of all groups of a node now, and with --out a backup to a file here
#[derive(Debug, clap::Args)]
pub struct SnapshotArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// Fetch a backup of all groups into this file
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Make a new replica's directory from a backup; do it alike for every replica of the new cluster, before its first start
///
/// Start the cluster no sooner than the longest TTL after the old one stopped: until then clients may hold what was
/// granted after the backup.
#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// The backup
    file: PathBuf,
    /// The new replica's directory
    #[arg(long)]
    data: PathBuf,
    /// Top 16 bits of all tokens from now on: above that of every earlier restore, 1 at the first
    #[arg(long)]
    restore_epoch: u16,
    /// Begin without sessions and locks: a client that gave a lock back after the backup would still seem to hold it for
    /// as long as it keeps its session alive
    #[arg(long)]
    without_sessions: bool,
}

/// Writes a backup, or lets the node write its snapshots.
pub async fn snapshot(args: SnapshotArgs) -> anyhow::Result<()> {
    let Some(out) = args.out else {
        return admin(args.node, "snapshot").await;
    };
    let security = args.node.secure.security();
    let url = format!("{}/v1/admin/backup", security.base_url(&args.node.node)?);
    let response = security
        .http(Some(Duration::from_secs(300)))?
        .get(&url)
        .send()
        .await?;
    let (status, bytes) = (response.status(), response.bytes().await?);
    if !status.is_success() {
        bail!("{url}: {status}: {}", String::from_utf8_lossy(&bytes));
    }
    let (backup, _) = Backup::from_bytes(&bytes).context("what the node sent")?;
    keep(&out, &bytes).with_context(|| format!("cannot write {}", out.display()))?;
    println!(
        "{} groups, {} bytes in {}",
        backup.groups(),
        bytes.len(),
        out.display()
    );
    Ok(())
}

/// Whole or not at all, and for its owner's eyes: it names sessions and locks.
fn keep(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Makes the directory.
pub fn restore(args: &RestoreArgs) -> anyhow::Result<()> {
    let (file, data) = (args.file.display(), args.data.display());
    let bytes = std::fs::read(&args.file).with_context(|| format!("cannot read {file}"))?;
    let (backup, _) = Backup::from_bytes(&bytes).with_context(|| file.to_string())?;
    let restored = backup.restored(args.restore_epoch, !args.without_sessions)?;
    let dir = RealDir::open(&args.data).with_context(|| data.to_string())?;
    begin_with(&dir, &restored).with_context(|| data.to_string())?;
    println!(
        "{} groups in {data}; start it with --groups {}",
        restored.groups(),
        restored.groups()
    );
    Ok(())
}
