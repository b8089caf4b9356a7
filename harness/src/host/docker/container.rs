//! A node's container, before its program runs.

use std::{collections::HashMap, net::Ipv4Addr};

use bollard::{
    Docker,
    models::{
        ContainerCreateBody, EndpointIpamConfig, EndpointSettings, HostConfig, NetworkingConfig,
        RestartPolicy, RestartPolicyNameEnum,
    },
    query_parameters::{
        CreateContainerOptionsBuilder, InspectContainerOptions, StartContainerOptions,
    },
};

use super::{DATA, LABEL, docker_error};
use crate::host::{HostError, NodeSpec, UnitId};

/// Where this program is inside a container that runs it.
pub(super) const OURSELVES: &str = "/usr/local/bin/fencepost";

pub(super) struct Wanted<'a> {
    pub run_id: &'a str,
    pub network: &'a str,
    pub image: &'a str,
    pub addr: Ipv4Addr,
    pub id: UnitId,
    pub spec: &'a NodeSpec,
}

/// Creates and starts it. Answers its id and the pid of its first process as this machine sees it.
pub(super) async fn start(docker: &Docker, w: &Wanted<'_>) -> Result<(String, i32), HostError> {
    let name = format!("fencepost-{}-{}", w.run_id, w.id.file_name());
    let options = CreateContainerOptionsBuilder::default().name(&name).build();
    let made = docker.create_container(Some(options), body(w)).await;
    let id = made.map_err(|e| docker_error(&name, &e))?.id;
    docker
        .start_container(&id, None::<StartContainerOptions>)
        .await
        .map_err(|e| docker_error(&name, &e))?;
    let found = docker
        .inspect_container(&id, None::<InspectContainerOptions>)
        .await
        .map_err(|e| docker_error(&name, &e))?;
    let pid = found.state.and_then(|s| s.pid).unwrap_or(0);
    match i32::try_from(pid) {
        Ok(pid) if pid > 0 && std::path::Path::new(&format!("/proc/{pid}/ns/net")).exists() => {
            Ok((id, pid))
        }
        _ => Err(HostError::Unavailable {
            what: "host docker".into(),
            reason: "the engine's processes are not visible on this machine".into(),
            hint: "use an engine on this machine, or --on local".into(),
        }),
    }
}

fn body(w: &Wanted<'_>) -> ContainerCreateBody {
    let endpoint = EndpointSettings {
        ipam_config: Some(EndpointIpamConfig {
            ipv4_address: Some(w.addr.to_string()),
            ..EndpointIpamConfig::default()
        }),
        ..EndpointSettings::default()
    };
    ContainerCreateBody {
        image: Some(w.image.into()),
        hostname: Some(w.spec.name.clone()),
        entrypoint: Some(vec!["sleep".into(), "infinity".into()]),
        cmd: Some(Vec::new()),
        user: Some("root".into()),
        working_dir: Some("/".into()),
        labels: Some(HashMap::from([(LABEL.to_string(), w.run_id.to_string())])),
        volumes: w.spec.tmpfs_bytes.is_none().then(|| vec![DATA.into()]),
        host_config: Some(HostConfig {
            restart_policy: Some(RestartPolicy {
                name: Some(RestartPolicyNameEnum::NO),
                ..RestartPolicy::default()
            }),
            binds: ourselves(w.spec).map(|b| vec![b]),
            tmpfs: w.spec.tmpfs_bytes.map(|bytes| {
                HashMap::from([(DATA.to_string(), format!("size={bytes},mode=0755"))])
            }),
            network_mode: Some(w.network.into()),
            ..HostConfig::default()
        }),
        networking_config: Some(NetworkingConfig {
            endpoints_config: Some(HashMap::from([(w.network.to_string(), endpoint)])),
        }),
        ..ContainerCreateBody::default()
    }
}

/// A node that is this program brings it along.
fn ourselves(spec: &NodeSpec) -> Option<String> {
    if spec.program != "fencepost" {
        return None;
    }
    let exe = std::env::current_exe().ok()?;
    Some(format!("{}:{OURSELVES}:ro", exe.display()))
}
