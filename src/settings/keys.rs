//! The keys: how each is read, written and bounded.

use super::forms::{Boolean, Divisions, Form, Megabytes, Name, Number, Problem};
use super::parse::Value;
use super::Settings;

/// A key of the text.
pub(super) struct SettingKey {
    /// As it is written.
    pub(super) name: &'static str,
    /// What values are allowed, for messages.
    pub(super) expected: &'static str,
    /// Reads a value without regard to its bounds.
    pub(super) read: for<'a> fn(&Value<'a>, &mut Settings) -> Result<(), Problem<'a>>,
    /// Writes the value.
    pub(super) write: fn(&Settings) -> String,
    /// Whether the value is within its bounds.
    pub(super) valid: fn(&Settings) -> bool,
}

macro_rules! key {
    ($name:literal, $form:ty, $field:ident, $expected:expr) => {
        key!($name, $form, $field, $expected, |_| true)
    };
    ($name:literal, $form:ty, $field:ident, $expected:expr, $valid:expr) => {
        SettingKey {
            name: $name,
            expected: $expected,
            read: |value, settings| {
                settings.$field = <$form>::read(value)?;
                Ok(())
            },
            write: |settings| <$form>::write(&settings.$field),
            valid: $valid,
        }
    };
}

/// The least that PyTorch allows for sizes that concern splitting, in bytes.
const SPLIT_LEAST: u64 = 20 << 20;

const BOOLEAN: &str = "True or False";

/// All keys, in the order in which they are written.
pub(super) const KEYS: &[SettingKey] = &[
    key!(
        "max_split_size_mb",
        Megabytes,
        max_split_bytes,
        "a whole number of MB from 20 to 17592186044415",
        |settings| settings.max_split_bytes.is_none_or(|bytes| bytes >= SPLIT_LEAST)
    ),
    key!(
        "max_non_split_rounding_mb",
        Megabytes,
        max_non_split_rounding_bytes,
        "a whole number of MB from 20 to 17592186044415",
        |settings| settings.max_non_split_rounding_bytes >= SPLIT_LEAST
    ),
    key!(
        "garbage_collection_threshold",
        Number,
        garbage_collection_threshold,
        "a share of the allowed memory, above 0 and below 1",
        |settings| settings.garbage_collection_threshold.is_none_or(|it| it > 0.0 && it < 1.0)
    ),
    key!(
        "roundup_power2_divisions",
        Divisions,
        rounding,
        "a power of two, or a list of sizes in MB and divisions such as \
         [256:1,512:2,1024:4,>:8]"
    ),
    key!("expandable_segments", Boolean, expandable_segments, BOOLEAN),
    key!("exportable", Boolean, exportable, BOOLEAN),
    key!(
        "per_process_memory_fraction",
        Number,
        memory_fraction,
        "a share of the device's memory, above 0 and at most 1",
        |settings| settings.memory_fraction.is_none_or(|it| it > 0.0 && it <= 1.0)
    ),
    key!(
        "memory_limit_mb",
        Megabytes,
        memory_limit_bytes,
        "a whole number of MB from 1 to 17592186044415",
        |settings| settings.memory_limit_bytes.is_none_or(|bytes| bytes >= 1 << 20)
    ),
    key!(
        "growth_step_mb",
        Megabytes,
        growth_step_bytes,
        "a whole number of MB from 0 to 17592186044415"
    ),
    key!("plan", Name, plan, "none, exact or learned"),
    key!(
        "plan_max_mappings",
        Number,
        plan_max_mappings,
        "a whole number of mappings, at least 1",
        |settings| settings.plan_max_mappings != Some(0)
    ),
    key!(
        "plan_max_piece_mb",
        Megabytes,
        plan_max_piece_bytes,
        "a whole number of MB from 1 to 17592186044415",
        |settings| settings.plan_max_piece_bytes.is_none_or(|bytes| bytes >= 1 << 20)
    ),
    key!(
        "plan_max_share_percent",
        Number,
        plan_max_share_percent,
        "a whole number of percent, at least 1",
        |settings| settings.plan_max_share_percent != Some(0)
    ),
    key!(
        "plan_pool_graphs",
        Number,
        plan_pool_graphs,
        "a whole number of graphs, at least 1",
        |settings| settings.plan_pool_graphs != Some(0)
    ),
    key!(
        "plan_search",
        Number,
        plan_search,
        "a whole number, at least 1: so many times as long",
        |settings| settings.plan_search != 0
    ),
    key!("programmatic", Name, programmatic, "auto, deny, lag or trust"),
    key!("reuse", Name, reuse, "cross_stream, own_stream or deferred"),
    key!("check", Boolean, check, BOOLEAN),
    key!("early_reads", Boolean, early_reads, BOOLEAN),
    key!("poison", Boolean, poison, BOOLEAN),
    key!("history", Number, history, "a whole number of events; 0 turns the history off"),
    key!("stacks", Boolean, stacks, BOOLEAN),
    key!("caching", Boolean, caching, BOOLEAN),
];

/// The names of all keys, for messages.
pub(super) fn names() -> String {
    KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
}

/// The key that looks most like a text, if one does.
pub(super) fn nearest(text: &str) -> Option<&'static str> {
    /// Below this, two words have little in common.
    const ALIKE: f64 = 0.8;

    KEYS.iter()
        .map(|key| (strsim::normalized_damerau_levenshtein(text, key.name), key.name))
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .filter(|(alike, _)| *alike >= ALIKE)
        .map(|(_, name)| name)
}
