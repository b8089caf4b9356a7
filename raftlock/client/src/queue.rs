//! An acquire that tells when it is in the queue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::api::{Api, REDIRECTS};
use crate::error::{CallError, Outcome, Retry};
use crate::routes::group_of_session;
use crate::stream::{Event, Stream};
use crate::types::{AcquireOptions, Grant};

impl Api {
    /// As [`Api::acquire`], over a stream of its own, since only a stream tells that a request is in the queue: `queued`
    /// is called then with the number of those ahead. Like every single call it repeats nothing; a node that names the
    /// leader did nothing.
    pub async fn acquire_queued(
        &self,
        name: &str,
        session: &str,
        options: &AcquireOptions,
        mut queued: impl FnMut(u64),
    ) -> Outcome<Grant> {
        let group = group_of_session(session);
        let limit = self.timeout() + Duration::from_millis(options.wait_ms);
        let sent = AtomicBool::new(false);
        let attempts = async {
            for _ in 0..REDIRECTS {
                let node = self.routes().node(group).to_owned();
                let connected = Stream::connect_secured(&node, self.security()).await;
                let (stream, mut events) = match connected {
                    Ok(connected) => connected,
                    Err(error) => {
                        self.routes().failed(group);
                        return Outcome::DefiniteFail(error);
                    }
                };
                sent.store(true, Ordering::Relaxed);
                let number = stream.number();
                let acquire = stream.acquire_numbered(number, name, session, options);
                tokio::pin!(acquire);
                let outcome = loop {
                    tokio::select! {
                        biased;
                        Some(event) = events.recv() => match event {
                            Event::Queued { call, ahead } if call == number => queued(ahead),
                            _ => {}
                        },
                        outcome = &mut acquire => break outcome,
                    }
                };
                match self.next_step(outcome, group) {
                    Some(outcome) => return outcome,
                    None => sent.store(false, Ordering::Relaxed),
                }
            }
            let why = "the nodes send each other away";
            Outcome::DefiniteFail(CallError::local("no_leader", why, Retry::Later))
        };
        if let Ok(outcome) = tokio::time::timeout(limit, attempts).await {
            return outcome;
        }
        self.routes().failed(group);
        let error = CallError::local(
            "timeout",
            format!("no answer in {limit:?}"),
            Retry::SameRequest,
        );
        if sent.load(Ordering::Relaxed) {
            Outcome::Unknown(error)
        } else {
            Outcome::DefiniteFail(error)
        }
    }

    /// The outcome, or nothing where the leader is to be asked instead.
    fn next_step(&self, outcome: Outcome<Grant>, group: Option<u32>) -> Option<Outcome<Grant>> {
        match &outcome {
            Outcome::DefiniteFail(error) => {
                if let Some(version) = error.map {
                    self.routes().told_of_map(version);
                }
                if let Some(leader) = &error.leader {
                    let leader = self.security().url_of(leader);
                    self.routes().led_by(group, leader);
                    return None;
                }
                if error.retry == Retry::OtherNode || error.code == "no_leader" {
                    self.routes().failed(group);
                }
            }
            Outcome::Unknown(_) => self.routes().failed(group),
            Outcome::Ok(_) => {}
        }
        Some(outcome)
    }
}
