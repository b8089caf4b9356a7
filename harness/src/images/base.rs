//! A bare Debian: pulled where a registry answers, else made by debootstrap.

use std::{path::Path, process::Stdio, time::Duration};

use bollard::{Docker, query_parameters::CreateImageOptionsBuilder};
use futures_util::{StreamExt, stream};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{ChildStdout, Command},
};
use tokio_util::bytes::Bytes;

use super::Say;
use crate::host::HostError;

/// Registries that do not answer shall not hold up a build.
const PULL_WITHIN: Duration = Duration::from_secs(30);

/// The name of an image of that release, made or pulled if it is not there.
pub(super) async fn ensure(docker: &Docker, suite: &str, say: &Say) -> Result<String, HostError> {
    let ours = format!("fencepost/debian:{suite}");
    let theirs = format!("debian:{suite}-slim");
    for name in [&ours, &theirs] {
        if docker.inspect_image(name).await.is_ok() {
            return Ok(name.clone());
        }
    }
    say.line(&format!("pulling {theirs}"));
    match pull(docker, &theirs, say).await {
        Ok(()) => return Ok(theirs),
        Err(reason) => say.line(&format!("no registry ({reason}): debootstrap instead")),
    }
    debootstrap(docker, suite, &ours, say).await?;
    Ok(ours)
}

/// Pulls an image by its name.
pub(super) async fn pull(docker: &Docker, name: &str, say: &Say) -> Result<(), String> {
    let (from, tag) = match name.rsplit_once(':') {
        Some((from, tag)) if !tag.contains('/') => (from, tag),
        _ => (name, "latest"),
    };
    let options = CreateImageOptionsBuilder::default()
        .from_image(from)
        .tag(tag)
        .build();
    let mut stream = Box::pin(docker.create_image(Some(options), None, None));
    loop {
        let next = tokio::time::timeout(PULL_WITHIN, stream.next()).await;
        let progress = match next.map_err(|_| format!("silent for {PULL_WITHIN:?}"))? {
            None => return Ok(()),
            Some(progress) => progress.map_err(|e| e.to_string())?,
        };
        if let Some(status) = progress.status {
            say.line(&format!("{name}: {status}"));
        }
    }
}

async fn debootstrap(docker: &Docker, suite: &str, name: &str, say: &Say) -> Result<(), HostError> {
    let unavailable = |reason: String, hint: &str| HostError::Unavailable {
        what: format!("a base image of Debian {suite}"),
        reason,
        hint: hint.into(),
    };
    if !nix::unistd::geteuid().is_root() {
        let hint = "run `fencepost images build` as root once, or pull the image";
        return Err(unavailable("debootstrap needs root".into(), hint));
    }
    let Some(program) = crate::host::spawn::find_program("debootstrap") else {
        let hint = "apt-get install debootstrap";
        return Err(unavailable("no registry answers".into(), hint));
    };
    let dir = tempfile::tempdir().map_err(HostError::io("a temporary directory"))?;
    let root = dir.path().join("root");
    say.line(&format!("debootstrap {suite}: about a minute"));
    let mut command = Command::new(program);
    command.arg("--variant=minbase").arg(suite).arg(&root);
    if let Ok(mirror) = std::env::var("FENCEPOST_DEBIAN_MIRROR") {
        command.arg(mirror);
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(HostError::io("debootstrap"))?;
    let last = tell_lines(child.stdout.take(), say).await;
    let status = child.wait().await.map_err(HostError::io("debootstrap"))?;
    if !status.success() {
        let hint =
            "see whether a Debian mirror is reachable; FENCEPOST_DEBIAN_MIRROR names another";
        return Err(unavailable(format!("debootstrap {status}: {last}"), hint));
    }
    import(docker, &root, name, say).await
}

/// Passes lines on and answers the last one.
async fn tell_lines(out: Option<ChildStdout>, say: &Say) -> String {
    let mut last = String::new();
    let Some(out) = out else { return last };
    let mut lines = BufReader::new(out).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        say.line(&line);
        last = line;
    }
    last
}

/// As `tar | docker import` does.
async fn import(docker: &Docker, root: &Path, name: &str, say: &Say) -> Result<(), HostError> {
    say.line(&format!("importing {name}"));
    // No service shall start while packages are installed on top of it.
    let policy = root.join("usr/sbin/policy-rc.d");
    std::fs::write(&policy, "#!/bin/sh\nexit 101\n").map_err(HostError::io(policy.display()))?;
    make_executable(&policy).map_err(HostError::io(policy.display()))?;
    let mut tar = Command::new("tar")
        .args([
            "--numeric-owner",
            "--exclude=./var/cache/apt/archives/*.deb",
            "-c",
            "-C",
        ])
        .arg(root)
        .arg(".")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(HostError::io("tar"))?;
    let out = tar.stdout.take();
    let body = stream::unfold(out, |out| async move {
        let mut out = out?;
        let mut chunk = vec![0; 1 << 18];
        let n = out.read(&mut chunk).await.ok().filter(|n| *n > 0)?;
        chunk.truncate(n);
        Some((Bytes::from(chunk), Some(out)))
    });
    let (repo, tag) = name.split_once(':').unwrap_or((name, "latest"));
    let options = CreateImageOptionsBuilder::default()
        .from_src("-")
        .repo(repo)
        .tag(tag)
        .build();
    let body = bollard::body_stream(body);
    let mut done = Box::pin(docker.create_image(Some(options), Some(body), None));
    while let Some(step) = done.next().await {
        step.map_err(|e| crate::host::docker_error("import", &e))?;
    }
    let status = tar.wait().await.map_err(HostError::io("tar"))?;
    if status.success() {
        return Ok(());
    }
    Err(HostError::Docker {
        what: format!("import of {name}"),
        reason: format!("tar ended with {status}"),
    })
}

fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}
