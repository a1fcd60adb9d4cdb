//! The choices that decide what may be reused, and when memory comes to captures. Values only: the
//! engine and the checker each draw their own conclusions from them.

use std::fmt;
use std::str::FromStr;

/// What a programmatic edge (a launch that may start before its predecessor ends) proves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Programmatic {
    /// What it proves under `lag`, but a stream's next launch is taken to wait for its predecessor. If a
    /// reuse rested on that and the launch did not wait, the capture is refused at its end with
    /// `regraph::Error::CaptureAgain`: captured again, the same work is treated as
    /// under `lag` where it launched so, and only there. Without the checker, the same as `lag`.
    #[default]
    Auto,
    /// Nothing. A capture in which a reuse rested on one is refused at its end.
    Deny,
    /// Order of starts, never completion; and since any next launch may turn out to be
    /// programmatic, a stream's own terminals prove only what lies behind a full edge.
    Lag,
    /// What a full edge proves. Right only if every kernel waits for its predecessor before it touches memory.
    Trust,
}

/// Which streams may take a free block while a capture is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reuse {
    /// Any stream for which all the block's free markers are proven.
    #[default]
    CrossStream,
    /// Only the block's own stream, once all its free markers are proven.
    OwnStream,
    /// Only the block's own stream; a block that other streams used waits for the capture's end.
    Deferred,
}

/// How captures get their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PlanChoice {
    /// As they ask for it.
    #[default]
    None,
    /// At their end: the least that they can run on (`regraph::plan`).
    Exact,
    /// As they ask for it, close together where a run outside captures or an earlier capture has asked for the same
    /// and that takes less (`regraph::engine::Plans::follow_layout`).
    Auto,
}

macro_rules! names {
    ($kind:ident { $($variant:ident = $name:literal $(| $former:literal)?),* }) => {
        impl $kind {
            /// Every value, in the order of its declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $(Self::$variant => $name),*
                })
            }
        }

        impl FromStr for $kind {
            type Err = String;

            /// Reads `_` for `-` too, as settings have it.
            fn from_str(text: &str) -> Result<Self, String> {
                match text.replace('_', "-").as_str() {
                    $($name $(| $former)? => Ok(Self::$variant),)*
                    _ => Err(format!("expected one of {}, found '{text}'", [$($name),*].join(", "))),
                }
            }
        }
    };
}

names!(Programmatic { Auto = "auto", Deny = "deny", Lag = "lag", Trust = "trust" });
names!(Reuse { CrossStream = "cross-stream", OwnStream = "own-stream", Deferred = "deferred" });
names!(PlanChoice { None = "none", Exact = "exact", Auto = "auto" | "learned" });
