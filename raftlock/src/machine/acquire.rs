//! Taking a lock, waiting for it, and handing it on.

use std::sync::Arc;

use crate::flaw::{self, Flaw};

use super::{
    Acquire, DRAWN, Effect, Holder, Lock, Machine, Mode, Name, Refusal, Reply, RequestId,
    SessionId, Token, Waiter, namespace_of, session::Asked,
};

impl Machine {
    pub(super) fn acquire(&mut self, ask: &Acquire, effects: &mut Vec<Effect>) -> Reply {
        let Some(session) = self.sessions.get(&ask.session) else {
            return Reply::Refused(Refusal::SessionUnknown);
        };
        match session.answer_to(ask.request, Asked::acquire(&ask.name)) {
            Some(Reply::Withdrawn(_)) => return Reply::Refused(Refusal::Withdrawn),
            Some(reply) => return reply,
            None => {}
        }
        if let Some((name, place)) = session.waits.get(&ask.request) {
            if *name != ask.name {
                return Reply::Refused(Refusal::RequestReused);
            }
            return Reply::Queued {
                ahead: self.ahead_of(name, *place),
            };
        }
        if *session.namespace != *namespace_of(&ask.name) {
            return Reply::Refused(Refusal::OtherNamespace);
        }
        if ask.epoch.is_some_and(|epoch| epoch != self.epoch) {
            return Reply::Refused(Refusal::StaleEpoch {
                current: self.epoch,
            });
        }
        let name = self.intern(&ask.name);
        let reply = match self.reenter(ask, &name) {
            Some(reply) => reply,
            None => self.take_or_queue(ask, &name, effects),
        };
        self.forget_if_idle(&name);
        if matches!(reply, Reply::Granted { .. }) {
            self.remember(ask.session, ask.request, Asked::acquire(&ask.name), reply);
        }
        reply
    }

    /// Would this acquire join a queue, were it applied now?
    pub fn would_queue(&self, ask: &Acquire) -> bool {
        ask.wait_ms > 0
            && ask.owner.is_none()
            && self
                .locks
                .get(&ask.name)
                .is_some_and(|lock| !lock.queue.is_empty() || !lock.admits(ask.mode))
    }

    /// The same session and owner hold it in the same mode: one more count on the same grant.
    fn reenter(&mut self, ask: &Acquire, name: &Name) -> Option<Reply> {
        let owner = ask.owner.as_ref()?;
        let lock = self.locks.get_mut(name)?;
        let holder = lock.holders.iter_mut().find(|held| {
            held.session == ask.session
                && held.owner.as_ref() == Some(owner)
                && held.mode == ask.mode
        })?;
        holder.count = holder.count.saturating_add(1);
        Some(Reply::Granted {
            token: holder.token,
            count: holder.count,
        })
    }

    fn take_or_queue(&mut self, ask: &Acquire, name: &Name, effects: &mut Vec<Effect>) -> Reply {
        let lock = self.locks.or_default(name);
        if lock.mismatches(ask.mode) {
            return Reply::Refused(Refusal::ModeMismatch);
        }
        if lock.queue.is_empty() && lock.admits(ask.mode) {
            let token = self.hold(name, waiter_of(ask));
            return Reply::Granted { token, count: 1 };
        }
        if ask.wait_ms == 0 {
            let delayed = lock.delay.is_some() && lock.holders.is_empty();
            return Reply::Refused(if delayed {
                Refusal::Delayed
            } else {
                Refusal::Busy
            });
        }
        if lock.queue.len() >= ask.max_waiters as usize {
            return Reply::Refused(Refusal::QueueFull);
        }
        let (place, ahead) = (self.next_wait, lock.queue.len() as u32);
        self.next_wait += 1;
        self.waiting += 1;
        lock.queue.insert(place, waiter_of(ask));
        if let Some(session) = self.sessions.get_mut(&ask.session) {
            session.waits.insert(ask.request, (Arc::clone(name), place));
        }
        effects.push(Effect::Waiting {
            session: ask.session,
            request: ask.request,
            wait_ms: ask.wait_ms,
        });
        Reply::Queued { ahead }
    }

    /// Records the grant on the lock and on its session.
    fn hold(&mut self, name: &Name, waiter: Waiter) -> Token {
        let token = self.next_token();
        let lock = self.locks.or_default(name);
        if lock.holders.is_empty() {
            self.held += 1;
        }
        lock.holders.push(Holder {
            session: waiter.session,
            request: waiter.request,
            token,
            mode: waiter.mode,
            count: 1,
            delay_ms: waiter.delay_ms,
            granted_at_ms: self.at_ms,
            owner: waiter.owner,
        });
        if let Some(session) = self.sessions.get_mut(&waiter.session) {
            session.held.insert(token, Arc::clone(name));
            if waiter.request < DRAWN {
                session.granted.insert(waiter.request, token);
            }
        }
        token
    }

    /// Hands the lock to those at the head of the queue that fit. Strictly in order: the first that does not fit
    /// stops it, so that a writer is not starved by readers that came later.
    pub(super) fn grant_waiters(&mut self, name: &Name, effects: &mut Vec<Effect>) {
        loop {
            let Some(lock) = self.locks.get_mut(name) else {
                return;
            };
            let Some(waiter) = next_fitting(lock) else {
                return;
            };
            self.waiting -= 1;
            let (session, request) = (waiter.session, waiter.request);
            // Ended sessions leave their queues at once; this holds the rule even if one were left behind.
            let Some(state) = self.sessions.get_mut(&session) else {
                if flaw::active(Flaw::GrantToDead) {
                    self.hold(name, waiter);
                }
                continue;
            };
            state.waits.remove(&request);
            let token = self.hold(name, waiter);
            let reply = Reply::Granted { token, count: 1 };
            self.remember(session, request, Asked::acquire(name), reply);
            effects.push(Effect::Woken {
                session,
                request,
                name: Arc::clone(name),
                token,
            });
        }
    }

    /// A wait's deadline passed. Granted in the meantime: nothing happens.
    pub(super) fn cancel(
        &mut self,
        id: SessionId,
        request: RequestId,
        effects: &mut Vec<Effect>,
    ) -> Reply {
        let Some(session) = self.sessions.get_mut(&id) else {
            return Reply::Refused(Refusal::SessionUnknown);
        };
        let Some((name, place)) = session.waits.remove(&request) else {
            return session
                .outcome_of(request)
                .unwrap_or(Reply::Refused(Refusal::NotHeld));
        };
        self.leave_queue(&name, place);
        effects.push(Effect::WaitEnded {
            session: id,
            request,
            name: Arc::clone(&name),
            expired: false,
        });
        // The one that left may have been all that kept those behind it from fitting.
        self.grant_waiters(&name, effects);
        self.forget_if_idle(&name);
        Reply::Done
    }

    pub(super) fn leave_queue(&mut self, name: &Name, place: u64) {
        if let Some(lock) = self.locks.get_mut(name)
            && lock.queue.remove(&place).is_some()
        {
            self.waiting -= 1;
        }
    }

    fn ahead_of(&self, name: &Name, place: u64) -> u32 {
        self.locks
            .get(name)
            .map_or(0, |lock| lock.queue.range(..place).count() as u32)
    }

    pub(super) fn remember(
        &mut self,
        id: SessionId,
        request: RequestId,
        asked: Asked,
        reply: Reply,
    ) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.remember(request, asked, reply);
        }
    }
}

fn next_fitting(lock: &mut Lock) -> Option<Waiter> {
    let (_, first) = lock.queue.first_key_value()?;
    let mode: Mode = first.mode;
    lock.admits(mode)
        .then(|| lock.queue.pop_first())
        .flatten()
        .map(|(_, waiter)| waiter)
}

fn waiter_of(ask: &Acquire) -> Waiter {
    Waiter {
        session: ask.session,
        request: ask.request,
        mode: ask.mode,
        wait_ms: ask.wait_ms,
        delay_ms: ask.delay_ms,
        owner: ask.owner.clone(),
    }
}
