//! Sessions: opening, ending, and the memory of answered requests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::flaw::{self, Flaw};

use super::{DRAWN, Effect, Ended, Machine, Name, Refusal, Reply, RequestId, SessionId, Token};

/// Answers remembered for each session, so that a repeated request gets the same one.
const REMEMBERED: usize = 128;

/// What a request asked for, as far as its answer must not be taken for that of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked(u32);

impl Asked {
    pub(super) fn acquire(name: &str) -> Self {
        Self(crc32fast::hash(name.as_bytes()))
    }

    pub(super) fn release(name: &str, token: Token) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(name.as_bytes());
        hasher.update(&[0]);
        hasher.update(&token.to_le_bytes());
        Self(hasher.finalize())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Answered {
    request: RequestId,
    asked: Asked,
    reply: Reply,
}

/// A client's session in one group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Granted TTL, ms.
    pub ttl_ms: u32,
    /// The client's own name, for people who look.
    pub label: Arc<str>,
    /// The namespace of its locks.
    pub namespace: Name,
    /// Its grants, by token (in order of the grants).
    pub held: BTreeMap<Token, Name>,
    /// Its places in queues: request → (lock, place).
    pub waits: BTreeMap<RequestId, (Name, u64)>,
    /// The requests of its grants: they are answered as long as they are held, however many others were since.
    pub(super) granted: BTreeMap<RequestId, Token>,
    answered: VecDeque<Answered>,
}

impl Session {
    pub(super) fn new(ttl_ms: u32, label: &Arc<str>, namespace: &Name) -> Self {
        Session {
            ttl_ms,
            label: Arc::clone(label),
            namespace: Arc::clone(namespace),
            ..Session::default()
        }
    }

    /// The answer that this request got before, if it asked for the same.
    pub(super) fn answer_to(&self, request: RequestId, asked: Asked) -> Option<Reply> {
        if flaw::active(Flaw::NoDedup) {
            return None;
        }
        let reused = Reply::Refused(Refusal::RequestReused);
        if let Some(known) = self
            .answered
            .iter()
            .rev()
            .find(|one| one.request == request)
        {
            return Some(if known.asked == asked {
                known.reply
            } else {
                reused
            });
        }
        let token = *self.granted.get(&request)?;
        let same = self
            .held
            .get(&token)
            .is_some_and(|name| Asked::acquire(name) == asked);
        Some(if same {
            Reply::Granted { token, count: 1 }
        } else {
            reused
        })
    }

    /// What became of a request, whatever it asked for.
    pub(super) fn outcome_of(&self, request: RequestId) -> Option<Reply> {
        let known = self
            .answered
            .iter()
            .rev()
            .find(|one| one.request == request);
        known.map(|one| one.reply)
    }

    pub(super) fn remember(&mut self, request: RequestId, asked: Asked, reply: Reply) {
        if request >= DRAWN {
            return;
        }
        if self.answered.len() == REMEMBERED {
            self.answered.pop_front();
        }
        self.answered.push_back(Answered {
            request,
            asked,
            reply,
        });
    }
}

impl Machine {
    pub(super) fn open(
        &mut self,
        id: SessionId,
        session: Session,
        max_sessions: u32,
        effects: &mut Vec<Effect>,
    ) -> Reply {
        if self.sessions.contains_key(&id) {
            return Reply::Refused(Refusal::SessionTaken);
        }
        let count = self.counts.get(&session.namespace).copied().unwrap_or(0);
        if count >= max_sessions {
            return Reply::Refused(Refusal::TooManySessions);
        }
        effects.push(Effect::SessionOpened {
            session: id,
            ttl_ms: session.ttl_ms,
        });
        self.insert_session(id, session);
        Reply::Opened { session: id }
    }

    /// Adds a session and counts it.
    pub(super) fn insert_session(&mut self, id: SessionId, session: Session) {
        *self
            .counts
            .entry(Arc::clone(&session.namespace))
            .or_default() += 1;
        self.sessions.insert(id, session);
    }

    fn remove_session(&mut self, id: SessionId) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        if let Some(count) = self.counts.get_mut(&session.namespace) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&session.namespace);
            }
        }
        Some(session)
    }

    /// Ends a session: leaves its queues first, so that none of its own waits is granted what it frees.
    pub(super) fn end_session(
        &mut self,
        id: SessionId,
        why: Ended,
        effects: &mut Vec<Effect>,
    ) -> Reply {
        let Some(session) = self.remove_session(id) else {
            return Reply::Refused(Refusal::SessionUnknown);
        };
        let mut touched = Vec::new();
        for (request, (name, place)) in session.waits {
            if !flaw::active(Flaw::GrantToDead) {
                self.leave_queue(&name, place);
            }
            effects.push(Effect::WaitEnded {
                session: id,
                request,
                name: Arc::clone(&name),
                expired: true,
            });
            touched.push(name);
        }
        let released = session.held.len() as u32;
        let lost: Vec<(Name, Token)> = session
            .held
            .into_iter()
            .map(|(token, name)| (name, token))
            .collect();
        for (name, token) in &lost {
            self.drop_holder(name, *token, why == Ended::Expired, effects);
            touched.push(Arc::clone(name));
        }
        effects.push(Effect::SessionEnded {
            session: id,
            why,
            lost,
        });
        for name in touched {
            self.grant_waiters(&name, effects);
            self.forget_if_idle(&name);
        }
        Reply::Ended { released }
    }
}
