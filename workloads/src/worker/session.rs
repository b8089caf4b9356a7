//! One controller's session with this worker: its clients and their grants.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::behaviour::Behaviour;
use super::grants::{Grants, Held};
use super::lines::Out;
use super::ops;
use super::points::Points;
use crate::locks::{self, BoxedLock, ConfError, Grant, LockContext, Signal, Signals};
use crate::protocol::{Answer, BEFORE_STORE_WRITE, Hello, Init, Op, Reply, VERSION, WorkerEvent};
use crate::stores::{self, BoxedStore, StoreContext};

/// Most clients that one worker carries.
const MAX_CLIENTS: u32 = 1024;

/// One client: its way to the lock service and to the store.
pub struct Client {
    pub lock: BoxedLock,
    pub store: BoxedStore,
}

/// What the tasks of a worker share.
pub struct State {
    grants: Mutex<Grants>,
    pub points: Points,
    last_read: AtomicU64,
    out: Out,
    behaviour: Behaviour,
    /// Default lease, for a grant that this worker does not know.
    pub ttl: Option<Duration>,
}

impl State {
    fn grants(&self) -> MutexGuard<'_, Grants> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn behaviour(&self) -> Behaviour {
        self.behaviour
    }

    /// Id of the last request that was read.
    pub fn last_read(&self) -> u64 {
        self.last_read.load(Ordering::Relaxed)
    }

    pub fn say(&self, event: &WorkerEvent) {
        self.out.event(event);
    }

    pub fn reply(&self, id: u64, answer: Answer) {
        self.out.reply(&Reply { id, answer });
    }

    pub fn insert(&self, client: u32, grant: Grant) -> tokio_util::sync::CancellationToken {
        self.grants().insert(client, grant)
    }

    pub fn extend(&self, owner: &str, sent: Instant, ttl: Duration) {
        self.grants().extend(owner, sent, ttl);
    }

    /// Deadline of a grant that is believed held and has one.
    pub fn deadline(&self, owner: &str) -> Option<Instant> {
        self.grants().get(owner).filter(|h| h.live)?.deadline
    }

    pub fn remove(&self, owner: &str) -> Option<Grant> {
        self.grants().remove(owner)
    }

    pub fn find(&self, owner: &str) -> Option<Held> {
        self.grants().get(owner).cloned()
    }

    pub fn drain(&self) -> Vec<Held> {
        self.grants().drain()
    }

    /// Whether a write may go out under this grant, by the client's own check.
    pub fn may_write(&self, owner: &str) -> bool {
        if !self.behaviour.deadline_check {
            return true;
        }
        self.sweep();
        let grants = self.grants();
        match self.behaviour.own_deadline {
            true => grants.holds(owner, Instant::now()),
            false => grants.get(owner).is_some_and(|h| h.live),
        }
    }

    pub fn lose(&self, owner: &str, reason: &str) {
        let lost = self.grants().lose(owner, reason, self.last_read());
        if let Some(event) = lost {
            self.say(&event);
        }
    }

    /// Reports every grant whose deadline has passed.
    pub fn sweep(&self) {
        if !self.behaviour.own_deadline {
            return;
        }
        let lost = self.grants().sweep(Instant::now(), self.last_read());
        for event in lost {
            self.say(&event);
        }
    }
}

struct Running {
    state: Arc<State>,
    clients: Vec<Arc<Client>>,
}

/// The state of a worker from its first line to its last.
pub struct Session {
    forced_system: Option<String>,
    out: Out,
    running: Option<Running>,
}

impl Session {
    pub fn new(forced_system: Option<String>, out: Out) -> Self {
        Session {
            forced_system,
            out,
            running: None,
        }
    }

    pub fn go(&self, id: u64) {
        if let Some(r) = &self.running {
            r.state.points.go(id);
        }
    }

    /// Takes one request; its answer comes later unless it needs no service.
    pub fn handle(&mut self, id: u64, op: Op) {
        if let Op::Init(init) = op {
            let answer = self
                .init(&init)
                .unwrap_or_else(|e| Answer::Fail(e.0.into()));
            self.out.reply(&Reply { id, answer });
            return;
        }
        let Some(r) = &self.running else {
            let answer = Answer::Fail("not initialised: send init first".into());
            self.out.reply(&Reply { id, answer });
            return;
        };
        r.state.last_read.store(id, Ordering::Relaxed);
        if op == Op::Ping {
            r.state.sweep();
            let claims = r.state.grants().claims();
            r.state.reply(id, Answer::Claims(claims));
            return;
        }
        if op == Op::Close {
            tokio::spawn(ops::close(r.state.clone(), r.clients.clone(), id));
            return;
        }
        let client = ops::client_of(&op);
        match r.clients.get(client as usize) {
            Some(c) => {
                tokio::spawn(ops::run(r.state.clone(), c.clone(), client, id, op));
            }
            None => {
                let why = format!("no client {client}: init asked for {}", r.clients.len());
                r.state.reply(id, Answer::Fail(why.into()));
            }
        }
    }

    fn init(&mut self, init: &Init) -> Result<Answer, ConfError> {
        if init.protocol != VERSION {
            return Err(ConfError(format!(
                "protocol {} asked for; this worker speaks {VERSION}",
                init.protocol
            )));
        }
        if init.clients > MAX_CLIENTS {
            return Err(ConfError(format!(
                "{} clients asked for; at most {MAX_CLIENTS}",
                init.clients
            )));
        }
        let name = self.forced_system.as_deref().unwrap_or(&init.system.name);
        let kind = locks::find(name)?;
        let store = stores::find(&init.store.kind)?;
        let behaviour = Behaviour::from(&init.system.params)?;
        let state = Arc::new(State {
            grants: Mutex::new(Grants::new(behaviour.margin)),
            points: Points::default(),
            last_read: AtomicU64::new(0),
            out: self.out.clone(),
            behaviour,
            ttl: init.ttl_ms.map(Duration::from_millis),
        });
        let clients = (0..init.clients)
            .map(|client| {
                let timeout = Duration::from_millis(init.timeout_ms);
                Ok(Arc::new(Client {
                    lock: (kind.new)(LockContext {
                        system: init.system.clone(),
                        worker: init.worker,
                        client,
                        seed: init.seed,
                        timeout,
                        signals: signals(&state),
                    })?,
                    store: (store.new)(StoreContext {
                        conf: init.store.clone(),
                        worker: init.worker,
                        client,
                        timeout,
                    })?,
                }))
            })
            .collect::<Result<_, ConfError>>()?;
        self.running = Some(Running { state, clients });
        Ok(Answer::Hello(Hello {
            protocol: VERSION,
            name: kind.name.into(),
            clients: MAX_CLIENTS,
            points: vec![BEFORE_STORE_WRITE.into()],
            deadline: behaviour.deadline_check && behaviour.own_deadline,
        }))
    }
}

fn signals(state: &Arc<State>) -> Signals {
    let state = Arc::downgrade(state);
    Signals::new(move |signal| {
        let Some(state) = state.upgrade() else { return };
        match signal {
            Signal::Queued(id) => state.say(&WorkerEvent::Queued { id }),
            Signal::Woken(id) => state.say(&WorkerEvent::Woken { id }),
            Signal::Lost { owner, reason } => state.lose(&owner, &reason),
        }
    })
}
