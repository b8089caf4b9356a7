//! The trait that every fault implements.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::env::Env;
use crate::process::{Proc, ProcId};
use crate::receipt::{Kind, Reason, Receipt};
use crate::target::Targets;

/// A boxed future, so that the traits here can be objects.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One fault to install, as the schedule drew it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// `f1`, `f2`, … unique in the run.
    pub id: String,
    /// Name in the registry.
    pub fault: String,
    pub targets: Targets,
    #[serde(default)]
    pub params: Map<String, Value>,
    /// Seed for everything that this fault draws: targets, groups, packets.
    pub draw: u64,
    /// The lock that the triggering event or the plan names: what `holder` speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<Arc<str>>,
    /// The worker whose event triggered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<u32>,
}

impl Order {
    /// The generator of this order: the same for the same `draw`.
    pub fn rng(&self) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.draw)
    }
}

/// A configured fault. Built from an order's `params` by the [registry](crate::registry).
///
/// `install` never says `installed` because a command was attempted: it reads the effect back.
pub trait Fault: Send + Sync {
    fn kind(&self) -> Kind;

    /// Whether it can be done here at all. Its refusal becomes `skipped(reason)`.
    ///
    /// # Errors
    /// What is missing, with a hint.
    fn available(&self, env: &dyn Env, order: &Order, targets: &[Proc]) -> Result<(), Reason>;

    /// Installs it, and reads back that it took hold.
    fn install<'a>(
        &'a self,
        env: &'a dyn Env,
        order: &'a Order,
        targets: &'a [Proc],
    ) -> Fut<'a, Installed>;

    /// Whether a server that it is aimed at may end by itself because of it, then or later: a full disk, a
    /// disk that has forgotten something. Any other server that ends is a finding.
    fn may_end(&self) -> bool {
        false
    }

    /// Every worker and node whose running, traffic or clock it bends; the targets by default.
    fn affects(&self, _env: &dyn Env, _order: &Order, targets: &[Proc]) -> Vec<ProcId> {
        targets.iter().map(|p| p.id).collect()
    }
}

/// What an install leaves behind: a receipt, and a handle whenever there is anything to undo
/// (also when the receipt is indeterminate).
pub struct Installed {
    pub receipt: Receipt,
    pub handle: Option<Box<dyn Handle>>,
}

impl Installed {
    /// Nothing was done, so that nothing needs undoing.
    pub fn nothing(receipt: Receipt) -> Self {
        Installed {
            receipt,
            handle: None,
        }
    }

    pub fn new(receipt: Receipt, handle: impl Handle + 'static) -> Self {
        Installed {
            receipt,
            handle: Some(Box::new(handle)),
        }
    }
}

/// A fault that holds. Dropping it heals as well as can be done without waiting
/// and without proof: [`Handle::heal`] is the normal way.
pub trait Handle: Send {
    /// Undoes the fault and reads back that it is gone. After it, dropping does nothing.
    fn heal<'a>(&'a mut self, env: &'a dyn Env) -> Fut<'a, Receipt>;
}
