//! The parts of `report.html`. One panel is one file here and its name in the
//! list below (docs/adding-a-panel.md); the page shows them in this order.

use crate::ReportError;
use crate::load::Run;

/// One part of the page.
pub struct Panel {
    /// Anchor of the section, unique on the page.
    pub id: &'static str,
    pub title: &'static str,
    /// HTML of the section's body, everything from the run escaped; `None`
    /// when the run gives it nothing to show.
    pub body: fn(&Run) -> Result<Option<String>, ReportError>,
}

macro_rules! panels {
    ($($name:ident),* $(,)?) => {
        $(mod $name;)*
        pub const ALL: &[Panel] = &[$($name::PANEL),*];
    };
}

panels![
    story,
    verdicts,
    performance,
    faults,
    phases,
    events,
    scenario,
    repeat,
];
