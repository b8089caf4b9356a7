//! No servers at all: the worker grants every lock to itself. Shows what the harness costs.

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;

use super::{ClientInit, Facts, Params, Service, System, SystemError};
use crate::host::{NodeSpec, Site};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Noop {}

pub(super) fn make(params: Params) -> Result<Box<dyn System>, SystemError> {
    Ok(Box::new(super::params::<Noop>("noop", params)?))
}

#[async_trait]
impl System for Noop {
    fn facts(&self) -> Facts {
        Facts {
            fence: true,
            ..Facts::leased("noop")
        }
    }

    fn nodes(&self, _site: &Site) -> Vec<NodeSpec> {
        Vec::new()
    }

    fn client(&self, _site: &Site) -> ClientInit {
        ClientInit {
            name: "noop".into(),
            endpoints: Vec::new(),
            params: Params::new(),
        }
    }

    fn port(&self, _node: usize) -> Option<u16> {
        None
    }

    async fn join(&self, _site: &Site, _within: Duration) -> Result<Service, SystemError> {
        Ok(Service {
            version: env!("CARGO_PKG_VERSION").into(),
            ..Service::default()
        })
    }
}
