//! The models by name.

use crate::options::CheckError;

/// Names that [`ModelKind`] understands, as a person would type them.
pub const NAMES: &[&str] = &[
    "mutex",
    "owner-mutex",
    "reentrant[:limit]",
    "fenced-mutex",
    "fenced-mutex-leased",
    "reentrant-fenced[:keep|raise]",
    "shared",
    "semaphore:permits",
    "weighted-semaphore:permits",
    "register",
    "cas-register",
    "fenced-register[:raise]",
    "kv",
    "multi-register",
    "queue",
    "set",
];

/// A built-in model and its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// A lock that knows no owner: acquire and release alternate.
    Mutex,
    OwnerMutex,
    /// At most `limit` grants of one owner at a time.
    Reentrant {
        limit: u32,
    },
    /// A grant's fence is above every earlier one's; only a release frees.
    FencedMutex,
    /// As `FencedMutex`, but a lease may expire at any time.
    FencedMutexLeased,
    /// `raise`: a re-entrant grant gets a new fence; else it keeps its token.
    ReentrantFenced {
        raise: bool,
    },
    Shared,
    /// Owner-less: a release gives back one permit.
    Semaphore {
        permits: u32,
    },
    /// Owner-aware, with weights.
    WeightedSemaphore {
        permits: u32,
    },
    Register,
    CasRegister,
    /// `raise`: a read with a fence raises the highest fence too.
    FencedRegister {
        raise: bool,
    },
    Kv,
    MultiRegister,
    Queue,
    Set,
}

impl std::str::FromStr for ModelKind {
    type Err = CheckError;

    fn from_str(s: &str) -> Result<Self, CheckError> {
        let unknown = || CheckError::UnknownModel(s.to_string());
        let (name, arg) = match s.split_once(':') {
            Some((n, a)) => (n, Some(a)),
            None => (s, None),
        };
        let number = |default: Option<u32>| match arg {
            Some(a) => a.parse::<u32>().ok().filter(|n| *n > 0).ok_or_else(unknown),
            None => default.ok_or_else(unknown),
        };
        let flag = |no: &str, yes: &str| match arg {
            None => Ok(false),
            Some(a) if a == no => Ok(false),
            Some(a) if a == yes => Ok(true),
            Some(_) => Err(unknown()),
        };
        let kind = match name {
            "reentrant" | "reentrant-mutex" => ModelKind::Reentrant {
                limit: number(Some(u32::MAX))?,
            },
            "reentrant-fenced" => ModelKind::ReentrantFenced {
                raise: flag("keep", "raise")?,
            },
            "semaphore" => ModelKind::Semaphore {
                permits: number(None)?,
            },
            "weighted-semaphore" => ModelKind::WeightedSemaphore {
                permits: number(None)?,
            },
            "fenced-register" => ModelKind::FencedRegister {
                raise: flag("keep", "raise")?,
            },
            _ if arg.is_some() => return Err(unknown()),
            "mutex" => ModelKind::Mutex,
            "owner-mutex" | "owner-aware-mutex" => ModelKind::OwnerMutex,
            "fenced-mutex" => ModelKind::FencedMutex,
            "fenced-mutex-leased" | "leased-fenced-mutex" => ModelKind::FencedMutexLeased,
            "shared" | "rw-lock" | "shared-exclusive" => ModelKind::Shared,
            "register" => ModelKind::Register,
            "cas-register" => ModelKind::CasRegister,
            "kv" => ModelKind::Kv,
            "multi-register" => ModelKind::MultiRegister,
            "queue" => ModelKind::Queue,
            "set" => ModelKind::Set,
            _ => return Err(unknown()),
        };
        Ok(kind)
    }
}
