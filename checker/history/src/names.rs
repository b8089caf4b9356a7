//! The words of a history (docs/history-format.md says what each carries).

pub const ACQUIRE: &str = "acquire";
pub const RENEW: &str = "renew";
pub const RELEASE: &str = "release";
pub const READ: &str = "read";
pub const WRITE: &str = "write";
pub const ADD: &str = "add";

/// Events of named processes.
pub const CLAIMS: &str = "claims";
pub const LOST: &str = "lost";
pub const POINT: &str = "point";
pub const QUEUED: &str = "queued";
pub const WOKEN: &str = "woken";
pub const FAULT: &str = "fault";
pub const PHASE: &str = "phase";
pub const EXIT: &str = "exit";
pub const CLOSE: &str = "close";

pub const NEMESIS: &str = "nemesis";
pub const CONTROLLER: &str = "controller";
