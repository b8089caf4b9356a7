//! Giving a lock back, and the lock-delay after a failed holder.

use crate::flaw::{self, Flaw};

use super::{Effect, Machine, Name, Refusal, Release, Reply, SessionId, Token, session::Asked};

impl Machine {
    /// Only the session that holds this very token frees it; anything else changes nothing.
    pub(super) fn release(&mut self, ask: &Release, effects: &mut Vec<Effect>) -> Reply {
        let Some(session) = self.sessions.get(&ask.session) else {
            return Reply::Refused(Refusal::SessionUnknown);
        };
        let asked = Asked::release(&ask.name, ask.token);
        if let Some(reply) = session.answer_to(ask.request, asked) {
            return reply;
        }
        if session.waits.contains_key(&ask.request) {
            return Reply::Refused(Refusal::RequestReused);
        }
        if ask.epoch.is_some_and(|epoch| epoch != self.epoch) {
            return Reply::Refused(Refusal::StaleEpoch {
                current: self.epoch,
            });
        }
        if flaw::active(Flaw::ReleaseByAnyone) && session.held.get(&ask.token) != Some(&ask.name) {
            return self.free_all(&ask.name, effects);
        }
        if session.held.get(&ask.token) != Some(&ask.name) {
            return Reply::Refused(Refusal::NotHeld);
        }
        let remaining = self.give_back(ask.session, &ask.name, ask.token, effects);
        let reply = Reply::Released { remaining };
        self.remember(ask.session, ask.request, asked, reply);
        reply
    }

    /// Counts a grant of this session down; at 0 the lock is handed on.
    pub(super) fn give_back(
        &mut self,
        id: SessionId,
        name: &Name,
        token: Token,
        effects: &mut Vec<Effect>,
    ) -> u32 {
        let remaining = self.count_down(name, token);
        if remaining == 0 {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.held.remove(&token);
            }
            self.drop_holder(name, token, false, effects);
            self.grant_waiters(name, effects);
            self.forget_if_idle(name);
        }
        remaining
    }

    /// For the seeded flaw: frees the lock whoever holds it.
    fn free_all(&mut self, name: &Name, effects: &mut Vec<Effect>) -> Reply {
        let lock = self.locks.get(name);
        let tokens: Vec<Token> = lock.map_or_else(Vec::new, |lock| {
            lock.holders.iter().map(|held| held.token).collect()
        });
        for token in tokens {
            self.drop_holder(name, token, false, effects);
        }
        self.grant_waiters(name, effects);
        self.forget_if_idle(name);
        Reply::Released { remaining: 0 }
    }

    fn count_down(&mut self, name: &Name, token: Token) -> u32 {
        let holder = self
            .locks
            .get_mut(name)
            .and_then(|lock| lock.holders.iter_mut().find(|held| held.token == token));
        holder.map_or(0, |held| {
            held.count -= 1;
            held.count
        })
    }

    /// Takes one grant off its lock. If the holder failed and asked for a lock-delay, the lock is kept back.
    pub(super) fn drop_holder(
        &mut self,
        name: &Name,
        token: Token,
        failed: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(lock) = self.locks.get_mut(name) else {
            return;
        };
        let Some(at) = lock.holders.iter().position(|held| held.token == token) else {
            return;
        };
        let holder = lock.holders.remove(at);
        if let Some(session) = self.sessions.get_mut(&holder.session) {
            session.granted.remove(&holder.request);
        }
        if lock.holders.is_empty() {
            self.held -= 1;
        }
        if failed && holder.delay_ms > 0 {
            if let Some(earlier) = lock.delay.replace(token) {
                self.delayed.remove(&earlier);
            }
            self.delayed.insert(token, (name.clone(), holder.delay_ms));
            effects.push(Effect::Delayed {
                token,
                delay_ms: holder.delay_ms,
            });
        }
    }

    pub(super) fn end_delay(&mut self, token: Token, effects: &mut Vec<Effect>) -> Reply {
        let Some((name, _)) = self.delayed.remove(&token) else {
            return Reply::Done;
        };
        if let Some(lock) = self.locks.get_mut(&name)
            && lock.delay == Some(token)
        {
            lock.delay = None;
        }
        self.grant_waiters(&name, effects);
        self.forget_if_idle(&name);
        Reply::Done
    }
}
