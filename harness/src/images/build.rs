//! Packages on top of a bare Debian, committed under a tag that follows the recipe.

use std::collections::HashMap;

use bollard::{
    Docker,
    container::LogOutput,
    models::{ContainerConfig, ContainerCreateBody, ImageInspect},
    query_parameters::{
        CommitContainerOptionsBuilder, CreateContainerOptionsBuilder, ListContainersOptionsBuilder,
        LogsOptionsBuilder, RemoveContainerOptionsBuilder, StartContainerOptions,
        WaitContainerOptions,
    },
};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use super::{Recipe, Say, base};
use crate::host::{HostError, docker_error};

/// Containers in which images are made are called this and the pid of who makes them. (A label would be the image's
/// too, and every container's that is made from it.)
const BUILD_NAME: &str = "fencepost-build-";
const PACKAGES_LABEL: &str = "fencepost.packages";
const BASE_LABEL: &str = "fencepost.base";
const MARK: &str = "fencepost-version: ";

/// Run in the bare image; its arguments are the packages.
pub(super) const SCRIPT: &str = r#"
export DEBIAN_FRONTEND=noninteractive
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
if [ $# -gt 0 ]; then
  apt-get update -q
  mkdir -p /usr/share/man/man1
  apt-get install -y -q --no-install-recommends "$@"
  apt-get clean
  rm -rf /var/lib/apt/lists/*
  for tool in /usr/lib/postgresql/*/bin/*; do
    [ ! -x "$tool" ] || ln -sf "$tool" /usr/local/bin/
  done
  dpkg-query -W -f 'fencepost-version: ${Package} ${Version}\n' "$@"
fi
"#;

/// What a node of a run was started from: for `run.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub name: String,
    pub id: String,
    /// The image that it was built on; empty where it was not built here.
    pub base: String,
    /// `package version`, as dpkg says.
    pub packages: Vec<String>,
}

/// The recipe's image, built if it is not there.
///
/// # Errors
/// Without a registry, root or a Debian mirror, or when a package does not install.
pub async fn ensure(docker: &Docker, recipe: &Recipe, say: &Say) -> Result<Image, HostError> {
    let tag = recipe.tag();
    if let Ok(found) = docker.inspect_image(&tag).await {
        return Ok(describe(&tag, found));
    }
    say.line(&format!("building the image of {} (once)", recipe.name));
    let base = base::ensure(docker, recipe.base, say).await?;
    build(docker, recipe, &base, &tag, say).await?;
    let made = docker.inspect_image(&tag).await;
    made.map(|i| describe(&tag, i))
        .map_err(|e| docker_error(&tag, &e))
}

/// Somebody else's image, pulled if it is not there.
///
/// # Errors
/// When it is not there and no registry has it.
pub async fn named(docker: &Docker, name: &str, say: &Say) -> Result<Image, HostError> {
    if docker.inspect_image(name).await.is_err() {
        base::pull(docker, name, say)
            .await
            .map_err(|reason| HostError::Unavailable {
                what: format!("image {name}"),
                reason: format!("not here, and the pull failed: {reason}"),
                hint: "leave out --image to use one built from Debian packages".into(),
            })?;
    }
    let found = docker.inspect_image(name).await;
    found
        .map(|i| describe(name, i))
        .map_err(|e| docker_error(name, &e))
}

fn describe(name: &str, found: ImageInspect) -> Image {
    let labels = found.config.and_then(|c| c.labels).unwrap_or_default();
    let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
    let packages = label(PACKAGES_LABEL);
    Image {
        name: name.into(),
        id: found.id.unwrap_or_default(),
        base: label(BASE_LABEL),
        packages: packages
            .split(", ")
            .filter(|p| !p.is_empty())
            .map(Into::into)
            .collect(),
    }
}

async fn build(
    docker: &Docker,
    recipe: &Recipe,
    base: &str,
    tag: &str,
    say: &Say,
) -> Result<(), HostError> {
    let mut cmd: Vec<String> = ["sh", "-ec", SCRIPT, "build"].map(Into::into).into();
    cmd.extend(recipe.packages.iter().map(ToString::to_string));
    let body = ContainerCreateBody {
        image: Some(base.into()),
        cmd: Some(cmd),
        env: Some(proxy_env()),
        ..ContainerCreateBody::default()
    };
    let own = format!("{BUILD_NAME}{}-{}", std::process::id(), recipe.name);
    let options = CreateContainerOptionsBuilder::default().name(&own).build();
    let made = docker.create_container(Some(options), body).await;
    let id = made
        .map_err(|e| docker_error("container for a build", &e))?
        .id;
    let result = run_and_commit(docker, &id, base, tag, say).await;
    remove(docker, &id).await;
    result
}

async fn run_and_commit(
    docker: &Docker,
    id: &str,
    base: &str,
    tag: &str,
    say: &Say,
) -> Result<(), HostError> {
    let fail = |e: bollard::errors::Error| docker_error(tag, &e);
    docker
        .start_container(id, None::<StartContainerOptions>)
        .await
        .map_err(fail)?;
    let mut packages = Vec::new();
    let mut last = String::new();
    let follow = LogsOptionsBuilder::default()
        .follow(true)
        .stdout(true)
        .stderr(true)
        .build();
    let mut logs = Box::pin(docker.logs(id, Some(follow)));
    while let Some(Ok(output)) = logs.next().await {
        for line in text(&output)
            .lines()
            .filter(|l| !l.trim().is_empty() && !l.starts_with("(Reading"))
        {
            match line.strip_prefix(MARK) {
                Some(package) => packages.push(package.to_string()),
                None => say.line(line),
            }
            last = line.into();
        }
    }
    let mut wait = Box::pin(docker.wait_container(id, None::<WaitContainerOptions>));
    if let Some(Err(e)) = wait.next().await {
        return Err(HostError::Docker {
            what: format!("building {tag}"),
            reason: format!("{e}: {last}"),
        });
    }
    let (repo, version) = tag.split_once(':').unwrap_or((tag, "latest"));
    let options = CommitContainerOptionsBuilder::default()
        .container(id)
        .repo(repo)
        .tag(version)
        .build();
    let config = ContainerConfig {
        labels: Some(HashMap::from([
            (PACKAGES_LABEL.to_string(), packages.join(", ")),
            (BASE_LABEL.to_string(), base.to_string()),
        ])),
        cmd: Some(vec!["sh".into()]),
        ..ContainerConfig::default()
    };
    docker
        .commit_container(options, config)
        .await
        .map(|_| ())
        .map_err(fail)
}

fn text(output: &LogOutput) -> String {
    String::from_utf8_lossy(output.as_ref()).into_owned()
}

/// A machine that reaches the mirror through a proxy does so in the container too.
fn proxy_env() -> Vec<String> {
    ["http_proxy", "https_proxy", "no_proxy"]
        .iter()
        .filter_map(|k| Some(format!("{k}={}", std::env::var(k).ok()?)))
        .collect()
}

async fn remove(docker: &Docker, id: &str) {
    let options = RemoveContainerOptionsBuilder::default()
        .force(true)
        .v(true)
        .build();
    if let Err(e) = docker.remove_container(id, Some(options)).await {
        tracing::warn!("container {id} of a build is left: {e}");
    }
}

/// Removes the containers of builds whose process is gone. Answers how many.
pub async fn remove_leftovers(docker: &Docker) -> usize {
    let filters = HashMap::from([("name", vec![BUILD_NAME])]);
    let options = ListContainersOptionsBuilder::default()
        .all(true)
        .filters(&filters)
        .build();
    let mut removed = 0;
    for c in docker
        .list_containers(Some(options))
        .await
        .unwrap_or_default()
    {
        let owner = c.names.unwrap_or_default().iter().find_map(|n| maker(n));
        if let (Some(id), Some(pid)) = (c.id, owner)
            && !crate::host::proc::alive(pid)
        {
            remove(docker, &id).await;
            removed += 1;
        }
    }
    removed
}

/// The pid in the name of a container in which an image is made.
fn maker(name: &str) -> Option<i32> {
    let rest = name.trim_start_matches('/').strip_prefix(BUILD_NAME)?;
    rest.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_known_by_its_name_alone() {
        assert_eq!(maker("/fencepost-build-4711-redis"), Some(4711));
        assert_eq!(maker("/fencepost-ab12-redis-0"), None);
        assert_eq!(maker("/my-fencepost-build-4711"), None);
        assert_eq!(maker("/fencepost-build-mine"), None);
    }
}
