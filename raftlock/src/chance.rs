//! Random numbers, from the system or, in a simulation, from its seed.

use std::cell::RefCell;
use std::convert::Infallible;

#[cfg(test)]
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::{Rng, TryRng};

thread_local! {
    static SEEDED: RefCell<Option<SmallRng>> = const { RefCell::new(None) };
}

/// Makes this thread's numbers follow from `seed`.
#[cfg(test)]
pub fn seed(seed: u64) {
    SEEDED.with(|rng| *rng.borrow_mut() = Some(SmallRng::seed_from_u64(seed)));
}

/// A random number.
pub fn random() -> u64 {
    SEEDED
        .with(|rng| rng.borrow_mut().as_mut().map(Rng::next_u64))
        .unwrap_or_else(rand::random)
}

/// [`random`] as a generator.
#[derive(Debug, Clone, Copy)]
pub struct Chance;

impl TryRng for Chance {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(random() as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(random())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&random().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}
