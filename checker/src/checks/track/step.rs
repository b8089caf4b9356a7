//! How each event moves the tracker.

use fencepost_history::{Event, EventType, Process, Value, names};

use super::faults::Told;
use super::op::{number, worker_named};
use super::{
    Belief, F, Grant, GrantId, How, KeyId, LIVE, Op, Seen, Stamp, Tracker, What, nanos, within,
};

impl Tracker {
    /// Takes the next event in. Completions without an invocation are passed over: pairing
    /// has its own errors.
    pub fn step(&mut self, e: &Event) -> Seen {
        let mut seen = Seen::nothing(e);
        match &e.process {
            Process::Client(p) if e.kind == EventType::Invoke => self.invoke(*p, e, &mut seen),
            Process::Client(p) => {
                if let Some(op) = self.open.remove(p) {
                    self.complete(op, e, &mut seen);
                }
            }
            Process::Named(name) => self.named(name, e, &mut seen),
        }
        seen
    }

    fn invoke(&mut self, process: u64, e: &Event, seen: &mut Seen) {
        let (key, name) = self.key(e.key.as_ref());
        let mut op = Op::decode(e, process, key, name, seen.now);
        op.frozen = self.faults.stopped(op.worker);
        if !matches!(op.f, F::Acquire | F::Other) {
            op.grant = self.resolve(key, &op.owner, op.fence, Some(process));
        }
        if let (F::Release, Some(id)) = (op.f, op.grant)
            && let Some(g) = self.grants.get_mut(&id)
        {
            g.depth = g.depth.saturating_sub(1);
            if g.depth == 0 {
                g.release.get_or_insert(seen.now);
                g.end_at(seen.now);
            }
        }
        self.open.insert(process, op);
        seen.what = What::Invoked(process);
    }

    fn sign_of_life(&mut self, worker: Option<u32>, at: Stamp) {
        if let (Some(w), true) = (worker, self.ends_with_connection) {
            let last = self.alive.entry(w).or_default();
            if at.index > last.index {
                *last = at;
            }
        }
    }

    fn complete(&mut self, op: Op, e: &Event, seen: &mut Seen) {
        self.sign_of_life(op.worker, op.act);
        match (op.f, e.kind) {
            (F::Acquire, EventType::Ok) => self.granted(&op, e, seen),
            (F::Acquire, EventType::Info) => {
                self.unknown.entry(op.key).or_insert((0, op.invoke)).0 += 1;
            }
            (F::Release, kind) => self.released(&op, kind, e, seen.now),
            (F::Renew, EventType::Ok) => {
                let ttl = e.value.get("ttl_ms").and_then(number);
                match op.grant {
                    Some(id) => self.renew(id, op.invoke, ttl, seen),
                    None => seen.renewed_unknown = Some(op.invoke),
                }
            }
            _ => {}
        }
        let reached = e.kind == EventType::Ok
            || (e.kind == EventType::Fail && e.error.as_deref() == Some("stale-fence"));
        if let (true, F::Read | F::Write | F::Add | F::Renew, Some(id)) = (reached, op.f, op.grant)
        {
            seen.beliefs.push(Belief::of(id, op.act, How::Acted));
        }
        seen.what = What::Done(op, e.kind);
    }

    fn granted(&mut self, op: &Op, e: &Event, seen: &mut Seen) {
        let v = &e.value;
        let owner = match v.get("owner") {
            None | Some(Value::Null) => op.owner.clone(),
            Some(o) => o.clone(),
        };
        let fence = v.get("fence").and_then(Value::as_u64);
        let asked = op.ttl_ms.filter(|_| self.lease).map(nanos);
        let ttl = match v.get("ttl_ms").and_then(number) {
            Some(ms) => Some(nanos(ms)),
            None => asked.or(self.ttl_default),
        };
        let promised = ttl.map(|t| op.invoke.time.saturating_add(t - (self.margin)(t)));
        self.known.insert(op.key, &owner, fence);
        if let Some(id) = self.entered_again(op, &owner, fence) {
            if let Some(g) = self.grants.get_mut(&id) {
                g.depth += 1;
                g.promised = g.promised.zip(promised).map(|(a, b)| a.max(b));
            }
            return;
        }
        let id = self.next_grant;
        self.next_grant += 1;
        let grant = Grant {
            id,
            key: op.key,
            name: op.name.clone(),
            owner,
            fence,
            mode: op.mode,
            process: op.process,
            worker: op.worker,
            acquire: op.invoke,
            ok: seen.now,
            ttl,
            promised,
            renewed: None,
            depth: 1,
            until: None,
            release: None,
            freed: None,
            lost: None,
        };
        self.grants.insert(id, grant);
        self.books[op.key as usize].live.push(id);
        if self.books[op.key as usize].live.len() > LIVE {
            self.retire_lapsed(op.key, seen.now);
        }
        seen.granted = Some(id);
    }

    /// A live grant that this acquire entered once more.
    fn entered_again(&self, op: &Op, owner: &Value, fence: Option<u64>) -> Option<GrantId> {
        if !self.reentrant || *owner == Value::Null {
            return None;
        }
        self.live_of(op.key)
            .find(|g| {
                g.owner == *owner
                    && g.fence == fence
                    && g.worker == op.worker
                    && g.release.is_none()
                    && g.lost.is_none()
            })
            .map(|g| g.id)
    }

    fn retire_lapsed(&mut self, key: KeyId, now: Stamp) {
        let lapsed: Vec<GrantId> = self
            .live_of(key)
            .filter(|g| g.over_at(now))
            .map(|g| g.id)
            .collect();
        for id in lapsed {
            self.retire(id);
        }
    }

    fn released(&mut self, op: &Op, kind: EventType, e: &Event, now: Stamp) {
        let Some(id) = op.grant else { return };
        let Some(g) = self.grants.get_mut(&id) else {
            return;
        };
        if kind == EventType::Ok && was_held(&e.value) && g.depth == 0 {
            g.freed.get_or_insert(now);
        }
        if g.depth == 0 {
            self.retire(id);
        }
    }

    fn renew(&mut self, id: GrantId, sent: Stamp, ttl: Option<f64>, seen: &mut Seen) {
        let now = seen.now;
        let Some(g) = self.grants.get_mut(&id) else {
            return;
        };
        let lapsed = g.over_at(now);
        let ttl = ttl.map(nanos).or(g.ttl);
        if let (Some(old), Some(ttl)) = (g.promised, ttl) {
            let new = sent.time.saturating_add(ttl - (self.margin)(ttl));
            if new > old {
                g.promised = Some(new);
                g.renewed = Some((sent, now));
            }
        }
        seen.renewed = Some((id, sent, lapsed));
    }

    fn named(&mut self, name: &str, e: &Event, seen: &mut Seen) {
        let worker = worker_named(name);
        match &*e.f {
            names::CLAIMS => self.claims(worker, e, seen),
            names::RENEW => self.own_renewal(e, seen),
            names::LOST => self.lost(e, seen),
            names::POINT => self.point(e, seen.now),
            names::QUEUED => {
                if let Some(p) = e.value.get("process").and_then(Value::as_u64) {
                    seen.what = What::Queued(p);
                }
            }
            names::WOKEN => {
                if let Some(p) = e.value.get("process").and_then(Value::as_u64) {
                    seen.what = What::Woken(p);
                }
            }
            names::FAULT => self.fault(e, seen),
            names::PHASE => {
                let phase = e
                    .value
                    .get("phase")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                if matches!(phase, "final" | "end" | "interrupted") {
                    self.end_holds(None, seen.now);
                }
                seen.what = What::Phase(phase.into());
            }
            names::CLOSE if worker.is_some() => self.end_holds(worker, seen.now),
            names::EXIT => {
                if self.ends_with_connection && worker.is_some() {
                    // It died at some time since it last gave a sign of life.
                    let alive = worker.and_then(|w| self.alive.get(&w).copied());
                    self.end_holds(worker, alive.unwrap_or_default());
                }
                seen.what = What::Exit(worker);
            }
            _ => {}
        }
    }

    fn claims(&mut self, worker: Option<u32>, e: &Event, seen: &mut Seen) {
        let Some(w) = worker else { return };
        let before = self.claimed.insert(w, seen.now);
        let Some(made) = after(&e.value).or(before) else {
            return;
        };
        self.sign_of_life(worker, made);
        let Some(Value::List(grants)) = e.value.get("grants") else {
            return;
        };
        for claim in grants {
            let Some(id) = self.named_grant(claim, e) else {
                continue;
            };
            // While a release is under way its worker may list the grant still.
            let asked = self.grants.get(&id).and_then(|g| g.release);
            if asked.is_none_or(|r| made.index < r.index) {
                seen.beliefs.push(Belief::of(id, made, How::Claimed));
            }
        }
    }

    fn own_renewal(&mut self, e: &Event, seen: &mut Seen) {
        if e.value.get("ok").and_then(Value::as_bool) != Some(true) {
            return;
        }
        // Without a stamp it cannot be said when the renewal was sent.
        let Some(sent) = after(&e.value) else { return };
        let ttl = e.value.get("ttl_ms").and_then(number);
        match self.named_grant(&e.value, e) {
            Some(id) => {
                self.renew(id, sent, ttl, seen);
                seen.beliefs.push(Belief::of(id, sent, How::Acted));
            }
            None => seen.renewed_unknown = Some(sent),
        }
    }

    fn lost(&mut self, e: &Event, seen: &mut Seen) {
        let Some(id) = self.named_grant(&e.value, e) else {
            return;
        };
        // Without a stamp the loss may have been noticed at any time since the grant.
        let noticed = after(&e.value);
        let Some(g) = self.grants.get_mut(&id) else {
            return;
        };
        let at = noticed.unwrap_or(g.ok);
        g.lost.get_or_insert(at);
        g.end_at(Stamp {
            index: at.index.saturating_add(u64::from(noticed.is_some())),
            time: at.time,
        });
        if noticed.is_some() {
            seen.beliefs.push(Belief::of(id, at, How::Noticed));
        }
        seen.lost = Some((id, at));
        self.retire(id);
    }

    /// The grant that an event of a worker is about; its key may be in the event or in the value.
    fn named_grant(&mut self, v: &Value, e: &Event) -> Option<GrantId> {
        let owner = v.get("owner").cloned().unwrap_or_default();
        let fence = v.get("fence").and_then(Value::as_u64);
        let name = match v.get("key") {
            Some(Value::Str(k)) => Some(k.clone()),
            _ => e.key.clone(),
        };
        if let Some(name) = name {
            let key = self.find_key(&name)?;
            return self.resolve(key, &owner, fence, None);
        }
        (0..self.books.len() as KeyId).find_map(|k| self.resolve(k, &owner, fence, None))
    }

    fn point(&mut self, e: &Event, now: Stamp) {
        let Some(p) = e.value.get("process").and_then(Value::as_u64) else {
            return;
        };
        let state = e.value.get("state").and_then(Value::as_str);
        let Some(op) = self.open.get_mut(&p) else {
            return;
        };
        match state {
            Some("reached") => op.at_point = true,
            Some("go") if op.at_point => {
                op.at_point = false;
                op.act = now;
                op.frozen = self.faults.stopped(op.worker);
            }
            _ => {}
        }
    }

    fn fault(&mut self, e: &Event, seen: &mut Seen) {
        seen.what = What::Fault;
        match self.faults.event(&e.value, seen.now) {
            Told::Begins(i) if self.ends_with_connection => {
                let fault = self.faults.all[i].clone();
                if matches!(&*fault.kind, "kill" | "cut" | "packets" | "failover") {
                    if fault.nodes {
                        self.end_holds(None, seen.now);
                    }
                    for w in fault.workers {
                        self.end_holds(Some(w), seen.now);
                    }
                }
            }
            Told::Healing(i) => {
                let fault = &self.faults.all[i];
                if &*fault.kind != "pause" {
                    return;
                }
                for op in self.open.values_mut() {
                    if op.frozen && op.worker.is_some_and(|w| fault.workers.contains(&w)) {
                        op.frozen = false;
                        op.act = seen.now;
                    }
                }
            }
            _ => {}
        }
    }
}

/// `held` in our histories, `released` in others'. Neither: an ok is a success.
pub(crate) fn was_held(v: &Value) -> bool {
    match v.get("held").or_else(|| v.get("released")) {
        Some(held) => held.as_bool() == Some(true),
        None => true,
    }
}

fn after(v: &Value) -> Option<Stamp> {
    let a = v.get("after")?;
    Some(Stamp {
        index: a.get("index").and_then(Value::as_u64)?,
        time: within(a.get("time").and_then(Value::as_i64)?),
    })
}
