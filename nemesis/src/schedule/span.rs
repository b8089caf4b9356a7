//! Lengths of time as scenarios write them: `"3s"`, `"250ms"`, `"0.2 ttl"`, `"2s..5s"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// A length of time, perhaps relative to the run's lease, perhaps drawn from a range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Span {
    Fixed(Duration),
    /// Multiples of the run's TTL.
    Ttl(f64),
    /// Uniformly between two others.
    Between(Box<Span>, Box<Span>),
}

/// Why a text is no length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no length of time: write \"3s\", \"250ms\", \"2m\", \"0.2 ttl\" or \"2s..5s\"")]
pub struct SpanError(String);

/// Nothing in a run is longer than this: a week.
const LONGEST: f64 = 7.0 * 86_400.0;

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let wrong = || SpanError(text.into());
        if let Some((low, high)) = text.split_once("..") {
            let one = |s: &str| s.trim().parse::<Span>().map_err(|_| wrong());
            let (low, high) = (one(low)?, one(high)?);
            let nested = matches!(low, Span::Between(..)) || matches!(high, Span::Between(..));
            return if nested {
                Err(wrong())
            } else {
                Ok(Span::Between(low.into(), high.into()))
            };
        }
        let text = text.trim();
        let unit_at = text
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .ok_or_else(wrong)?;
        let (number, unit) = text.split_at(unit_at);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let seconds = match unit.trim() {
            "ttl" if number <= 1e6 => return Ok(Span::Ttl(number)),
            "us" => number / 1e6,
            "ms" => number / 1e3,
            "s" => number,
            "m" => number * 60.0,
            _ => return Err(wrong()),
        };
        if seconds > LONGEST {
            return Err(wrong());
        }
        Ok(Span::Fixed(Duration::from_secs_f64(seconds)))
    }
}

impl TryFrom<String> for Span {
    type Error = SpanError;

    fn try_from(s: String) -> Result<Self, SpanError> {
        s.parse()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Span::Fixed(d) => write!(f, "{}us", d.as_micros()),
            Span::Ttl(n) => write!(f, "{n} ttl"),
            Span::Between(a, b) => write!(f, "{a}..{b}"),
        }
    }
}

impl From<Span> for String {
    fn from(s: Span) -> String {
        s.to_string()
    }
}

impl Span {
    /// The shortest length that [`Span::draw`] can give.
    pub fn at_least(&self, ttl: Duration) -> Duration {
        match self {
            Span::Fixed(d) => *d,
            Span::Ttl(n) => Duration::from_secs_f64((ttl.as_secs_f64() * n).min(LONGEST)),
            Span::Between(a, b) => a.at_least(ttl).min(b.at_least(ttl)),
        }
    }

    /// The length under this TTL; a range draws from `rng`.
    pub fn draw(&self, ttl: Duration, rng: &mut impl Rng) -> Duration {
        match self {
            Span::Fixed(_) | Span::Ttl(_) => self.at_least(ttl),
            Span::Between(a, b) => {
                let (a, b) = (a.draw(ttl, rng), b.draw(ttl, rng));
                rng.random_range(a.min(b)..=a.max(b))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    fn of(text: &str) -> Duration {
        let span: Span = text.parse().unwrap();
        assert_eq!(span.to_string().parse::<Span>().unwrap(), span, "{text}");
        span.draw(Duration::from_secs(2), &mut ChaCha8Rng::seed_from_u64(1))
    }

    #[test]
    fn lengths() {
        assert_eq!(of("3s"), Duration::from_secs(3));
        assert_eq!(of("250ms"), Duration::from_millis(250));
        assert_eq!(of("1.5 ttl"), Duration::from_secs(3));
        assert_eq!(of("0.2ttl"), Duration::from_millis(400));
        assert_eq!(of("2m"), Duration::from_secs(120));
        let drawn = of("1s..2 ttl");
        assert!(drawn >= Duration::from_secs(1) && drawn <= Duration::from_secs(4));
        assert_eq!(drawn, of("1s..2 ttl"));
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "",
            "3",
            "s",
            "-1s",
            "1h",
            "1e9s",
            "1..2",
            "1s..2s..3s",
            "999999999s",
            "ttl",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
