//! Undoing an acquire whose client gave it up, so that it neither waits nor holds anything for nobody.

use super::{Effect, Machine, Refusal, Reply, Undone, Withdrawal, session::Asked};

impl Machine {
    /// Whatever became of the acquire is undone and remembered: an acquire that is still on its way, or sent again, is refused.
    pub(super) fn withdraw(&mut self, ask: &Withdrawal, effects: &mut Vec<Effect>) -> Reply {
        let Some(session) = self.sessions.get_mut(&ask.session) else {
            return Reply::Refused(Refusal::SessionUnknown);
        };
        let asked = Asked::acquire(&ask.name);
        let undone = match (
            session.waits.get(&ask.request),
            session.answer_to(ask.request, asked),
        ) {
            (Some((name, _)), _) if *name != ask.name => {
                return Reply::Refused(Refusal::RequestReused);
            }
            (Some(_), _) => Undone::Wait,
            (None, Some(Reply::Granted { token, .. })) if session.held.contains_key(&token) => {
                Undone::Grant(token)
            }
            (None, Some(known @ (Reply::Withdrawn(_) | Reply::Refused(_)))) => return known,
            (None, _) => Undone::Nothing,
        };
        session.granted.remove(&ask.request);
        let reply = Reply::Withdrawn(undone);
        session.remember(ask.request, asked, reply);
        match undone {
            Undone::Wait => drop(self.cancel(ask.session, ask.request, effects)),
            Undone::Grant(token) => {
                self.give_back(ask.session, &ask.name, token, effects);
            }
            Undone::Nothing => {}
        }
        reply
    }
}
