//! Integers as the viewer can add them.
//!
//! serde-pickle writes a `u64` from 2^31 on in nine bytes, which the viewer reads as a `BigInt`;
//! adding a size to such an address fails there. As an `i64` it takes eight, and is a number.

use serde::{Serialize, Serializer};

/// Writes one integer.
pub(super) fn one<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    match i64::try_from(*value) {
        Ok(signed) => serializer.serialize_i64(signed),
        Err(_) => serializer.serialize_u64(*value),
    }
}

/// Writes an integer that may be missing.
pub(super) fn optional<S: Serializer>(
    value: &Option<u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.map(Integer).serialize(serializer)
}

/// Writes two integers.
pub(super) fn pair<S: Serializer>(value: &(u64, u64), serializer: S) -> Result<S::Ok, S::Error> {
    (Integer(value.0), Integer(value.1)).serialize(serializer)
}

struct Integer(u64);

impl Serialize for Integer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        one(&self.0, serializer)
    }
}
