//! Fences and stored items, exact at 64 bits.

use std::fmt;
use std::sync::Arc;

use fencepost_history::Value;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A fencing token. Read from a number or a decimal string, written as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Fence {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Fence {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Fence;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a fence: an integer from 0 to 2^64-1, as a number or decimal string")
            }
            fn visit_u64<E: Error>(self, v: u64) -> Result<Fence, E> {
                Ok(Fence(v))
            }
            fn visit_str<E: Error>(self, v: &str) -> Result<Fence, E> {
                let digits = !v.is_empty() && v.bytes().all(|b| b.is_ascii_digit());
                match v.parse() {
                    Ok(n) if digits => Ok(Fence(n)),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(v), &self)),
                }
            }
        }
        d.deserialize_any(V)
    }
}

/// What a register holds or a set contains: a string or an integer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    Int(i64),
    Str(Arc<str>),
}

impl Item {
    pub fn str(s: &str) -> Item {
        Item::Str(s.into())
    }

    /// The same item as a history value; `None` is null.
    pub fn to_history(item: Option<&Item>) -> Value {
        match item {
            None => Value::Null,
            Some(Item::Int(i)) => Value::Int(i128::from(*i)),
            Some(Item::Str(s)) => Value::Str(s.clone()),
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Int(i) => i.fmt(f),
            Item::Str(s) => s.fmt(f),
        }
    }
}

impl Serialize for Item {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Item::Int(i) => s.serialize_i64(*i),
            Item::Str(v) => s.serialize_str(v),
        }
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Item;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an integer")
            }
            fn visit_i64<E: Error>(self, v: i64) -> Result<Item, E> {
                Ok(Item::Int(v))
            }
            fn visit_u64<E: Error>(self, v: u64) -> Result<Item, E> {
                i64::try_from(v)
                    .map(Item::Int)
                    .map_err(|_| E::custom("integer above 2^63-1: write it as a string"))
            }
            fn visit_str<E: Error>(self, v: &str) -> Result<Item, E> {
                Ok(Item::Str(v.into()))
            }
        }
        d.deserialize_any(V)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn fences_are_exact_as_number_and_as_string() {
        let max: Fence = serde_json::from_str("18446744073709551615").unwrap();
        assert_eq!(max, Fence(u64::MAX));
        let same: Fence = serde_json::from_str("\"18446744073709551615\"").unwrap();
        assert_eq!(same, max);
        assert_eq!(serde_json::to_string(&max).unwrap(), "18446744073709551615");
        for bad in [
            "-1",
            "1.0",
            "\"\"",
            "\"+1\"",
            "\"0x1\"",
            "\"18446744073709551616\"",
            "null",
        ] {
            assert!(serde_json::from_str::<Fence>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn items_are_strings_or_integers() {
        assert_eq!(
            serde_json::from_str::<Item>("\"v1\"").unwrap(),
            Item::str("v1")
        );
        assert_eq!(serde_json::from_str::<Item>("-3").unwrap(), Item::Int(-3));
        for bad in ["1.5", "[]", "true", "9223372036854775808"] {
            assert!(serde_json::from_str::<Item>(bad).is_err(), "{bad}");
        }
    }
}
