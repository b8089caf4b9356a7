//! What clients were told, and whether it kept the promises.

use std::collections::BTreeMap;
use std::time::Duration;

/// One grant, as its holder knows it. Times are the simulation's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub client: u64,
    pub lock: String,
    pub token: u64,
    /// When the acquire was sent.
    pub asked: Duration,
    /// When the grant was read: from here on the client holds the lock for certain.
    pub from: Duration,
    /// Until when the client may count on it: the sending of its release, or the end of its lease by its own clock.
    pub until: Duration,
}

/// Everything that the clients saw.
#[derive(Debug, Default)]
pub struct History {
    pub grants: Vec<Grant>,
    /// Promises that a client saw broken by itself.
    pub broken: Vec<String>,
    pub releases: u64,
    pub refused: u64,
    pub unknown: u64,
    pub sessions_lost: u64,
    /// The last grant of any client, by lock.
    pub last: BTreeMap<String, Duration>,
}

/// Counts of a run.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Summary {
    pub grants: u64,
    pub releases: u64,
    pub refused: u64,
    pub unknown: u64,
    pub sessions_lost: u64,
    /// Ties the run to its exact tokens and times.
    pub digest: u64,
}

impl Summary {
    pub fn add(&mut self, other: &Summary) {
        self.grants += other.grants;
        self.releases += other.releases;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.sessions_lost += other.sessions_lost;
        self.digest ^= other.digest;
    }
}

impl History {
    /// The counts, or the first promise that was broken. `calm` is when the faults ended.
    pub fn judge(&self, calm: Duration) -> Result<Summary, String> {
        if let Some(broken) = self.broken.first() {
            return Err(broken.clone());
        }
        let mut by_lock: BTreeMap<&str, Vec<&Grant>> = BTreeMap::new();
        for grant in &self.grants {
            by_lock.entry(&grant.lock).or_default().push(grant);
        }
        for (lock, mut grants) in by_lock {
            grants.sort_by_key(|grant| (grant.from, grant.token));
            one_holder(lock, &grants)?;
            rising_tokens(lock, &grants)?;
        }
        for (lock, last) in &self.last {
            if *last < calm + Duration::from_secs(6) {
                return Err(format!(
                    "{lock} was not granted again after the faults ended; last at {last:?}"
                ));
            }
        }
        let digest = self.grants.iter().fold(0_u64, |sum, grant| {
            sum.rotate_left(5) ^ grant.token ^ (grant.from.as_nanos() as u64) ^ (grant.client << 40)
        });
        Ok(Summary {
            grants: self.grants.len() as u64,
            releases: self.releases,
            refused: self.refused,
            unknown: self.unknown,
            sessions_lost: self.sessions_lost,
            digest,
        })
    }
}

/// No two certain holds overlap. Checking neighbours is not enough: a long hold may cover several later ones.
fn one_holder(lock: &str, grants: &[&Grant]) -> Result<(), String> {
    let mut longest: Option<&Grant> = None;
    for grant in grants {
        if let Some(held) = longest
            && held.until > grant.from
        {
            return Err(format!("two holders of {lock}: {held:?} and {grant:?}"));
        }
        if longest.is_none_or(|held| held.until < grant.until) {
            longest = Some(grant);
        }
    }
    Ok(())
}

/// A grant asked for after another was answered has a higher token; no two grants share one.
fn rising_tokens(lock: &str, grants: &[&Grant]) -> Result<(), String> {
    let mut highest: Option<&Grant> = None;
    let mut by_asking = grants.to_vec();
    by_asking.sort_by_key(|grant| grant.asked);
    let mut answered = grants.iter().peekable();
    for grant in by_asking {
        while let Some(earlier) = answered.next_if(|earlier| earlier.from <= grant.asked) {
            if highest.is_none_or(|known| known.token < earlier.token) {
                highest = Some(earlier);
            }
        }
        if let Some(earlier) = highest
            && earlier.token >= grant.token
        {
            return Err(format!(
                "the token of {lock} went back: {earlier:?}, then {grant:?}"
            ));
        }
    }
    Ok(())
}
