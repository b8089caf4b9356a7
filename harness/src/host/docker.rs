//! docker
use super::*;
use async_trait::async_trait;
use std::sync::Arc;
pub struct Docker;
impl Docker {
    pub async fn open(_o: HostOptions) -> Result<Self, HostError> {
        Err(HostError::Docker {
            what: "".into(),
            reason: "".into(),
        })
    }
}
#[async_trait]
impl Host for Docker {
    fn site(&self) -> &Site {
        unimplemented!()
    }
    async fn start_node(&self, _index: usize, _spec: NodeSpec) -> Result<Arc<Unit>, HostError> {
        unimplemented!()
    }
    async fn kill_node(&self, _index: usize) -> Result<(), HostError> {
        unimplemented!()
    }
    async fn restart_node(&self, _index: usize, _data: DataFate) -> Result<(), HostError> {
        unimplemented!()
    }
    async fn snapshot_node(&self, _index: usize, _label: &str) -> Result<(), HostError> {
        unimplemented!()
    }
    async fn start_process(&self, _spec: ProcessSpec) -> Result<Process, HostError> {
        unimplemented!()
    }
    async fn stop(&self) -> Result<(), HostError> {
        unimplemented!()
    }
}
