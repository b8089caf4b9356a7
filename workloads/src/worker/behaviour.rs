//! How a worker treats its leases: params of the system that it understands
//! whatever the lock client.

use std::time::Duration;

use super::grants::Margin;
use crate::locks::{ConfError, param};
use crate::protocol::Params;

#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// `watchdog`: renew at a third of the TTL. Default true.
    pub watchdog: bool,
    /// `deadline_check`: refuse to write past the own deadline. Default true.
    pub deadline_check: bool,
    /// `margin_ms`: see [`Margin`].
    pub margin: Margin,
    /// Whether the own deadline ends a grant. Off in the bugs A10, A26, A27, A34.
    pub own_deadline: bool,
    /// The watchdog ends silently after so many renewals (A10, A34).
    pub renewals: Option<u32>,
    /// A write is answered at once and goes out after the release (A25).
    pub works_on: bool,
    /// The watchdog hangs for ever in a renewal without an answer (A26).
    pub hangs: bool,
}

impl Behaviour {
    /// # Errors
    /// A parameter of the wrong kind.
    pub fn from(params: &Params) -> Result<Self, ConfError> {
        let margin: Option<u64> = param(params, "margin_ms", None)?;
        let bug: Option<String> = param(params, "bug", None)?;
        let is = |ids: &[&str]| bug.as_deref().is_some_and(|b| ids.contains(&b));
        Ok(Behaviour {
            watchdog: param(params, "watchdog", true)?,
            deadline_check: param(params, "deadline_check", true)?,
            margin: Margin(margin.map(Duration::from_millis)),
            own_deadline: !is(&["A10", "A26", "A27", "A34"]),
            renewals: is(&["A10", "A34"]).then_some(1),
            works_on: is(&["A25"]),
            hangs: is(&["A26"]),
        })
    }
}
